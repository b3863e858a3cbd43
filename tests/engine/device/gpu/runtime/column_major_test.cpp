// Products in the libraries' form against the definition: every element that a library would read and write
// is where GemmArgs has it.
#include "engine/device/gpu/runtime/column_major.h"

#include <gtest/gtest.h>

namespace gradloom::kernels::gpu {
namespace {

GemmArgs product_of(std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool b_transposed) {
  GemmArgs args = {};
  args.dtype = DType::f32;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a_row = a_transposed ? 1 : k;
  args.a_col = a_transposed ? m : 1;
  args.b_row = b_transposed ? 1 : n;
  args.b_col = b_transposed ? k : 1;
  args.c_row = n;
  args.c_col = 1;
  args.alpha = 1;
  return args;
}

// Where a library looks for element (i, j) of op(X) stored with leading dimension `ld`.
std::int64_t place(std::int64_t i, std::int64_t j, bool transposed, std::int64_t ld) {
  return transposed ? j + i * ld : i + j * ld;
}

void expect_same_elements(const GemmArgs& args) {
  ColumnMajor p;
  ASSERT_TRUE(column_major(args, &p));
  ASSERT_EQ(p.rows, p.by_columns ? args.m : args.n);
  ASSERT_EQ(p.cols, p.by_columns ? args.n : args.m);
  ASSERT_EQ(p.x(args), p.by_columns ? args.a : args.b);
  ASSERT_EQ(p.y(args), p.by_columns ? args.b : args.a);
  ASSERT_EQ(p.inner, args.k);
  EXPECT_GE(p.x_ld, p.x_transposed ? p.inner : p.rows);
  EXPECT_GE(p.y_ld, p.y_transposed ? p.cols : p.inner);
  EXPECT_GE(p.d_ld, p.rows);
  if (p.by_columns) {
    for (std::int64_t i = 0; i < args.m; ++i) {
      for (std::int64_t l = 0; l < args.k; ++l)
        ASSERT_EQ(place(i, l, p.x_transposed, p.x_ld), i * args.a_row + l * args.a_col);
      for (std::int64_t j = 0; j < args.n; ++j)
        ASSERT_EQ(place(i, j, false, p.d_ld), i * args.c_row + j * args.c_col);
    }
    for (std::int64_t l = 0; l < args.k; ++l) {
      for (std::int64_t j = 0; j < args.n; ++j)
        ASSERT_EQ(place(l, j, p.y_transposed, p.y_ld), l * args.b_row + j * args.b_col);
    }
    return;
  }
  for (std::int64_t i = 0; i < args.m; ++i) {
    for (std::int64_t l = 0; l < args.k; ++l)
      ASSERT_EQ(place(l, i, p.y_transposed, p.y_ld), i * args.a_row + l * args.a_col);
    for (std::int64_t j = 0; j < args.n; ++j)
      ASSERT_EQ(place(j, i, false, p.d_ld), i * args.c_row + j * args.c_col);
  }
  for (std::int64_t l = 0; l < args.k; ++l) {
    for (std::int64_t j = 0; j < args.n; ++j)
      ASSERT_EQ(place(j, l, p.x_transposed, p.x_ld), l * args.b_row + j * args.b_col);
  }
}

TEST(ColumnMajor, PlainTransposedAndThin) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const std::int64_t m : {1, 5}) {
        for (const std::int64_t n : {1, 7}) {
          for (const std::int64_t k : {1, 3})
            expect_same_elements(product_of(m, n, k, a_transposed, b_transposed));
        }
      }
    }
  }
}

TEST(ColumnMajor, RowsFurtherApart) {
  GemmArgs args = product_of(5, 7, 3, false, true);
  args.a_row = 11;
  args.b_col = 13;
  args.c_row = 17;
  expect_same_elements(args);
}

// The gradient of a weight that is stored as its transpose.
TEST(ColumnMajor, ResultsByColumns) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      GemmArgs args = product_of(5, 7, 3, a_transposed, b_transposed);
      args.c_row = 1;
      args.c_col = 5;
      ColumnMajor p;
      ASSERT_TRUE(column_major(args, &p));
      EXPECT_TRUE(p.by_columns);
      expect_same_elements(args);
      args.c_col = 9;
      expect_same_elements(args);
    }
  }
}

TEST(ColumnMajor, BatchesOfResultsByColumns) {
  GemmArgs args = product_of(5, 7, 3, false, false);
  args.c_row = 1;
  args.c_col = 5;
  args.batch_rank = 1;
  args.batch_dims[0] = 4;
  args.a_batch[0] = 15;
  args.b_batch[0] = 21;
  args.c_batch[0] = 35;
  ColumnMajor p;
  ASSERT_TRUE(column_major(args, &p));
  EXPECT_EQ(p.x_batch, 15);
  EXPECT_EQ(p.y_batch, 21);
  EXPECT_EQ(p.d_batch, 35);
}

TEST(ColumnMajor, RefusesWhatHasNoLeadingDimension) {
  ColumnMajor p;
  GemmArgs args = product_of(5, 7, 3, false, false);
  args.a_col = 2;
  EXPECT_FALSE(column_major(args, &p)) << "no stride of 1";
  args = product_of(5, 7, 3, false, false);
  args.b_row = 4;
  EXPECT_FALSE(column_major(args, &p)) << "rows that overlap";
  args = product_of(5, 7, 3, false, false);
  args.c_row = 3;
  args.c_col = 2;
  EXPECT_FALSE(column_major(args, &p)) << "result with neither stride 1";
  args = product_of(5, 7, 3, false, false);
  args.c_row = 1;
  args.c_col = 4;
  EXPECT_FALSE(column_major(args, &p)) << "columns of the result that overlap";
  EXPECT_FALSE(column_major(product_of(0, 7, 3, false, false), &p));
  args = product_of(5, 7, 3, false, false);
  args.a_row = std::int64_t(1) << 31;
  EXPECT_FALSE(column_major(args, &p)) << "more than 32 bits";
}

TEST(ColumnMajor, MergesBatchDims) {
  GemmArgs args = product_of(2, 3, 4, false, false);
  args.batch_rank = 3;
  const std::int64_t dims[] = {5, 1, 6}, a[] = {48, 99, 8}, c[] = {36, 99, 6};
  for (int d = 0; d < 3; ++d) {
    args.batch_dims[d] = dims[d];
    args.a_batch[d] = a[d];
    args.b_batch[d] = 0;  // the same b for all
    args.c_batch[d] = c[d];
  }
  ColumnMajor p;
  ASSERT_TRUE(column_major(args, &p));
  EXPECT_EQ(p.batch, 30);
  EXPECT_EQ(p.x_batch, 0);
  EXPECT_EQ(p.y_batch, 8);
  EXPECT_EQ(p.d_batch, 6);
  args.a_batch[0] = 0;  // a repeats over the outer dim only
  EXPECT_FALSE(column_major(args, &p));
  args.a_batch[0] = 48;
  args.c_batch[0] = args.c_batch[2] = 0;
  EXPECT_FALSE(column_major(args, &p)) << "results over each other";
}

}  // namespace
}  // namespace gradloom::kernels::gpu
