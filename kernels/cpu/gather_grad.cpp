// Gradient of Gather (embedding): ddata[o, indices[k], :] += dy[o, k, :].
// The sources are sorted by destination row (counting sort, stable), then every destination row adds its
// sources in the order of k: no atomics, and the same bits for any number of threads. Where the sums are added to what is there, rows
// without sources are not touched.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 1024;  // elements of a row that stay in L1 while its sources are added

template <class T>
void add_rows(const GatherGradArgs& args) {
  i64* const start = static_cast<i64*>(args.workspace);  // [axis_size + 1]
  i64* const source = start + args.axis_size + 1;        // [count]
  for (i64 row = 0; row <= args.axis_size; ++row) start[row] = 0;
  const auto destination = [&](i64 k) {
    const i64 index = read_index(args.index_dtype, args.indices, k);
    const i64 row = index < 0 ? index + args.axis_size : index;
    return row >= 0 && row < args.axis_size ? row : i64(-1);
  };
  for (i64 k = 0; k < args.count; ++k) {
    const i64 row = destination(k);
    if (row >= 0) ++start[row];
  }
  i64 total = 0;
  for (i64 row = 0; row <= args.axis_size; ++row) {
    total += start[row];
    start[row] = total;  // end of the row's list; moved back to its start below
  }
  for (i64 k = args.count - 1; k >= 0; --k) {
    const i64 row = destination(k);
    if (row >= 0) source[--start[row]] = k;
  }

  const T* const dy = static_cast<const T*>(args.dy);
  T* const ddata = static_cast<T*>(args.ddata);
  const T divisor = T(args.divisor);
  const i64 strips = ceil_div(args.inner, kStrip);
  const i64 grain = larger(1, 8192 / larger(1, smaller(args.inner, kStrip)));
  const i64 groups = ceil_div(args.axis_size, grain);
  const i64 work = args.outer * ((args.adds ? 0 : args.axis_size) + args.count) * args.inner;
  parallel_for(args.outer * groups * strips, work, [&](i64 part) {
    const i64 begin_column = part % strips * kStrip;
    const i64 columns = smaller(kStrip, args.inner - begin_column);
    const i64 group = part / strips % groups, o = part / (strips * groups);
    const i64 end_row = smaller(args.axis_size, (group + 1) * grain);
    for (i64 row = group * grain; row < end_row; ++row) {
      if (args.adds && start[row] == start[row + 1]) continue;
      T* const there = ddata + (o * args.axis_size + row) * args.inner + begin_column;
      T sums[kStrip];
      T* const out = args.adds ? sums : there;
      for (i64 i = 0; i < columns; ++i) out[i] = T(0);
      for (i64 s = start[row]; s < start[row + 1]; ++s) {
        const T* const in = dy + (o * args.count + source[s]) * args.inner + begin_column;
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) out[i] += in[i];
      }
      if (!args.adds) continue;
#pragma GCC ivdep
      for (i64 i = 0; i < columns; ++i) there[i] += sums[i] / divisor;
    }
  });
}

}  // namespace

void gather_grad(const GatherGradArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, add_rows, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
