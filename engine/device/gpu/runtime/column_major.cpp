#include "engine/device/gpu/runtime/column_major.h"

#include <algorithm>

namespace gradloom::kernels::gpu {
namespace {

// rows x cols with elements at i * row_step + j * col_step: column-major when rows lie side by side.
bool leading(std::int64_t rows, std::int64_t cols, std::int64_t row_step, std::int64_t col_step,
             std::int64_t* ld) {
  if (row_step != 1 && rows != 1) return false;
  *ld = cols == 1 ? rows : col_step;
  return *ld >= std::max<std::int64_t>(rows, 1);
}

bool operand(std::int64_t rows, std::int64_t cols, std::int64_t row_step, std::int64_t col_step,
             bool* transposed, std::int64_t* ld) {
  *transposed = false;
  if (leading(rows, cols, row_step, col_step, ld)) return true;
  *transposed = true;
  return leading(cols, rows, col_step, row_step, ld);
}

// One matrix as GemmArgs has it: elements at i * row + j * col, products `batch` apart.
struct Strided {
  std::int64_t row, col;
  const std::int64_t* batch;
};

// One batch dim of all that are not 1.
bool merge_batch(const GemmArgs& args, const Strided& x, const Strided& y, ColumnMajor* product) {
  product->batch = 1;
  product->x_batch = product->y_batch = product->d_batch = 0;
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    const std::int64_t n = args.batch_dims[d];
    if (n == 1) continue;
    if (product->batch == 1) {
      product->x_batch = x.batch[d];
      product->y_batch = y.batch[d];
      product->d_batch = args.c_batch[d];
    } else if (x.batch[d] != product->x_batch * product->batch ||
               y.batch[d] != product->y_batch * product->batch ||
               args.c_batch[d] != product->d_batch * product->batch) {
      return false;
    }
    product->batch *= n;
  }
  return product->batch == 1 || product->d_batch != 0;
}

}  // namespace

bool column_major(const GemmArgs& args, ColumnMajor* product) {
  constexpr std::int64_t kMost = 0x7fffffff;  // sizes of the libraries are 32-bit or tested there only
  *product = {};
  if (args.m <= 0 || args.n <= 0 || args.k <= 0) return false;
  product->inner = args.k;
  // By rows: everything turned. By columns: as it is.
  Strided x{args.b_col, args.b_row, args.b_batch}, y{args.a_col, args.a_row, args.a_batch};
  product->rows = args.n;
  product->cols = args.m;
  if (!leading(args.n, args.m, args.c_col, args.c_row, &product->d_ld)) {
    product->by_columns = true;
    product->rows = args.m;
    product->cols = args.n;
    x = {args.a_row, args.a_col, args.a_batch};
    y = {args.b_row, args.b_col, args.b_batch};
    if (!leading(args.m, args.n, args.c_row, args.c_col, &product->d_ld)) return false;
  }
  if (!operand(product->rows, args.k, x.row, x.col, &product->x_transposed, &product->x_ld)) return false;
  if (!operand(args.k, product->cols, y.row, y.col, &product->y_transposed, &product->y_ld)) return false;
  if (std::max({args.m, args.n, args.k, product->x_ld, product->y_ld, product->d_ld}) > kMost) return false;
  return merge_batch(args, x, y, product) && product->batch <= kMost && product->batch > 0;
}

}  // namespace gradloom::kernels::gpu
