// Einsum: equations in all their forms against plain sums, gradients of diagonals and broadcasts, errors.
#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

Attrs equation(const char* text) { return {{"equation", std::string(text)}}; }
using Values = std::vector<double>;

TEST(Einsum, FormsOfEquations) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4}), b = tensor({2, 2}, {5, 6, 7, 8}), v = tensor({2}, {10, 100});
  EXPECT_EQ(run("Einsum", {a, b}, equation("ij,jk->ik")), (Values{19, 22, 43, 50}));
  EXPECT_EQ(run("Einsum", {a, b}, equation("ij,jk")), (Values{19, 22, 43, 50}));
  EXPECT_EQ(run("Einsum", {a}, equation("ba")), (Values{1, 3, 2, 4}));  // implicit output: ab
  EXPECT_EQ(run("Einsum", {a}, equation("ii")), (Values{5}));
  EXPECT_EQ(run("Einsum", {a}, equation("ii->i")), (Values{1, 4}));
  EXPECT_EQ(run("Einsum", {a}, equation("ij->")), (Values{10}));
  EXPECT_EQ(run("Einsum", {a, v}, equation("...j,j->...")), (Values{210, 430}));
  EXPECT_EQ(run("Einsum", {v, v}, equation("i,j->ij")), (Values{100, 1000, 1000, 10000}));
  EXPECT_EQ(run("Einsum", {a, a, v}, equation("ij,ik,k->j")), (Values{210 + 3 * 430, 420 + 4 * 430}));
  EXPECT_EQ(run("Einsum", {tensor({2, 1}, {1, 2}), a}, equation("...,...->...")), (Values{1, 2, 6, 8}));
}

TEST(Einsum, LabelsOfSizeOneBroadcast) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4}), one = tensor({2, 1}, {10, 100}), v = tensor({2}, {5, 6});
  EXPECT_EQ(run("Einsum", {one, a}, equation("ij,jk->ik")), (Values{40, 60, 400, 600}));
  EXPECT_EQ(run("Einsum", {a, tensor({1, 2}, {10, 100})}, equation("ij,jk->ik")), (Values{30, 300, 70, 700}));
  EXPECT_EQ(run("Einsum", {a, tensor({1}, {10})}, equation("ij,j->i")), (Values{30, 70}));
  EXPECT_EQ(run("Einsum", {tensor({1, 1}, {3}), v}, equation("ii,i->i")), (Values{15, 18}));
  EXPECT_EQ(gradient("Einsum", {one, a}, 0, equation("ij,jk->ik")), (Values{10, 10}));
  EXPECT_EQ(gradient("Einsum", {one, a}, 1, equation("ij,jk->ik")), (Values{110, 110, 110, 110}));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({1, 2}), f32({2})}, equation("ii,i->i")), "in one input"));
}

TEST(Einsum, Integers) {
  const Tensor a = ints({1, 2, 3, 4}).reshaped({2, 2});
  EXPECT_EQ(run("Einsum", {a, a}, equation("ij,jk->ik")), (Values{7, 10, 15, 22}));
  const auto u64 = run("Einsum", {a.cast(DType::u64), a.cast(DType::u64)}, equation("ij,ij->i"));
  EXPECT_EQ(u64, (Values{5, 25}));
}

TEST(Einsum, CapitalLettersAreOthers) {
  EXPECT_EQ(shape_of(infer("Einsum", {f32({2, 3}), f32({4, 3})}, equation("aA,bA"))), (Shape{2, 4}));
  EXPECT_EQ(shape_of(infer("Einsum", {f32({2, 3})}, equation("aA"))), (Shape{3, 2}));  // A before a
}

TEST(Einsum, GradientsOfDiagonalsAndSums) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4}), v = tensor({2}, {10, 100});
  EXPECT_EQ(gradient("Einsum", {a, v}, 0, equation("ii,i->i")), (Values{10, 0, 0, 100}));
  EXPECT_EQ(gradient("Einsum", {a, v}, 0, equation("ij,k->k")), (Values{110, 110, 110, 110}));
  EXPECT_EQ(gradient("Einsum", {a, v}, 1, equation("ij,k->k")), (Values{10, 10}));
  EXPECT_EQ(gradient("Einsum", {tensor({2, 1}, {1, 2}), a}, 0, equation("...,...->...")), (Values{3, 7}));
}

TEST(Einsum, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2, 3})}, equation("ij,jk->ik")), "2 terms for 1 inputs"));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2, 3})}, equation("ijk->i")), "does not fit"));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2, 3})}, equation("ii->i")), "stands for 2 and for 3"));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2, 3})}, equation("ij->ik")), "no input has"));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2, 3})}, equation("ij->ii")), "twice"));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2, 3})}, equation("i1->i")), "'1'"));
  EXPECT_TRUE(mentions(error_of("Einsum", {f32({2}), i64({2})}, equation("i,i->i")), "different types"));
}

}  // namespace
}  // namespace gradloom
