// A queued device in host memory for tests of what runs on one: it does its work at once and notes
// what it was asked for.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/ir/builder.h"
#include "engine/plan/plan.h"
#include "tests/engine/plan/support.h"

namespace gradloom {

class QueuedDevice final : public Device {
 public:
  std::vector<std::string> notes;
  std::set<void*> live;
  std::int64_t clock_ns = 1000;  // of wait()
  bool has_trace = true;
  std::vector<Activity> activities = {{}};  // of each traced step: a kernel of plan step -1
  std::vector<float> tuned_on;              // the first element that each kernel reads
  std::vector<std::int64_t> rows;           // that kernels were told, which count them

  ~QueuedDevice() override {
    for (void* memory : live) std::free(memory);
  }
  DeviceInfo info() const override {
    DeviceInfo info;
    info.id = "queued:0";
    info.available = info.queued = true;
    return info;
  }
  Result<void*> allocate(std::size_t bytes, Memory) override {
    void* const memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    live.insert(memory);
    return memory;
  }
  void release(void* memory) override {
    live.erase(memory);
    std::free(memory);
  }
  Status copy(Queue queue, void* target, const void* source, std::size_t bytes) override {
    notes.push_back(std::string(queue == Queue::upload ? "upload " : "copy ") + std::to_string(bytes));
    std::memcpy(target, source, bytes);
    return {};
  }
  Result<std::vector<std::unique_ptr<PreparedKernel>>> prepare(
      const std::vector<KernelRequest>& requests) override {
    std::vector<std::unique_ptr<PreparedKernel>> kernels;
    for (const KernelRequest& request : requests)
      kernels.push_back(std::make_unique<Kernel>(request.op->name));
    return kernels;
  }
  Status launch(const PreparedKernel& kernel, const Operands& o, std::int32_t plan_step) override {
    if (kernel.name() == "PackedRows") rows.push_back(*static_cast<const std::int64_t*>(o.inputs[0]));
    notes.push_back("launch " + kernel.name() + " " + std::to_string(plan_step));
    return {};
  }
  Status order(Queue, Queue) override { return {}; }
  Result<Fence> fence() override { return ++fences_; }
  Result<std::int64_t> wait(Fence fence) override {
    notes.push_back("wait " + std::to_string(fence));
    return clock_ns;
  }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()>& work) override {
    notes.emplace_back("record");
    TRY(work());
    notes.emplace_back("recorded");
    return std::unique_ptr<Recording>(new Replay(*this));
  }
  Result<bool> trace(bool) override { return has_trace; }
  std::string why_no_trace() const override { return "there is none"; }
  Result<std::int64_t> elapsed_ns(Event, Event) override { return std::int64_t{5}; }
  Status tune(const PreparedKernel&, const Operands& o, std::int32_t) override {
    tuned_on.push_back(*static_cast<const float*>(o.inputs[0]));
    return {};
  }
  Result<std::vector<Activity>> collect_trace() override { return activities; }
  std::int64_t peak_bytes() const override { return 0; }

  std::vector<std::string> take_notes() { return std::exchange(notes, {}); }

 private:
  struct Kernel final : PreparedKernel {
    explicit Kernel(std::string its_name) : name_(std::move(its_name)) {}
    const std::string& name() const override { return name_; }
    std::size_t workspace_bytes() const override { return 0; }
    std::string name_;
  };
  struct Replay final : Recording {
    explicit Replay(QueuedDevice& on) : device(on) {}
    Status run() override {
      device.notes.emplace_back("replay");
      return {};
    }
    QueuedDevice& device;
  };
  Fence fences_ = 0;
};

// y = x + c, and z = y * p once per optimizer step.
struct SmallPlan {
  Graph graph;
  ValueId x, other, y, z;
  Plan plan;

  SmallPlan() {
    GraphBuilder b(graph);
    const Type type{DType::f32, {4}};
    x = b.input("x", type);
    other = b.input("other", type);
    const ValueId p = b.parameter("p", Tensor::from_f64(DType::f32, {4}, {1, 2, 3, 4}));
    y = b.op("Add", {x, other});
    z = b.op("Mul", {y, p});
    graph.outputs = {z};
    auto made = make_plan(graph, {stack_all, "stack", true});
    EXPECT_TRUE(made.ok());
    plan = std::move(made).value();
    plan.steps[1].micro = false;
  }
};

}  // namespace gradloom
