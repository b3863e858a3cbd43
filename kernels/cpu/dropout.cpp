// Dropout of rows that are part of a larger tensor, with the random numbers that the whole tensor would have.
#include "kernels/cpu/uniforms.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

template <class T>
void drop_rows(const DropoutArgs& args) {
  const i64 rows = args.batch * args.rows;
  if (rows * args.columns == 0) return;
  parallel_pieces(rows, larger(1, 8192 / args.columns), rows * args.columns * 8, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      drop_run(*args.random, args.key, args.ratio,
               args.first + row / args.rows * args.batch_step + row % args.rows * args.row_step, args.columns,
               static_cast<const T*>(args.x) + row * args.columns,
               static_cast<T*>(args.y) + row * args.columns);
    }
  });
}

}  // namespace

void dropout(const DropoutArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, drop_rows, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
