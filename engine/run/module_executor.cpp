#include "engine/run/module_executor.h"

#include <algorithm>
#include <optional>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/run/prepared_kernels.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

bool draws(const Graph& graph, const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [&](const PlanStep& step) { return graph.nodes[step.node].op->has(kRandom); });
}

}  // namespace

Result<std::unique_ptr<ModuleExecutor>> ModuleExecutor::create(const Graph& graph, const Plan& plan,
                                                               Device& device,
                                                               const std::vector<ValueId>& sources) {
  CHECK(plan.first_backward_step >= 0, "a plan in two parts");
  for (const PlanStep& step : plan.steps)
    if (step.stream != 0)
      return Error{Errc::device, "a module's plan with copies to the host: it is for whole steps"};
  std::unique_ptr<ModuleExecutor> executor(new ModuleExecutor(graph, plan, device));
  executor->queued_ = device.info().queued;
  if (executor->queued_ && draws(graph, plan)) TRY(executor->make_random());
  TRY(executor->load_constants());
  executor->place_buffers(sources);
  TRY(executor->prepare());
  return executor;
}

ModuleExecutor::~ModuleExecutor() {
  steps_.clear();
  if (constants_ != nullptr) device_.release(constants_);
  if (random_ != nullptr) device_.release(random_);
  if (sent_ != nullptr) device_.release(sent_);
  if (replays_ != nullptr) device_.release(replays_);
}

Status ModuleExecutor::make_random() {
  random_ = static_cast<kernels::RandomState*>(TRY(device_.allocate(sizeof *random_)));
  sent_ = static_cast<kernels::RandomState*>(
      TRY(device_.allocate((kUnderWay + kRecordings) * sizeof *sent_, Memory::pinned)));
  fences_.assign(kUnderWay, -1);
  replays_ = static_cast<Replays*>(TRY(device_.allocate(sizeof *replays_)));
  constexpr Replays kAtFirst{0, 1};
  TRY(device_.upload(replays_, &kAtFirst, sizeof kAtFirst));
  const Type count{DType::i64, {}};
  KernelRequest request{find_op("Add", "", 14), {}, "count of replays"};
  request.types.inputs = {count, count};
  request.types.outputs = {count};
  request.types.input_present = {true, true};
  request.types.output_present = {true};
  request.types.constants = {nullptr, nullptr};
  request.types.target = plan_.target;
  add_ = std::move(TRY(device_.prepare({request})).front());
  return {};
}

// Where the kernels of a call read its random state.
Result<const kernels::RandomState*> ModuleExecutor::random_of(const Part& part, const ModuleMemory& memory,
                                                              bool recorded) {
  if (!queued_) return &memory.random;
  if (random_ == nullptr) return nullptr;  // none of them does
  if (memory.recorded) return memory.drawn;
  return recorded ? record_random(part, memory) : send_random(memory);
}

// What is sent must stay until it is there.
Result<const kernels::RandomState*> ModuleExecutor::send_random(const ModuleMemory& memory) {
  const std::size_t slot = calls_++ % kUnderWay;
  if (fences_[slot] >= 0) TRY(device_.wait(fences_[slot]));
  sent_[slot] = memory.random;
  TRY(device_.copy(Queue::compute, random_, sent_ + slot, sizeof *random_));
  fences_[slot] = TRY(device_.fence());
  return random_;
}

// Each replay sends what the call sent, with a step that counts on. The backward of a forward that was not recorded comes here too: it has
// that forward's step, however often it is replayed.
Result<const kernels::RandomState*> ModuleExecutor::record_random(const Part& part,
                                                                  const ModuleMemory& memory) {
  if (recordings_ == kRecordings)
    return Error{Errc::usage, "a module that draws random numbers can be recorded " +
                                  std::to_string(kRecordings) + " times: open another one"};
  kernels::RandomState* const kept = sent_ + kUnderWay + recordings_++;
  *kept = memory.random;
  if (part.forward) {
    if (!recorded_step_) recorded_step_ = memory.random.step;
    kept->step = *recorded_step_;
  }
  TRY(device_.copy(Queue::compute, memory.drawn, kept, sizeof *kept));
  if (part.forward) {
    TRY(add(&replays_->count, &replays_->one));
    TRY(add(&memory.drawn->step, &replays_->count));
  }
  return memory.drawn;
}

Status ModuleExecutor::add(void* to, const void* count) {
  const void* const inputs[] = {to, count};
  return device_.launch(*add_, {inputs, &to, nullptr, nullptr}, -1);
}

Status ModuleExecutor::load_constants() {
  if (plan_.constant_bytes > 0)
    constants_ =
        static_cast<std::byte*>(TRY(device_.allocate(static_cast<std::size_t>(plan_.constant_bytes))));
  for (ValueId v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    if (value.producer != kNone || plan_.buffer_of[v] < 0 || value.role != Role::constant) continue;
    const std::int64_t offset = plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])].offset;
    TRY(value.data.visit([&](const std::byte* piece, std::size_t from, std::size_t bytes) -> Result<bool> {
      TRY(device_.upload(constants_ + offset + from, piece, bytes));
      return true;
    }));
  }
  return {};
}

void ModuleExecutor::place_buffers(const std::vector<ValueId>& sources) {
  for (const Buffer& b : plan_.buffers) {
    const Operand::Base base = b.place == Place::arena      ? Operand::Base::arena
                               : b.place == Place::constant ? Operand::Base::constant
                                                            : Operand::Base::none;
    buffers_.push_back({base, base == Operand::Base::none ? 0 : b.offset});
  }
  read_.assign(sources.size(), false);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::int32_t buffer = sources[i] == kNone ? -1 : plan_.buffer_of[sources[i]];
    if (buffer < 0) continue;
    buffers_[static_cast<std::size_t>(buffer)] = {Operand::Base::source, static_cast<std::int64_t>(i)};
    read_[i] = true;
  }
  // The first result in a buffer has its memory; others are copied from there, as those that the plan keeps elsewhere.
  std::vector<bool> taken(plan_.buffers.size(), false);
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    const auto buffer = static_cast<std::size_t>(plan_.buffer_of[graph_.outputs[i]]);
    if (plan_.buffers[buffer].place == Place::result && !taken[buffer]) {
      taken[buffer] = true;
      buffers_[buffer] = {Operand::Base::result, static_cast<std::int64_t>(i)};
    } else {
      copies_.push_back({i, operand(graph_.outputs[i]), byte_size(graph_.type(graph_.outputs[i]))});
    }
  }
}

ModuleExecutor::Operand ModuleExecutor::operand(ValueId v) const {
  if (v == kNone || plan_.buffer_of[v] < 0) return {};
  Operand place = buffers_[static_cast<std::size_t>(plan_.buffer_of[v])];
  place.offset = plan_.offset_in_buffer(v);
  return place;
}

Status ModuleExecutor::prepare() {
  std::vector<std::unique_ptr<PreparedKernel>> kernels = TRY(prepared_kernels(graph_, plan_, device_));
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Node& node = graph_.nodes[plan_.steps[i].node];
    Step step{std::move(kernels[i]), operands_.size(), operands_.size() + node.inputs.size(),
              operands_.size() + node.inputs.size() + node.outputs.size()};
    for (const ValueId in : node.inputs) operands_.push_back(operand(in));
    for (const ValueId out : node.outputs) operands_.push_back(operand(out));
    operands_.push_back(plan_.steps[i].workspace_bytes > 0
                            ? Operand{Operand::Base::arena, plan_.steps[i].workspace_offset}
                            : Operand{});
    steps_.push_back(std::move(step));
  }
  addresses_.resize(operands_.size());
  return {};
}

std::byte* ModuleExecutor::resolve(const Operand& operand, const ModuleMemory& memory) const {
  const auto number = static_cast<std::size_t>(operand.at);
  switch (operand.base) {
    case Operand::Base::arena: return memory.arena + operand.at + operand.offset;
    case Operand::Base::constant: return constants_ + operand.at + operand.offset;
    case Operand::Base::source: return memory.sources[number] + operand.offset;
    case Operand::Base::result: return memory.results[number] + operand.offset;
    case Operand::Base::none: break;
  }
  return nullptr;
}

Result<bool> ModuleExecutor::run(const Part& part, const ModuleMemory& memory) {
  const bool recorded = queued_ && TRY(device_.follow_stream(memory.stream));
  const auto work = [&]() -> Status {
    return run_steps(part, memory, TRY(random_of(part, memory, recorded)));
  };
  const Status done = work();
  if (!queued_) return done ? Result<bool>(false) : done.error();
  const Status led = device_.lead_stream(memory.stream);
  TRY(done ? led : done);
  return recorded;
}

Status ModuleExecutor::run_steps(const Part& part, const ModuleMemory& memory,
                                 const kernels::RandomState* random) {
  kernels::NoSignals no_signals;
  std::optional<kernels::ThreadWatch> threads;
  if (memory.samples != nullptr) threads.emplace();
  for (std::size_t i = part.first; i < part.last; ++i) {
    no_signals.let_through();
    const Step& s = steps_[i];
    for (std::size_t k = s.inputs; k <= s.workspace; ++k) addresses_[k] = resolve(operands_[k], memory);
    const Operands operands{addresses_.data() + s.inputs, addresses_.data() + s.outputs,
                            addresses_[s.workspace], random};
    if (!threads) {
      TRY(device_.launch(*s.kernel, operands, static_cast<std::int32_t>(i)));
      continue;
    }
    threads->begin();
    const std::int64_t start_ns = monotonic_ns();
    TRY(device_.launch(*s.kernel, operands, static_cast<std::int32_t>(i)));
    const std::int64_t end_ns = monotonic_ns();
    memory.samples->push_back({static_cast<std::int32_t>(i), 0, start_ns, end_ns - start_ns, threads->end()});
  }
  for (const Copy& copy : copies_)
    if (copy.result >= part.first_result && copy.result < part.last_result && copy.bytes > 0)
      TRY(device_.copy(Queue::compute, memory.results[copy.result], resolve(copy.from, memory), copy.bytes));
  return {};
}

Result<bool> ModuleExecutor::forward(const ModuleMemory& memory) {
  return run({true, 0, static_cast<std::size_t>(plan_.first_backward_step), 0, plan_.forward_outputs},
             memory);
}

Status ModuleExecutor::backward(const ModuleMemory& memory) {
  TRY(run({false, static_cast<std::size_t>(plan_.first_backward_step), steps_.size(), plan_.forward_outputs,
           graph_.outputs.size()},
          memory));
  return {};
}

bool ModuleExecutor::reads(std::size_t source) const { return read_[source]; }

}  // namespace gradloom
