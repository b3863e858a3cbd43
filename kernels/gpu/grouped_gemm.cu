// Products of groups of rows (GroupedGemmArgs), whose sizes only the device knows: the grid has room for any sizes, and each block
// finds out what it is for. f16 and bf16 on matrix units: half_product.h. f32 and f64: tile_product.h.
#include "kernels/gpu/half_product.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/tile_product.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = kTileThreads;

// The rows of a group.
struct Rows {
  long long begin, end;
};
GRADLOOM_DEVICE Rows rows_of(const GroupedGemmArgs& p, long long group, long long begin) {
  return {begin, min(max(begin, static_cast<long long>(p.ends[group])), static_cast<long long>(p.rows))};
}

// A tile of rows: of the group `group`, or, behind the last group, of rows that belong to none.
struct RowTile {
  long long group, row,
      end;  // row: the first of the tile; end: of the group's rows. row == end: there is no such tile
};
template <int kRows>
GRADLOOM_DEVICE RowTile row_tile(const GroupedGemmArgs& p, long long number) {
  long long begin = 0;
  for (long long g = 0; g < p.groups; ++g) {
    const Rows rows = rows_of(p, g, begin);
    const long long tiles = (rows.end - rows.begin + kRows - 1) / kRows;
    if (number < tiles) return {g, rows.begin + number * kRows, rows.end};
    number -= tiles;
    begin = rows.end;
  }
  return {p.groups, min(begin + number * kRows, static_cast<long long>(p.rows)), p.rows};
}

template <class T, class Shape, bool b_depth_first>
__global__ void __launch_bounds__(kThreads, 2) columns_kernel(GroupedGemmArgs p, long long col_tiles) {
  using A = Accum<T>;
  const long long number = blockIdx.x / col_tiles, col = (blockIdx.x - number * col_tiles) * Shape::kN;
  const RowTile tile = row_tile<Shape::kM>(p, number);
  if (tile.row == tile.end) return;
  T* const c = static_cast<T*>(p.c);
  A sums[Shape::kRows][Shape::kCols];
  const bool in_group = tile.group < p.groups;
  const T* const b_group = static_cast<const T*>(p.b) + (in_group ? tile.group * p.m * p.n : 0);
  const StridedOperand<T, true> a{static_cast<const T*>(p.a), tile.end, p.m, 1};
  const StridedOperand<T, b_depth_first> b{b_group, p.n, p.b_col, p.b_row};
  tile_product<Shape>(a, b, tile.row, col, 0, in_group ? p.m : 0, sums);
  for_results<Shape>(sums, tile.row, col, min(tile.row + Shape::kM, tile.end), p.n,
                     [&](long long row, long long at, A sum) { c[row * p.n + at] = from_accum<T>(sum); });
}

template <class T, class Shape>
__global__ void __launch_bounds__(kThreads, 2)
    rows_kernel(GroupedGemmArgs p, long long row_tiles, long long col_tiles) {
  using A = Accum<T>;
  const long long rest = blockIdx.x / col_tiles, group = rest / row_tiles;
  const long long row = (rest - group * row_tiles) * Shape::kM,
                  col = (blockIdx.x - rest * col_tiles) * Shape::kN;
  Rows rows{0, 0};
  for (long long g = 0; g <= group; ++g) rows = rows_of(p, g, rows.end);
  const StridedOperand<T, false> a{static_cast<const T*>(p.a), p.m, 1, p.m};
  const StridedOperand<T, false> b{static_cast<const T*>(p.b), p.n, 1, p.n};
  A sums[Shape::kRows][Shape::kCols];
  tile_product<Shape>(a, b, row, col, rows.begin, rows.end, sums);
  T* const c = static_cast<T*>(p.c) + group * p.m * p.n;
  for_results<Shape>(sums, row, col, p.m, p.n,
                     [&](long long at, long long to, A sum) { c[at * p.n + to] = from_accum<T>(sum); });
}

// ---- matrix units ---------------------------------------------------------------------------------------------------------------

// Results of kSide lines of A from `row` on and kSide of B from `col` on, to `c`, where the first of them lies.
template <class T, bool a_turned, bool b_turned>
GRADLOOM_DEVICE void half_tile(const HalfOperand<T, a_turned>& a, const HalfOperand<T, b_turned>& b,
                               long long row, long long col, long long begin, long long end, T* c,
                               long long c_row, bool packs) {
  alignas(16) __shared__ HalfStage<T> staged;
  HalfSums sums = {};
  const int first = warp_number() * kWarpTiles;
  half_sums(a, b, row, col, begin, end, staged, sums);
  __syncthreads();
  T* const rounded = staged[0][0];
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kSideTiles; ++n)
      store_operand(rounded + (first + m) * kTile * kPitch<kSide> + n * kTile, kPitch<kSide>,
                    operand_of<T>(sums[m][n]));
  }
  __syncthreads();
  const Matrix<T> to{c,
                     c_row,
                     1,
                     int(min(a.lines - row, static_cast<long long>(kSide))),
                     int(min(b.lines - col, static_cast<long long>(kSide))),
                     packs};
  store_rows<T, kSide>(rounded, to, 0, kSide, 0, kSide);
}

template <class T, bool b_turned>
__global__ void __launch_bounds__(kHalfThreads)
    half_columns_kernel(GroupedGemmArgs p, long long col_tiles, bool packs) {
  const long long number = blockIdx.x / col_tiles, col = (blockIdx.x - number * col_tiles) * kSide;
  const RowTile tile = row_tile<kSide>(p, number);
  if (tile.row == tile.end) return;
  const bool in_group = tile.group < p.groups;
  const T* const matrix = static_cast<const T*>(p.b) + (in_group ? tile.group * p.m * p.n : 0);
  const HalfOperand<T, false> a{{static_cast<const T*>(p.a), p.m, 1, 0, 0, packs}, tile.end};
  const HalfOperand<T, b_turned> b{{matrix, b_turned ? p.n : p.m, 1, 0, 0, packs}, p.n};
  half_tile(a, b, tile.row, col, 0, in_group ? p.m : 0, static_cast<T*>(p.c) + tile.row * p.n + col, p.n,
            packs);
}

template <class T>
__global__ void __launch_bounds__(kHalfThreads)
    half_rows_kernel(GroupedGemmArgs p, long long row_tiles, long long col_tiles, bool packs) {
  const long long rest = blockIdx.x / col_tiles, group = rest / row_tiles;
  const long long row = (rest - group * row_tiles) * kSide, col = (blockIdx.x - rest * col_tiles) * kSide;
  Rows rows{0, 0};
  for (long long g = 0; g <= group; ++g) rows = rows_of(p, g, rows.end);
  const HalfOperand<T, true> a{{static_cast<const T*>(p.a), p.m, 1, 0, 0, packs}, p.m},
      b{{static_cast<const T*>(p.b), p.n, 1, 0, 0, packs}, p.n};
  half_tile(a, b, row, col, rows.begin, rows.end, static_cast<T*>(p.c) + (group * p.m + row) * p.n + col, p.n,
            packs);
}

// ---- launches -------------------------------------------------------------------------------------------------------------------

// Tiles of rows of groups whose sizes are not known: each group, and the rows of none, may end within one.
long long most_row_tiles(const GroupedGemmArgs& args, long long rows) {
  return args.rows == 0 ? 0 : ceil_div(args.rows, rows) + args.groups;
}

template <class T>
void multiply_halves(const GroupedGemmArgs& args, Stream stream) {
  const bool packs = packable<T>(args.m, args.a, args.b) && packable<T>(args.n, args.c);
  const long long col_tiles = ceil_div(args.n, kSide), row_tiles = ceil_div(args.m, kSide);
  const long long blocks =
      col_tiles * (args.sum == GroupedSum::rows ? args.groups * row_tiles : most_row_tiles(args, kSide));
  if (blocks == 0) return;
  const dim3 grid{unsigned(blocks)}, block(kHalfThreads);
  if (args.sum == GroupedSum::rows)
    return launch(stream, half_rows_kernel<T>, grid, block, 0, args, row_tiles, col_tiles, packs);
  if (args.b_row < args.b_col)
    return launch(stream, half_columns_kernel<T, false>, grid, block, 0, args, col_tiles, packs);
  launch(stream, half_columns_kernel<T, true>, grid, block, 0, args, col_tiles, packs);
}

template <class T, class Shape>
void multiply(const GroupedGemmArgs& args, Stream stream) {
  const long long col_tiles = ceil_div(args.n, Shape::kN);
  if (args.sum == GroupedSum::rows) {
    const long long row_tiles = ceil_div(args.m, Shape::kM), blocks = args.groups * row_tiles * col_tiles;
    if (blocks > 0)
      launch(stream, rows_kernel<T, Shape>, dim3(unsigned(blocks)), dim3(kThreads), 0, args, row_tiles,
             col_tiles);
    return;
  }
  const long long blocks = most_row_tiles(args, Shape::kM) * col_tiles;
  if (blocks == 0) return;
  const dim3 grid{unsigned(blocks)}, block(kThreads);
  if (args.b_row < args.b_col)
    return launch(stream, columns_kernel<T, Shape, true>, grid, block, 0, args, col_tiles);
  launch(stream, columns_kernel<T, Shape, false>, grid, block, 0, args, col_tiles);
}

template <class T>
void product(const GroupedGemmArgs& args, Stream stream) {
  if constexpr (sizeof(T) == 2)
    multiply_halves<T>(args, stream);
  else if constexpr (sizeof(T) == sizeof(double))
    multiply<T, TileShape<double, 64, 64, 8>>(args, stream);
  else
    multiply<T, TileShape<float, 64, 64, 16>>(args, stream);
}

}  // namespace

void grouped_gemm(const GroupedGemmArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, product, args, stream);
}

}  // namespace gradloom::kernels::gpu
