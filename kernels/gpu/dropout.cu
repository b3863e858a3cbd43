// Dropout of rows that are part of a larger tensor, with the random numbers that the whole tensor would have.
// One thread per block of four numbers.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(DropoutArgs args, i64 count, Divider blocks, Divider rows) {
  using A = Accum<T>;
  const i64 at = i64(blockIdx.x) * kThreads + i64(threadIdx.x);
  if (at >= count) return;
  const i64 row = blocks(at), b = rows(row);
  const i64 first = args.first + b * args.batch_step + (row - b * args.rows) * args.row_step;
  const i64 block = first / 4 + (at - row * blocks.divisor);
  const PhiloxWords words =
      philox_block((unsigned long long)(block), args.random->seed ^ args.key, args.random->step);
  const A limit = A(args.ratio), scale = A(1) / (A(1) - limit);
  for (int j = 0; j < 4; ++j) {
    const i64 column = 4 * block + j - first;
    if (column < 0 || column >= args.columns) continue;
    const i64 i = row * args.columns + column;
    const A kept = to_accum(static_cast<const T*>(args.x)[i]) * scale;
    static_cast<T*>(args.y)[i] = from_accum<T>(A(philox_uniform(words.word[j])) >= limit ? kept : A(0));
  }
}

template <class T>
void drop(const DropoutArgs& args, Stream stream) {
  const i64 blocks = (args.columns + 6) / 4;  // of any row, wherever its first number lies in its block
  const i64 count = args.batch * args.rows * blocks;
  launch(stream, dropout_kernel<T>, dim3(unsigned(ceil_div(count, kThreads))), dim3(kThreads), 0, args, count,
         Divider(blocks, count), Divider(args.rows, count));
}

}  // namespace

void dropout(const DropoutArgs& args, Stream stream) {
  if (args.batch * args.rows * args.columns == 0) return;
  GRADLOOM_GPU_FLOATS(args.dtype, drop, args, stream);
}

}  // namespace gradloom::kernels::gpu
