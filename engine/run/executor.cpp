#include "engine/run/executor.h"

#include <cstring>

#include "engine/base/text.h"
#include "engine/ops/op.h"

namespace gradloom {

struct Executor::Impl {
  const Graph* graph;
  const Plan* plan;
  Device* device;
  std::byte* blocks[5] = {};                     // by Place
  struct Step {
    std::unique_ptr<PreparedKernel> kernel;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;
    int stream = 0;
    bool micro = true;
  };
  std::vector<Step> steps;

  ~Impl() {
    for (std::byte* block : blocks)
      if (block) device->release(block);
  }

  void* address(ValueId v) const {
    if (v == kNone || plan->buffer_of[v] < 0) return nullptr;
    const Buffer& b = plan->buffers[static_cast<std::size_t>(plan->buffer_of[v])];
    return blocks[static_cast<int>(b.place)] + b.offset;
  }

  Status allocate() {
    const std::pair<Place, std::int64_t> sizes[] = {{Place::arena, plan->arena_bytes}, {Place::state, plan->state_bytes},
                                                    {Place::input, plan->input_bytes}, {Place::constant, plan->constant_bytes}};
    for (const auto& [place, bytes] : sizes)
      if (bytes > 0) blocks[static_cast<int>(place)] = static_cast<std::byte*>(TRY(device->allocate(static_cast<std::size_t>(bytes))));
    return {};
  }

  Status prepare() {
    steps.reserve(plan->steps.size());
    for (const PlanStep& from : plan->steps) {
      const Node& node = graph->nodes[from.node];
      Step step;
      auto kernel = device->prepare(*node.op, node_types(*graph, node));
      if (!kernel) return with_context(kernel.error(), "node '" + escaped(node.name) + "'");
      step.kernel = std::move(kernel).value();
      for (ValueId in : node.inputs) step.inputs.push_back(address(in));
      for (ValueId out : node.outputs) step.outputs.push_back(address(out));
      if (from.workspace_bytes > 0) step.workspace = blocks[static_cast<int>(Place::arena)] + from.workspace_offset;
      step.stream = from.stream;
      step.micro = from.micro;
      steps.push_back(std::move(step));
    }
    return {};
  }

  Status write(ValueId v, const Tensor& data) const { return device->upload(address(v), data.data(), data.bytes()); }

  Status load_initial(bool constants) const {
    for (ValueId v = 0; v < graph->values.size(); ++v) {
      const Value& value = graph->values[v];
      if (value.producer != kNone || plan->buffer_of[v] < 0 || !value.data.defined()) continue;
      if (value.role == Role::constant && !constants) continue;
      TRY(write(v, value.data));
    }
    return {};
  }

  Status launch_range(bool micro, std::int32_t micro_index, std::uint64_t seed, std::uint64_t random_step, std::vector<KernelSample>* samples) const {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& s = steps[i];
      if (s.micro != micro) continue;
      const LaunchArgs args{s.inputs.data(), s.outputs.data(), s.workspace, seed, random_step};
      if (samples == nullptr) {
        TRY(device->launch(*s.kernel, args, s.stream));
        continue;
      }
      const std::int64_t start_ns = monotonic_ns();
      TRY(device->launch(*s.kernel, args, s.stream));
      samples->push_back({static_cast<std::int32_t>(i), micro_index, start_ns, monotonic_ns() - start_ns});
    }
    return {};
  }

  template <class T>
  Status set_hyper(ValueId v, T value) const {
    void* target = address(v);
    return target == nullptr ? Status() : device->upload(target, &value, sizeof value);
  }
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const Graph& graph, const Plan& plan, Device& device) {
  auto impl = std::make_unique<Impl>();
  impl->graph = &graph;
  impl->plan = &plan;
  impl->device = &device;
  TRY(impl->allocate());
  TRY(impl->prepare());
  TRY(impl->load_initial(true));
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Status Executor::feed(ValueId input, const Tensor& data) {
  const Value& value = impl_->graph->values[input];
  if (data.type() != value.type)
    return Error{Errc::bad_input, "input '" + escaped(value.name) + "' is " + to_string(data.type()) + "; expected " + to_string(value.type)};
  if (impl_->address(input) == nullptr) return {};   // nothing reads it
  return impl_->write(input, data);
}

Status Executor::step(const StepNames& names, const StepOptions& options, const std::function<Status(std::int64_t)>& feed_micro) {
  TRY(impl_->set_hyper(names.lr, options.lr));
  TRY(impl_->set_hyper(names.step, options.step));
  for (std::int64_t k = 0; k < options.micro_batches; ++k) {
    if (feed_micro) TRY(feed_micro(k));
    TRY(impl_->set_hyper(names.micro, k));
    const auto random_step = static_cast<std::uint64_t>((options.step - 1) * options.micro_batches + k + 1);
    TRY(impl_->launch_range(true, static_cast<std::int32_t>(k), options.seed, random_step, options.samples));
  }
  TRY(impl_->launch_range(false, 0, options.seed, static_cast<std::uint64_t>(options.step), options.samples));
  return impl_->device->synchronize();
}

Status Executor::run_forward(std::uint64_t seed, std::uint64_t step) {
  TRY(impl_->launch_range(true, 0, seed, step, nullptr));
  TRY(impl_->launch_range(false, 0, seed, step, nullptr));
  return impl_->device->synchronize();
}

Result<Tensor> Executor::read(ValueId value) const {
  const void* source = impl_->address(value);
  const Value& v = impl_->graph->values[value];
  if (source == nullptr) return v.data.defined() ? Result<Tensor>(v.data) : Error{Errc::bug, "'" + v.name + "' is not materialized"};
  Tensor t(v.type.dtype, v.type.shape);
  TRY(impl_->device->download(t.mutable_data(), source, t.bytes()));
  return t;
}

Status Executor::write(ValueId state, const Tensor& data) {
  const Value& value = impl_->graph->values[state];
  if (data.type() != value.type)
    return Error{Errc::bad_input, "'" + escaped(value.name) + "' is " + to_string(data.type()) + "; expected " + to_string(value.type)};
  CHECK(impl_->address(state) != nullptr, "write to a value without memory");
  return impl_->write(state, data);
}

Result<double> Executor::read_scalar(ValueId value) const { return TRY(read(value)).at(0); }

Status Executor::reset() { return impl_->load_initial(false); }

void Executor::poison() {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(impl_->plan->arena_bytes), std::byte{0xff});
  if (bytes.empty()) return;
  CHECK(impl_->device->upload(impl_->blocks[static_cast<int>(Place::arena)], bytes.data(), bytes.size()).ok(), "poisoning the arena");
}

std::int64_t Executor::measured_peak_bytes() const { return impl_->device->peak_bytes(); }

}  // namespace gradloom
