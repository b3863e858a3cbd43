#include "engine/run/executor.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

constexpr std::size_t kSlots = 2;  // batches on their way: one in use, one going up
constexpr std::size_t kScalars = StepNames::kReported.size();
constexpr double StepOutcome::*kReported[kScalars] = {&StepOutcome::loss, &StepOutcome::grad_norm,
                                                      &StepOutcome::loss_scale, &StepOutcome::skipped};
constexpr std::size_t kScalarBytes = 64;  // per scalar and slot
constexpr std::size_t kOutcomes = 4;      // result slots; more than steps can be pending

}  // namespace

struct Executor::Impl {
  const Graph* graph;
  const Plan* plan;
  Device* device;
  bool queued = false;
  std::byte* blocks[5] = {};         // by Place
  kernels::RandomState host_random;  // where kernels of the CPU read it
  const kernels::RandomState* random = &host_random;

  struct Step {
    std::unique_ptr<PreparedKernel> kernel;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;
    bool micro = true;
  };
  std::vector<Step> steps;

  // Queued devices: contents of the input block (then the random state) are written to a pinned slot, go up
  // to a staging block while the step before runs, and are copied to where the kernels read them.
  struct Slot {
    std::byte* pinned = nullptr;
    std::byte* staging = nullptr;
    Fence used = -1;        // until then its contents are needed
    std::vector<bool> fed;  // by ValueId: written since the slot was taken
  };
  Slot slots[kSlots];
  std::size_t slot = 0;
  bool slot_ready = false;
  std::byte* results = nullptr;  // pinned: kOutcomes * kScalars scalars

  struct Pending {
    StepOutcome outcome;
    Fence done = 0;
    std::size_t result = 0;
    const Value* scalars[kScalars] = {};
    bool finished = false;  // outcome is complete
  };
  std::deque<Pending> pending;
  std::size_t next_result = 0;
  std::int64_t last_end_ns = 0;

  std::int64_t submitted = 0;  // steps submitted so far

  ~Impl() {
    if (queued) (void)device->synchronize();  // nothing may still use the memory
    untraced = Recordings();
    traced = Recordings();
    for (Slot& s : slots) {
      if (s.pinned) device->release(s.pinned);
      if (s.staging) device->release(s.staging);
    }
    if (results) device->release(results);
    for (std::byte* block : blocks)
      if (block) device->release(block);
  }

  // ---- memory -------------------------------------------------------------------------------------------------------------------

  void* address(ValueId v) const {
    if (v == kNone || plan->buffer_of[v] < 0) return nullptr;
    const Buffer& b = plan->buffers[static_cast<std::size_t>(plan->buffer_of[v])];
    return blocks[static_cast<int>(b.place)] + b.offset;
  }

  // Inputs and the random state behind them: what goes up before each micro-batch.
  std::size_t upload_bytes() const {
    return static_cast<std::size_t>(plan->input_bytes) + sizeof(kernels::RandomState);
  }

  Result<std::byte*> take(std::size_t bytes, Memory memory = Memory::device) const {
    return static_cast<std::byte*>(TRY(device->allocate(bytes, memory)));
  }

  Status allocate() {
    const std::pair<Place, std::int64_t> sizes[] = {
        {Place::arena, plan->arena_bytes},
        {Place::state, plan->state_bytes},
        {Place::input, queued ? static_cast<std::int64_t>(upload_bytes()) : plan->input_bytes},
        {Place::constant, plan->constant_bytes}};
    for (const auto& [place, bytes] : sizes)
      if (bytes > 0) blocks[static_cast<int>(place)] = TRY(take(static_cast<std::size_t>(bytes)));
    if (!queued) return {};
    for (Slot& s : slots) {
      s.pinned = TRY(take(upload_bytes(), Memory::pinned));
      s.staging = TRY(take(upload_bytes()));
      std::memset(s.pinned, 0, upload_bytes());
      s.fed.assign(graph->values.size(), false);
    }
    results = TRY(take(kOutcomes * kScalars * kScalarBytes, Memory::pinned));
    random = reinterpret_cast<const kernels::RandomState*>(blocks[static_cast<int>(Place::input)] +
                                                           plan->input_bytes);
    return {};
  }

  Status prepare() {
    std::vector<KernelRequest> requests;
    for (const PlanStep& from : plan->steps) {
      const Node& node = graph->nodes[from.node];
      requests.push_back({node.op, node_types(*graph, node, plan->target, plan->dnn_library), node.name});
    }
    std::vector<std::unique_ptr<PreparedKernel>> kernels = TRY(device->prepare(requests));
    steps.reserve(plan->steps.size());
    for (std::size_t i = 0; i < plan->steps.size(); ++i) {
      const PlanStep& from = plan->steps[i];
      const Node& node = graph->nodes[from.node];
      Step step;
      step.kernel = std::move(kernels[i]);
      for (ValueId in : node.inputs) step.inputs.push_back(address(in));
      for (ValueId out : node.outputs) step.outputs.push_back(address(out));
      if (from.workspace_bytes > 0)
        step.workspace = blocks[static_cast<int>(Place::arena)] + from.workspace_offset;
      step.micro = from.micro;
      steps.push_back(std::move(step));
    }
    return {};
  }

  Status write(ValueId v, const Tensor& data) const {
    return device->upload(address(v), data.data(), data.bytes());
  }

  Status load_initial(bool constants) const {
    for (ValueId v = 0; v < graph->values.size(); ++v) {
      const Value& value = graph->values[v];
      if (value.producer != kNone || plan->buffer_of[v] < 0 || !value.data.defined()) continue;
      if (value.role == Role::constant && !constants) continue;
      if (is_input(v)) {
        if (constants) TRY(write_input(v, value.data.data(), value.data.bytes()));
        continue;
      }
      TRY(write(v, value.data));
    }
    return {};
  }

  // ---- inputs -------------------------------------------------------------------------------------------------------------------

  // Of a value that is fed; views of one share its buffer and are not.
  bool is_input(ValueId v) const {
    return queued && graph->values[v].producer == kNone && plan->buffer_of[v] >= 0 &&
           plan->buffers[static_cast<std::size_t>(plan->buffer_of[v])].place == Place::input;
  }

  Status write_input(ValueId v, const void* data, std::size_t bytes) const {
    Impl& self = const_cast<Impl&>(*this);
    if (!is_input(v)) return device->upload(address(v), data, bytes);
    TRY(self.take_slot());
    const Buffer& b = plan->buffers[static_cast<std::size_t>(plan->buffer_of[v])];
    std::memcpy(slots[slot].pinned + b.offset, data, bytes);
    self.slots[slot].fed[v] = true;
    return {};
  }

  template <class T>
  Status set_hyper(ValueId v, T value) const {
    return address(v) == nullptr ? Status() : write_input(v, &value, sizeof value);
  }

  // The slot may be written once what it held has been copied on.
  Status take_slot() {
    if (slot_ready) return {};
    Slot& s = slots[slot];
    if (s.used >= 0) TRY(device->wait(s.used));
    std::fill(s.fed.begin(), s.fed.end(), false);
    slot_ready = true;
    return {};
  }

  // Inputs that nobody fed keep what they had.
  void carry_over() {
    Slot& s = slots[slot];
    const Slot& previous = slots[(slot + kSlots - 1) % kSlots];
    for (ValueId v = 0; v < graph->values.size(); ++v) {
      if (!is_input(v) || s.fed[v]) continue;
      const Buffer& b = plan->buffers[static_cast<std::size_t>(plan->buffer_of[v])];
      std::memcpy(s.pinned + b.offset, previous.pinned + b.offset, static_cast<std::size_t>(b.bytes));
    }
  }

  // The inputs of the next launches are on their way.
  Status send_inputs(std::uint64_t seed, std::uint64_t random_step) {
    if (!queued) {
      host_random = {seed, random_step};
      return {};
    }
    TRY(take_slot());
    carry_over();
    Slot& s = slots[slot];
    const kernels::RandomState state{seed, random_step};
    std::memcpy(s.pinned + plan->input_bytes, &state, sizeof state);
    TRY(device->copy(Queue::upload, s.staging, s.pinned, upload_bytes()));
    TRY(device->order(Queue::upload, Queue::compute));
    TRY(device->copy(Queue::compute, blocks[static_cast<int>(Place::input)], s.staging, upload_bytes()));
    s.used = TRY(device->fence());
    slot = (slot + 1) % kSlots;
    slot_ready = false;
    return {};
  }

  // ---- launches -----------------------------------------------------------------------------------------------------------------

  Status launch(std::size_t i) const {
    const Step& s = steps[i];
    return device->launch(*s.kernel, {s.inputs.data(), s.outputs.data(), s.workspace, random},
                          static_cast<std::int32_t>(i));
  }

  // Launches the steps of the micro-batch or those after the last one. `timed`: where what was measured goes,
  // or null: on the CPU the kernels, on a queued device the launches themselves.
  Status launch_range(bool micro_range, std::int32_t micro_index, StepOutcome* timed) const {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].micro != micro_range) continue;
      if (timed == nullptr) {
        TRY(launch(i));
        continue;
      }
      const std::int64_t start_ns = monotonic_ns();
      TRY(launch(i));
      const std::int64_t end_ns = monotonic_ns();
      const auto plan_step = static_cast<std::int32_t>(i);
      if (queued)
        timed->activities.push_back(
            {Activity::Kind::api, plan_step, 0, start_ns, end_ns, 0, "launch", micro_index});
      else
        timed->samples.push_back({plan_step, micro_index, start_ns, end_ns - start_ns});
    }
    return {};
  }

  std::int32_t first_of(bool micro_range) const {
    const auto first =
        std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.micro == micro_range; });
    return first == steps.end() ? -1 : static_cast<std::int32_t>(first - steps.begin());
  }

  // ---- recordings -----------------------------------------------------------------------------------------------------------------

  // One graph for the whole step, or with accumulation one per micro-batch and one for
  // what comes after the last.
  struct Recordings {
    std::unique_ptr<Recording> whole, micro, once;
  };

  Recordings untraced, traced;

  // Makes what is missing. The first step is never recorded: it lets libraries choose their algorithms.
  Status record_missing(Recordings& r, bool one_range) {
    if (one_range && r.whole == nullptr)
      r.whole = TRY(device->record([&]() -> Status {
        TRY(launch_range(true, 0, nullptr));
        return launch_range(false, 0, nullptr);
      }));
    if (!one_range && r.micro == nullptr)
      r.micro = TRY(device->record([&] { return launch_range(true, 0, nullptr); }));
    if (!one_range && r.once == nullptr)
      r.once = TRY(device->record([&] { return launch_range(false, 0, nullptr); }));
    return {};
  }

  // `first`: plan step of its first launch.
  static Status run(Recording& recording, std::int32_t first, std::int32_t micro_index, StepOutcome* timed) {
    const std::int64_t start_ns = monotonic_ns();
    TRY(recording.run());
    if (timed != nullptr)
      timed->activities.push_back({Activity::Kind::api, first, 0, start_ns, monotonic_ns(), 0,
                                   "launch of the recorded step", micro_index});
    return {};
  }

  // ---- steps --------------------------------------------------------------------------------------------------------------------

  Status submit(const StepNames& names, const StepOptions& options,
                const std::function<Status(std::int64_t)>& feed_micro) {
    const bool device_times = queued && options.timed, one_range = options.micro_batches == 1 && queued;
    if (device_times) {
      for (Pending& p : pending) TRY(finish(p));
      TRY(device->trace(true));
      traced = Recordings();  // the trace knows the nodes of graphs that were recorded under it
    }
    Recordings& recorded = device_times ? traced : untraced;
    if (queued && options.record && submitted > 0) TRY(record_missing(recorded, one_range));
    Pending next;
    next.outcome.step = options.step;
    if (options.timed && !queued)
      next.outcome.samples.reserve(steps.size() * static_cast<std::size_t>(options.micro_batches));
    StepOutcome* const timed = options.timed ? &next.outcome : nullptr;
    next.outcome.start_ns = monotonic_ns();
    for (std::int64_t k = 0; k < options.micro_batches; ++k) {
      if (feed_micro) TRY(feed_micro(k));
      TRY(set_hyper(names.lr, options.lr));
      TRY(set_hyper(names.step, options.step));
      TRY(set_hyper(names.micro, k));
      TRY(send_inputs(options.seed,
                      static_cast<std::uint64_t>((options.step - 1) * options.micro_batches + k + 1)));
      if (one_range && recorded.whole)
        TRY(run(*recorded.whole, first_of(true), 0, timed));
      else if (!one_range && recorded.micro)
        TRY(run(*recorded.micro, first_of(true), static_cast<std::int32_t>(k), timed));
      else
        TRY(launch_range(true, static_cast<std::int32_t>(k), timed));
    }
    if (!queued) host_random.step = static_cast<std::uint64_t>(options.step);
    if (!one_range && recorded.once)
      TRY(run(*recorded.once, first_of(false), 0, timed));
    else if (!one_range || !recorded.whole)
      TRY(launch_range(false, 0, timed));
    ++submitted;
    TRY(fetch_scalars(names, next));
    next.done = TRY(device->fence());
    pending.push_back(std::move(next));
    if (!device_times && queued) return {};
    TRY(finish(pending.back()));
    return device_times ? time_by_device(pending.back().outcome) : Status();
  }

  // What is reported of the step, on its way to the host behind it.
  Status fetch_scalars(const StepNames& names, Pending& p) {
    p.result = next_result++ % kOutcomes;
    for (std::size_t i = 0; i < kScalars; ++i) {
      const ValueId id = names.*StepNames::kReported[i];
      if (id == kNone || address(id) == nullptr) continue;
      p.scalars[i] = &graph->values[id];
      if (queued)
        TRY(device->copy(Queue::compute, result_address(p, i), address(id), byte_size(p.scalars[i]->type)));
      else
        p.outcome.*kReported[i] = scalar(p, i, address(id));
    }
    return {};
  }

  std::byte* result_address(const Pending& p, std::size_t i) const {
    return results + (p.result * kScalars + i) * kScalarBytes;
  }

  static double scalar(const Pending& p, std::size_t i, const void* from) {
    double f64 = 0;
    float f32 = 0;
    switch (p.scalars[i]->type.dtype) {
      case DType::f64: std::memcpy(&f64, from, sizeof f64); return f64;
      case DType::f32: std::memcpy(&f32, from, sizeof f32); return static_cast<double>(f32);
      default: {
        Tensor t(p.scalars[i]->type.dtype, {});
        std::memcpy(t.mutable_data(), from, t.bytes());
        return t.at(0);
      }
    }
  }

  Status finish(Pending& p) {
    if (p.finished) return {};
    p.outcome.end_ns = TRY(device->wait(p.done));
    for (std::size_t i = 0; queued && i < kScalars; ++i)
      if (p.scalars[i] != nullptr) p.outcome.*kReported[i] = scalar(p, i, result_address(p, i));
    p.outcome.start_ns = std::max(p.outcome.start_ns, last_end_ns);
    p.outcome.end_ns =
        std::max(p.outcome.end_ns,
                 p.outcome.start_ns);  // the device's clock and the host's agree within a microsecond
    last_end_ns = p.outcome.end_ns;
    p.finished = true;
    return {};
  }

  // The n-th run of a plan step within one optimizer step belongs to micro-batch n.
  Status time_by_device(StepOutcome& outcome) {
    std::vector<Activity> activities = TRY(device->collect_trace());
    TRY(device->trace(false));
    std::stable_sort(activities.begin(), activities.end(),
                     [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
    // One plan step may launch several kernels: a new micro-batch starts when a smaller plan step comes.
    std::int32_t micro_index = 0, last = -1;
    for (const Activity& a : activities) {
      if (a.kind == Activity::Kind::api) continue;
      if (a.kind == Activity::Kind::lost)
        return Error{Errc::device, "the device's trace lost " + std::to_string(a.bytes) + " records"};
      if (a.kind != Activity::Kind::kernel || a.plan_step < 0 ||
          static_cast<std::size_t>(a.plan_step) >= steps.size()) {
        outcome.activities.push_back(a);
        continue;
      }
      const bool in_micro = steps[static_cast<std::size_t>(a.plan_step)].micro;
      if (a.plan_step < last && in_micro) ++micro_index;
      last = a.plan_step;
      const KernelSample sample{a.plan_step, in_micro ? micro_index : 0, a.start_ns, a.end_ns - a.start_ns};
      KernelSample* const same = outcome.samples.empty() ? nullptr : &outcome.samples.back();
      if (same != nullptr && same->plan_step == sample.plan_step && same->micro == sample.micro)
        same->duration_ns += sample.duration_ns;
      else
        outcome.samples.push_back(sample);
    }
    return {};
  }
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const Graph& graph, const Plan& plan, Device& device) {
  auto impl = std::make_unique<Impl>();
  impl->graph = &graph;
  impl->plan = &plan;
  impl->device = &device;
  impl->queued = device.info().queued;
  TRY(impl->allocate());
  TRY(impl->prepare());
  TRY(impl->load_initial(true));
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Status Executor::feed(ValueId input, const Tensor& data) {
  const Value& value = impl_->graph->values[input];
  if (data.type() != value.type)
    return Error{Errc::bad_input, "input '" + escaped(value.name) + "' is " + to_string(data.type()) +
                                      "; expected " + to_string(value.type)};
  if (impl_->address(input) == nullptr) return {};  // nothing reads it
  return impl_->write_input(input, data.data(), data.bytes());
}

Status Executor::submit(const StepNames& names, const StepOptions& options,
                        const std::function<Status(std::int64_t)>& feed_micro) {
  return impl_->submit(names, options, feed_micro);
}

std::size_t Executor::pending() const { return impl_->pending.size(); }
std::size_t Executor::depth() const { return impl_->queued ? 1 : 0; }

Result<StepOutcome> Executor::collect() {
  CHECK(!impl_->pending.empty(), "collect without a submitted step");
  TRY(impl_->finish(impl_->pending.front()));
  StepOutcome outcome = std::move(impl_->pending.front().outcome);
  impl_->pending.pop_front();
  return outcome;
}

Result<StepOutcome> Executor::step(const StepNames& names, const StepOptions& options,
                                   const std::function<Status(std::int64_t)>& feed_micro) {
  CHECK(impl_->pending.empty(), "step while others are pending");
  TRY(submit(names, options, feed_micro));
  return collect();
}

Status Executor::run_forward(std::uint64_t seed, std::uint64_t step) {
  TRY(impl_->send_inputs(seed, step));
  TRY(impl_->launch_range(true, 0, nullptr));
  TRY(impl_->launch_range(false, 0, nullptr));
  return impl_->device->synchronize();
}

Result<Tensor> Executor::read(ValueId value) const {
  const void* source = impl_->address(value);
  const Value& v = impl_->graph->values[value];
  if (byte_size(v.type) == 0) return Tensor(v.type.dtype, v.type.shape);
  if (source == nullptr)
    return v.data.defined() ? Result<Tensor>(v.data)
                            : Error{Errc::bug, "'" + v.name + "' is not materialized"};
  Tensor t(v.type.dtype, v.type.shape);
  TRY(impl_->device->download(t.mutable_data(), source, t.bytes()));
  return t;
}

Status Executor::write(ValueId state, const Tensor& data) {
  const Value& value = impl_->graph->values[state];
  if (data.type() != value.type)
    return Error{Errc::bad_input, "'" + escaped(value.name) + "' is " + to_string(data.type()) +
                                      "; expected " + to_string(value.type)};
  CHECK(impl_->address(state) != nullptr, "write to a value without memory");
  return impl_->write(state, data);
}

Result<double> Executor::read_scalar(ValueId value) const { return TRY(read(value)).at(0); }

Status Executor::tune(std::int32_t candidates) {
  CHECK(impl_->pending.empty(), "tune while steps are pending");
  for (const Impl::Step& s : impl_->steps)
    TRY(impl_->device->tune(*s.kernel, {s.inputs.data(), s.outputs.data(), s.workspace, impl_->random},
                            candidates));
  TRY(impl_->device->synchronize());
  return reset();
}

Result<std::vector<std::byte>> Executor::states() const {
  std::vector<std::byte> states(static_cast<std::size_t>(impl_->plan->state_bytes));
  if (!states.empty()) TRY(impl_->device->download(states.data(), memory(Place::state), states.size()));
  return states;
}

Status Executor::restore(const std::vector<std::byte>& states) {
  CHECK(impl_->pending.empty(), "restore while steps are pending");
  CHECK(states.size() == static_cast<std::size_t>(impl_->plan->state_bytes), "states of another plan");
  if (states.empty()) return {};
  return impl_->device->upload(impl_->blocks[static_cast<int>(Place::state)], states.data(), states.size());
}

Status Executor::reset() { return impl_->load_initial(false); }

void Executor::poison() {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(impl_->plan->arena_bytes), std::byte{0xff});
  if (bytes.empty()) return;
  CHECK(impl_->device->upload(impl_->blocks[static_cast<int>(Place::arena)], bytes.data(), bytes.size()).ok(),
        "poisoning the arena");
}

const std::byte* Executor::memory(Place place) const { return impl_->blocks[static_cast<int>(place)]; }

std::int64_t Executor::measured_peak_bytes() const { return impl_->device->peak_bytes(); }

}  // namespace gradloom
