#include "engine/run/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/preparation.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/run/blocks.h"
#include "engine/run/device_times.h"
#include "engine/run/input_slots.h"
#include "engine/run/launches.h"
#include "engine/run/row_counts.h"
#include "engine/run/step_results.h"
#include "engine/train/weight_copies.h"
#include "kernels/cpu.h"

namespace gradloom {

// Members are released from the last to the first: kernels and recordings before the memory they use.
struct Executor::Impl {
  Impl(const Graph& of, const Plan& its_plan, Device& on, const LentMemory& lent)
      : graph(&of),
        plan(&its_plan),
        device(&on),
        queued(on.info().queued),
        blocks(its_plan, on, lent),
        inputs(of, its_plan, on, blocks),
        results(of, on, blocks),
        launches(on) {
    for (const auto& [copy, parameter] : weight_copies(of))
      if (of.type(copy).shape == of.type(parameter).shape) copy_of[parameter] = copy;
  }
  ~Impl() {
    if (queued) (void)device->synchronize();  // nothing may still use the memory
  }

  const Graph* graph;
  const Plan* plan;
  Device* device;
  const bool queued;
  Blocks blocks;
  InputSlots inputs;
  StepResults results;
  Launches launches;
  RowCounts row_counts;                // on a queued device
  std::map<ValueId, ValueId> copy_of;  // 16-bit copies of parameters that are whole here
  // Shared by tensors that are views of the blocks, so that none of them takes itself for the only one.
  const std::shared_ptr<std::byte[]> viewed{new std::byte[1]};
  std::int64_t submitted = 0;  // steps submitted so far
  bool was_traced = false;     // some step
  std::string no_trace;        // why the device's is of no use

  void* address(ValueId v) const { return blocks.address(v); }

  Status create() {
    TRY(blocks.allocate(inputs.block_bytes()));
    TRY(inputs.allocate());
    TRY(results.allocate());
    TRY(launches.prepare(*graph, *plan, blocks, inputs.random()));
    if (queued) TRY(row_counts.prepare(*graph, *plan));
    return load_initial(true);
  }

  Status write(ValueId v, const Tensor& data) const {
    auto* const to = static_cast<std::byte*>(address(v));
    const auto copy = copy_of.find(v);
    return data.visit([&](const std::byte* piece, std::size_t from, std::size_t bytes) -> Result<bool> {
      if (piece != to + from) TRY(device->upload(to + from, piece, bytes));
      if (copy != copy_of.end()) TRY(write_rounded(copy->second, data.dtype(), piece, from, bytes));
      return true;
    });
  }

  // The same of the parameter's 16-bit copy, a part at a time.
  Status write_rounded(ValueId copy, DType from_type, const std::byte* piece, std::size_t from,
                       std::size_t bytes) const {
    constexpr std::size_t kPartElements = 1 << 18;
    const DType to_type = graph->type(copy).dtype;
    const std::size_t size = dtype_bytes(from_type), low_size = dtype_bytes(to_type), count = bytes / size;
    auto* const to = static_cast<std::byte*>(address(copy)) + from / size * low_size;
    std::vector<std::byte> part(std::min(count, kPartElements) * low_size);
    for (std::size_t done = 0; done < count; done += kPartElements) {
      const std::size_t elements = std::min(count - done, kPartElements);
      const auto program = conversion(from_type, to_type, static_cast<std::int64_t>(elements));
      const void* const source = piece + done * size;
      void* const rounded = part.data();
      kernels::cpu().elementwise({program.get(), &source, &rounded, nullptr});
      TRY(device->upload(to + done * low_size, part.data(), elements * low_size));
    }
    return {};
  }

  // The 16-bit copy of a parameter that lies in somebody else's memory; the copy may, too.
  Status round_lent(ValueId v) const {
    const auto copy = copy_of.find(v);
    if (queued || copy == copy_of.end() || blocks.lent(copy->second)) return {};
    const Type& type = graph->type(v);
    return write_rounded(copy->second, type.dtype, static_cast<const std::byte*>(address(v)), 0,
                         byte_size(type));
  }

  // body(offset in the plan's block of states, address, bytes) for all of it: the block, or one after the other where some are lent.
  template <class Body>
  Status for_states(const Body& body) const {
    if (!blocks.lends())
      return plan->state_bytes == 0
                 ? Status()
                 : body(0, blocks.of(Place::state), static_cast<std::size_t>(plan->state_bytes));
    for (ValueId v = 0; v < graph->values.size(); ++v) {
      if (graph->values[v].producer != kNone || plan->buffer_of[v] < 0) continue;
      const Buffer& buffer = plan->buffers[static_cast<std::size_t>(plan->buffer_of[v])];
      const std::size_t bytes = byte_size(graph->type(v));
      if (buffer.place != Place::state || bytes == 0) continue;
      TRY(body(static_cast<std::size_t>(buffer.offset), static_cast<std::byte*>(address(v)), bytes));
    }
    return {};
  }

  Status load_initial(bool constants) {
    for (ValueId v = 0; v < graph->values.size(); ++v) {
      const Value& value = graph->values[v];
      if (value.producer != kNone || plan->buffer_of[v] < 0 || !value.data.defined()) continue;
      if (blocks.lent(v)) {
        TRY(round_lent(v));
        continue;
      }
      if (value.role == Role::constant && !constants) continue;
      if (inputs.holds(v)) {
        if (!constants) continue;
        const Tensor data = TRY(value.data.loaded());
        TRY(inputs.write(v, data.data(), data.bytes()));
        continue;
      }
      TRY(write(v, value.data));
    }
    return {};
  }

  template <class T>
  Status set_hyper(ValueId v, T value) {
    return address(v) == nullptr ? Status() : inputs.write(v, &value, sizeof value);
  }

  Status set_rates(ValueId lr, const StepOptions& options) {
    if (address(lr) == nullptr || graph->type(lr).shape.empty()) return set_hyper(lr, options.lr);
    std::vector<double> table = options.options;
    if (table.empty()) {
      table.assign(static_cast<std::size_t>(element_count(graph->type(lr).shape)), std::nan(""));
      for (std::size_t at = 0; at < table.size(); at += optimizer_inputs::kColumns) table[at] = options.lr;
    }
    return inputs.write(lr, table.data(), table.size() * sizeof(double));
  }

  // The inputs of micro-batch k are on their way.
  Status send_micro(const StepNames& names, const StepOptions& options, std::int64_t k) {
    TRY(set_rates(names.lr, options));
    TRY(set_hyper(names.step, options.step));
    TRY(set_hyper(names.micro, k));
    const std::int64_t of_all =
        ((options.step - 1) * options.micro_batches + k) * options.ranks + options.rank;
    return send({options.seed, static_cast<std::uint64_t>(of_all + 1)});
  }

  Status send(const kernels::RandomState& random) {
    TRY(inputs.send(random));
    if (row_counts.any()) launches.set_rows(row_counts.rows([&](ValueId v) { return inputs.sent(v); }));
    return {};
  }

  Status submit(const StepNames& names, const StepOptions& options,
                const std::function<Status(std::int64_t)>& feed_micro) {
    const bool device_times = queued && options.timed, one_range = options.micro_batches == 1 && queued;
    StepOutcome outcome;
    outcome.step = options.step;
    if (device_times) TRY(prepare_times(outcome));
    const bool by_events = device_times && !traced(outcome);
    const bool record = queued && options.record && submitted > 0 && !by_events;
    if (record && !row_counts.any()) TRY(launches.record_missing(launches.recorded(), one_range));
    if (options.timed && !queued)
      outcome.samples.reserve(launches.size() * static_cast<std::size_t>(options.micro_batches));
    StepOutcome* const timed = options.timed ? &outcome : nullptr;
    outcome.start_ns = monotonic_ns();
    for (std::int64_t k = 0; k < options.micro_batches; ++k) {
      if (feed_micro) TRY(feed_micro(k));
      TRY(send_micro(names, options, k));
      if (record && row_counts.any() && launches.launched())
        TRY(launches.record_missing(launches.recorded(), one_range));
      const auto micro = static_cast<std::int32_t>(k);
      TRY(by_events ? launches.launch_range_by_events(true, micro, outcome)
                    : launches.run_micro(launches.recorded(), one_range, micro, timed));
    }
    inputs.set_random_step(static_cast<std::uint64_t>(options.step));
    TRY(by_events ? launches.launch_range_by_events(false, 0, outcome)
                  : launches.run_once(launches.recorded(), one_range, timed));
    ++submitted;
    TRY(results.push(names, std::move(outcome)));
    // What else ranks exchange comes after what the step does on the host.
    if (!device_times && queued && !launches.host_meets_ranks()) return {};
    TRY(results.finish_newest());
    return device_times && !by_events ? read_times() : Status();
  }

  // Numbers of either sign between 0.01 and 2 in every float type: products are faster with zeros, of which fresh memory is
  // full, than with what training gives them.
  Status fill_arena() {
    auto* const arena = blocks.of(Place::arena);
    const auto bytes = static_cast<std::size_t>(plan->arena_bytes);
    std::vector<std::uint16_t> piece(std::min(bytes, std::size_t{1} << 20) / 2);
    std::uint32_t random = 1;
    for (std::uint16_t& word : piece) {
      random = random * 1664525u + 1013904223u;
      word = static_cast<std::uint16_t>((random >> 16 & 0x83ff) | 0x3c00);
    }
    std::size_t filled = piece.size() * 2;
    if (filled > 0) TRY(device->upload(arena, piece.data(), filled));
    for (; filled > 0 && filled < bytes; filled *= 2)
      TRY(device->copy(Queue::compute, arena + filled, arena, std::min(filled, bytes - filled)));
    return {};
  }

  static bool traced(const StepOutcome& outcome) { return outcome.times_from == "trace"; }

  // The device is idle, and times what comes, if it can.
  Status prepare_times(StepOutcome& outcome) {
    TRY(results.finish_all());
    const bool traced = no_trace.empty() && TRY(device->trace(true));
    outcome.times_from =
        traced ? "trace" : "events: " + (no_trace.empty() ? device->why_no_trace() : no_trace);
    if (traced && !std::exchange(was_traced, true))
      launches.forget_recordings();  // the trace knows none of it
    return {};
  }

  Status read_times() {
    std::vector<Activity> activities = TRY(device->collect_trace());
    TRY(device->trace(false));
    add_device_times(
        std::move(activities), launches.size(), [&](std::int32_t i) { return launches.in_micro(i); },
        results.newest(), [&](std::int32_t i) { return launches.queue_of(i); });
    StepOutcome& outcome = results.newest();
    if (!outcome.samples.empty() || !traced(outcome)) return {};
    no_trace = "the device's trace knew no kernel of the plan";
    outcome.times_from = "none: " + no_trace;
    return {};
  }
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const Graph& graph, const Plan& plan, Device& device,
                                                   const LentMemory* lent) {
  auto impl = std::make_unique<Impl>(graph, plan, device, lent == nullptr ? LentMemory() : *lent);
  TRY(impl->create());
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Status Executor::feed(ValueId input, const Tensor& data) {
  const Value& value = impl_->graph->values[input];
  if (data.type() != value.type)
    return Error{Errc::bad_input, "input '" + escaped(value.name) + "' is " + to_string(data.type()) +
                                      "; expected " + to_string(value.type)};
  if (impl_->address(input) == nullptr) return {};  // nothing reads it
  return impl_->inputs.write(input, data.data(), data.bytes());
}

Status Executor::submit(const StepNames& names, const StepOptions& options,
                        const std::function<Status(std::int64_t)>& feed_micro) {
  return impl_->submit(names, options, feed_micro);
}

std::size_t Executor::pending() const { return impl_->results.size(); }
std::size_t Executor::depth() const { return impl_->queued && !impl_->launches.host_meets_ranks() ? 1 : 0; }

Result<StepOutcome> Executor::collect() {
  CHECK(pending() > 0, "collect without a submitted step");
  return impl_->results.pop();
}

Result<StepOutcome> Executor::step(const StepNames& names, const StepOptions& options,
                                   const std::function<Status(std::int64_t)>& feed_micro) {
  CHECK(pending() == 0, "step while others are pending");
  TRY(submit(names, options, feed_micro));
  return collect();
}

Status Executor::observe(const StepNames& names, const StepOptions& options,
                         const std::function<Status(std::int64_t)>& feed_micro, const Observer& observer) {
  CHECK(pending() == 0, "observe while steps are pending");
  // The kernels of a micro-batch (all but `once`), or those after the last one. False: the observer ended it.
  const auto run = [&](bool micro_range, std::int64_t k) -> Result<bool> {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(impl_->launches.size()); ++i) {
      if (impl_->launches.in_micro(i) != micro_range) continue;
      TRY(impl_->device->synchronize());
      if (!TRY(observer(i, k, false))) return false;
      TRY(impl_->launches.launch(i));
      TRY(impl_->device->synchronize());
      if (!TRY(observer(i, k, true))) return false;
    }
    return true;
  };
  for (std::int64_t k = 0; k < options.micro_batches; ++k) {
    if (feed_micro) TRY(feed_micro(k));
    TRY(impl_->send_micro(names, options, k));
    if (!TRY(run(true, k))) return {};
  }
  impl_->inputs.set_random_step(static_cast<std::uint64_t>(options.step));
  TRY(run(false, options.micro_batches - 1));
  ++impl_->submitted;
  return {};
}

Status Executor::run_forward(std::uint64_t seed, std::uint64_t step) {
  TRY(impl_->send({seed, step}));
  TRY(impl_->launches.launch_range(true, 0, nullptr));
  TRY(impl_->launches.launch_range(false, 0, nullptr));
  return impl_->device->synchronize();
}

Result<Tensor> Executor::read(ValueId value) const {
  const void* source = impl_->address(value);
  const Value& v = impl_->graph->values[value];
  if (byte_size(v.type) == 0) return Tensor(v.type.dtype, v.type.shape);
  if (source == nullptr)
    return v.data.defined() ? v.data.loaded() : Error{Errc::bug, "'" + v.name + "' is not materialized"};
  Tensor t(v.type.dtype, v.type.shape);
  const auto part = impl_->plan->pieces.find(value);
  if (part == impl_->plan->pieces.end() || part->second.dense()) {
    TRY(impl_->device->download(t.mutable_data(), source, t.bytes()));
    return t;
  }
  for (std::int64_t row = 0; row < part->second.rows; ++row)
    TRY(impl_->device->download(static_cast<std::byte*>(t.mutable_data()) + row * part->second.row_bytes,
                                static_cast<const std::byte*>(source) + row * part->second.pitch_bytes,
                                static_cast<std::size_t>(part->second.row_bytes)));
  return t;
}

Result<Tensor> Executor::view(ValueId value) const {
  auto* const memory = static_cast<std::byte*>(impl_->address(value));
  const Value& v = impl_->graph->values[value];
  const auto part = impl_->plan->pieces.find(value);
  const bool rows = part != impl_->plan->pieces.end() && !part->second.dense();
  if (impl_->queued || memory == nullptr || byte_size(v.type) == 0 || rows) return read(value);
  return Tensor::over(v.type, {impl_->viewed, memory});
}

bool Executor::holds(ValueId state) const { return impl_->address(state) != nullptr; }

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
  CHECK(pending() == 0, "tune while steps are pending");
  TRY(impl_->fill_arena());
  TRY(impl_->launches.tune(candidates));
  TRY(impl_->device->synchronize());
  return reset();
}

Result<std::vector<std::byte>> Executor::states() const {
  std::vector<std::byte> states(static_cast<std::size_t>(impl_->plan->state_bytes));
  TRY(impl_->for_states([&](std::size_t offset, const std::byte* from, std::size_t bytes) {
    return impl_->device->download(states.data() + offset, from, bytes);
  }));
  return states;
}

Status Executor::restore(const std::vector<std::byte>& states) {
  CHECK(pending() == 0, "restore while steps are pending");
  CHECK(states.size() == static_cast<std::size_t>(impl_->plan->state_bytes), "states of another plan");
  return impl_->for_states([&](std::size_t offset, std::byte* to, std::size_t bytes) {
    return impl_->device->upload(to, states.data() + offset, bytes);
  });
}

Status Executor::reset() { return impl_->load_initial(false); }

Status Executor::load(const LentMemory& lent) {
  for (const auto& [v, memory] : lent.states)
    if (const Value& value = impl_->graph->values[v]; value.data.defined()) TRY(impl_->write(v, value.data));
  return {};
}

void Executor::poison(std::uint8_t byte) {
  for (const auto& [place, size] :
       {std::pair(Place::arena, impl_->plan->arena_bytes), std::pair(Place::host, impl_->plan->host_bytes)}) {
    const std::vector<std::byte> bytes(static_cast<std::size_t>(size), std::byte{byte});
    if (bytes.empty()) continue;
    CHECK(impl_->device->upload(impl_->blocks.of(place), bytes.data(), bytes.size()).ok(),
          "poisoning the memory");
  }
}

LentMemory Executor::lend(const std::vector<std::pair<ValueId, ValueId>>& values) const {
  LentMemory lent;
  for (const auto& [theirs, ours] : values)
    if (void* const memory = impl_->address(ours)) lent.states[theirs] = static_cast<std::byte*>(memory);
  lent.arena = impl_->blocks.of(Place::arena);
  lent.arena_bytes = impl_->plan->arena_bytes;
  return lent;
}

const std::byte* Executor::memory(Place place) const { return impl_->blocks.of(place); }

std::vector<Implementations> Executor::implementations() const { return impl_->launches.implementations(); }

std::int64_t Executor::measured_peak_bytes() const { return impl_->device->peak_bytes(); }

}  // namespace gradloom
