// A plan whose values leave and come back, for tests of streams: every step takes 1000 ns, and so does a copy of 4 KiB.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/plan/streams.h"
#include "tests/engine/plan/support.h"

namespace gradloom {

inline StepSpeeds even_speeds() {
  StepSpeeds speeds;
  speeds.link = 4.096;
  speeds.latency_ns = 0;
  speeds.step_ns = [](const Graph&, const Plan& plan) {
    return std::vector<double>(plan.steps.size(), 1000.0);
  };
  return speeds;
}

// y = exp(exp(exp(a))) * a with a = exp(x), which leaves between its readers.
struct OffloadedPlan {
  Graph graph;
  ValueId x, a, away, c, d, e, back, y;
  Plan plan;

  explicit OffloadedPlan(kernels::Target target = kernels::Target::gpu) {
    GraphBuilder b(graph);
    x = b.input("x", {DType::f32, {1024}});
    a = b.op("Exp", {x});
    away = b.op("CopyToHost", {a});
    c = b.op("Exp", {a});
    d = b.op("Exp", {c});
    e = b.op("Exp", {d});
    back = b.op("CopyFromHost", {away});
    y = b.op("Mul", {e, back});
    graph.outputs = {y};
    make(target);
  }

  void make(kernels::Target target = kernels::Target::gpu) {
    PlanOptions options{stack_all, "stack", true, target};
    options.speeds = even_speeds();
    auto made = make_plan(graph, options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    plan = std::move(made).value();
  }

  std::int32_t step_of(ValueId v) const {
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
      if (plan.steps[i].node == graph.values[v].producer) return static_cast<std::int32_t>(i);
    return -1;
  }
  PlanStep& step(ValueId v) { return plan.steps[static_cast<std::size_t>(step_of(v))]; }
  Buffer& buffer(ValueId v) { return plan.buffers[static_cast<std::size_t>(plan.buffer_of[v])]; }
};

}  // namespace gradloom
