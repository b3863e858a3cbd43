// Graphs of parts, their plans with pieces and with copies, and what both compute.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/plan/pieces.h"
#include "engine/run/executor.h"
#include "kernels/prepared/dnnl.h"
#include "tests/engine/plan/support.h"

namespace gradloom {

// Far apart, in an arena of one size for every plan: none is too large for pieces.
inline std::int64_t spread(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  constexpr std::int64_t kApart = 1 << 16, kMost = 32;
  for (std::size_t i = 0; i < requests.size(); ++i) offsets[i] = static_cast<std::int64_t>(i) * kApart;
  EXPECT_LE(requests.size(), static_cast<std::size_t>(kMost));
  return kMost * kApart;
}

// Makes products of f32 those that processors without AVX-512 have, ours, unless oneDNN was used before in this process.
inline bool has_own_products() {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  return !kernels::prepared::has_avx512();
}
#define REQUIRE_OWN_PRODUCTS() \
  if (!has_own_products()) GTEST_SKIP() << "oneDNN multiplied with AVX-512 in this process before"

struct Pieces : ::testing::Test {
  using Ints = std::vector<std::int64_t>;
  Graph graph;
  GraphBuilder b{graph};
  const Type rows{DType::f32, {4, 16}};  // 64 bytes a row
  ValueId x = b.input("x", rows), y = b.input("y", rows);

  ValueId unary(const char* op, ValueId v) { return b.op(op, {v}); }
  std::vector<ValueId> split(ValueId v, Ints sizes, std::int64_t axis = 0) {
    const int count = static_cast<int>(sizes.size());
    return b.ops(op_by_name("Split"), {v}, {{"axis", axis}, {"split", std::move(sizes)}}, count);
  }
  ValueId slice(ValueId v, std::int64_t begin, std::int64_t end, std::int64_t axis = 0) {
    return b.op("Slice", {v, b.i64s({begin}), b.i64s({end}), b.i64s({axis})});
  }
  ValueId join(std::vector<ValueId> parts, std::int64_t axis = 0) {
    return b.op("Concat", std::move(parts), {{"axis", axis}});
  }

  Plan plan(bool pieces = true, bool in_place = true) const {
    PlanOptions options{spread, "spread", in_place};
    options.pieces = pieces;
    auto made = make_plan(graph, options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    const Status checked = check_plan(graph, *made);
    EXPECT_TRUE(checked.ok()) << checked.error().message;
    return std::move(made).value();
  }
  // Of the last node with this outcome; empty: there is none.
  static std::string why(const Plan& plan, bool taken) {
    std::string why;
    for (const PieceChoice& choice : plan.choices)
      if (choice.taken == taken) why = choice.why;
    return why;
  }
  std::vector<Tensor> outputs(const Plan& plan) const {
    const auto device = make_cpu_device();
    const auto executor = Executor::create(graph, plan, *device);
    EXPECT_TRUE(executor.ok());
    (*executor)->poison();
    std::mt19937 random(3);
    for (const ValueId id : graph.inputs) {
      Tensor t(graph.type(id).dtype, graph.type(id).shape);
      auto* const data = static_cast<float*>(t.mutable_data());
      for (std::int64_t i = 0; i < t.count(); ++i)
        data[i] = std::uniform_real_distribution<float>(-1, 1)(random);
      EXPECT_TRUE((*executor)->feed(id, t).ok());
    }
    EXPECT_TRUE((*executor)->run_forward().ok());
    std::vector<Tensor> results;
    for (const ValueId id : graph.outputs) results.push_back((*executor)->read(id).value());
    return results;
  }
  // With and without pieces, in place and not: the same bits. Returns kernels that are gone.
  std::size_t same_bits() const {
    const Plan copied = plan(false, false);
    const std::vector<Tensor> expected = outputs(copied);
    std::size_t gone = 0;
    for (const bool in_place : {true, false}) {
      const Plan taken = plan(true, in_place);
      gone = copied.steps.size() - taken.steps.size();
      const std::vector<Tensor> got = outputs(taken);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(bit_equal(got[i], expected[i])) << i;
    }
    return gone;
  }

  static Buffer& buffer(Plan& p, ValueId v) { return p.buffers[static_cast<std::size_t>(p.buffer_of[v])]; }
  // What the checker says.
  std::string said(const Plan& p) const {
    const Status status = check_plan(graph, p);
    return status.ok() ? "" : status.error().message;
  }
  void expect_found(const Plan& p, const std::string& words) const {
    EXPECT_NE(said(p).find(words), std::string::npos) << words << ", but it says: " << said(p);
  }
};

}  // namespace gradloom
