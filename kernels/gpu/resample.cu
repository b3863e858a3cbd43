// A sparse matrix times one axis: y[o, j, i] = sum over e in [begin[j], begin[j + 1]) of weight[e] * x[o,
// index[e], i], in order of e. x: [outer, in, inner], y: [outer, out, inner]. One thread per result,
// neighbours write neighbours; what overlaps comes from the cache.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(ResampleArgs args, i64 count, Divider inner, Divider out) {
  using A = Accum<T>;
  const i64 at = i64(blockIdx.x) * kThreads + i64(threadIdx.x);
  if (at >= count) return;
  const i64 row = inner(at), i = at - row * args.inner, o = out(row), j = row - o * args.out;
  const T* const x = static_cast<const T*>(args.x) + o * args.in * args.inner + i;
  A sum = 0;
  for (int e = args.begin[j]; e < args.begin[j + 1]; ++e)
    sum += A(args.weight[e]) * to_accum(x[args.index[e] * args.inner]);
  static_cast<T*>(args.y)[at] = from_accum<T>(sum);
}

template <class T>
void mix(const ResampleArgs& args, Stream stream) {
  const i64 count = args.outer * args.out * args.inner;
  launch(stream, resample_kernel<T>, dim3(unsigned(ceil_div(count, kThreads))), dim3(kThreads), 0, args,
         count, Divider(args.inner, count), Divider(args.out, count));
}

}  // namespace

void resample(const ResampleArgs& args, Stream stream) {
  if (args.outer * args.out * args.inner == 0) return;
  GRADLOOM_GPU_FLOATS(args.dtype, mix, args, stream);
}

}  // namespace gradloom::kernels::gpu
