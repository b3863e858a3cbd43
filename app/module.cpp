#include "app/module.h"

#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <unordered_map>

#include "app/job.h"
#include "app/parse_words.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "kernels/cpu.h"
#include "kernels/library_kernels.h"

namespace gradloom {
namespace {

// At the arena's begin, before what the plan lays out: which forward the rest is of. A backward uses it up.
struct ArenaHead {
  static constexpr std::uint64_t kWaiting = 0x6d6f6f6c64617267;  // "gradloom"
  std::uint64_t waiting = 0;
  const void* module = nullptr;
  std::uint64_t seed = 0, step = 0;
};
static_assert(sizeof(ArenaHead) <= kAlignmentBytes);

struct ModuleOptions {
  RecipeFlags recipe;
  std::string mode = "train", gradients = "on";
  ModuleSpec spec;
};

void declare(CLI::App& app, ModuleOptions& options) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  options.recipe.declare(app, false);
  app.add_option("--mode", options.mode)->check(CLI::IsMember({"train", "eval"}));
  app.add_option("--gradients", options.gradients)->check(CLI::IsMember({"on", "off"}));
  const auto list = [&](const char* flag, std::vector<std::string>& given) {
    app.add_option(flag, given)->take_all()->allow_extra_args(false);
  };
  list("--input-grad", options.spec.input_gradients);
  list("--output-grad", options.spec.output_gradients);
  list("--output", options.spec.outputs);
}

Result<Recipe> read_words(const std::string& path, const std::vector<std::string>& words, ModuleSpec& spec) {
  CLI::App app;
  ModuleOptions options;
  declare(app, options);
  TRY(parse_words(app, words));
  options.recipe.set_model(path);
  spec = options.spec;
  spec.training = options.mode == "train";
  spec.gradients = options.gradients == "on";
  Recipe recipe = TRY(options.recipe.resolve());
  recipe.load_params.clear();  // what else does not concern a module is not looked at
  return recipe;
}

std::string where(ModuleKind kind, const ModuleValue& value) {
  constexpr const char* kNames[] = {"input", "output", "parameter", "statistic"};
  return std::string(kNames[static_cast<std::size_t>(kind)]) + " '" + escaped(value.name) + "'";
}

// The address of a value in a call: there, and aligned for its elements.
Result<std::byte*> address(const void* const* list, std::size_t i, ModuleKind kind, const ModuleValue& value,
                           const char* what) {
  const void* const at = list == nullptr ? nullptr : list[i];
  if (at == nullptr && byte_size(value.type) > 0)
    return Error{Errc::usage, std::string("no address for ") + what + where(kind, value)};
  if (reinterpret_cast<std::uintptr_t>(at) % dtype_bytes(value.type.dtype) != 0)
    return Error{Errc::usage, std::string("the address for ") + what + where(kind, value) +
                                  " is not a multiple of " + std::to_string(dtype_bytes(value.type.dtype)) +
                                  " bytes"};
  return static_cast<std::byte*>(const_cast<void*>(at));
}

}  // namespace

// A device that modules compute on. All that are open on one GPU have one context, and one queue, which a thread at a time may use; on
// the CPU each has its own.
class ModuleDevice {
 public:
  static Result<std::shared_ptr<ModuleDevice>> open(const std::string& id);
  Device& device() { return *device_; }
  bool queued() const { return queued_; }
  // On a GPU: by the arena's address the forward whose backward is to come in it, of any module. REQUIRES the lock.
  struct Waiting {
    const void* module = nullptr;
    kernels::RandomState random;
    bool recorded = false;
  };
  std::unordered_map<const void*, Waiting> waiting;
  [[nodiscard]] std::unique_lock<std::mutex> lock() {
    return queued_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }

 private:
  explicit ModuleDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), queued_(device_->info().queued) {}

  std::unique_ptr<Device> device_;
  bool queued_;
  std::mutex mutex_;
};

Result<std::shared_ptr<ModuleDevice>> ModuleDevice::open(const std::string& id) {
  if (id == "cpu") return std::shared_ptr<ModuleDevice>(new ModuleDevice(make_cpu_device()));
  static std::mutex opening;
  static std::map<std::string, std::weak_ptr<ModuleDevice>> opened;
  const std::lock_guard lock(opening);
  if (const std::shared_ptr<ModuleDevice> there = opened[id].lock()) return there;
  std::unique_ptr<Device> device = TRY(open_device(id));
  std::shared_ptr<ModuleDevice> made(new ModuleDevice(std::move(device)));
  opened[id] = made;
  return made;
}

// A plan with its kernels.
struct ModelModule::Variant {
  // Where a call has the memory of a source of the graph, or of one of its results.
  struct Slot {
    ModuleKind kind = ModuleKind::input;
    std::size_t number = 0;
    bool gradient = false;
  };
  CompiledModule compiled;
  std::unique_ptr<ModuleExecutor> executor;
  std::vector<Slot> sources, results;
  bool has_backward() const { return !compiled.gradients.made.empty(); }
};

ModelModule::~ModelModule() {
  if (device_ == nullptr) return;
  const auto alone = device_->lock();
  std::erase_if(device_->waiting, [&](const auto& row) { return row.second.module == this; });
  forward_alone_.reset();
  whole_.reset();
}

const Graph& ModelModule::model() const { return prepared_->model.graph; }

Result<std::unique_ptr<ModelModule>> ModelModule::open(const std::string& path,
                                                       const std::vector<std::string>& words) {
  return make(path, words);
}

Result<std::unique_ptr<ModelModule>> ModelModule::open_bytes(std::string_view bytes,
                                                             const std::vector<std::string>& words) {
  const int fd = memfd_create("gradloom-model", MFD_CLOEXEC);
  if (fd < 0) return Error{Errc::limit, std::string("no memory for a model's file: ") + std::strerror(errno)};
  const auto write_all = [&] {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  };
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  auto module =
      write_all() ? make(path, words)
                  : Error{Errc::limit, std::string("no memory for a model's file: ") + std::strerror(errno)};
  ::close(fd);
  if (module) return module;
  Error error = std::move(module).error();
  for (std::size_t at; (at = error.message.find(path)) != std::string::npos;)
    error.message.replace(at, path.size(), "the model's bytes");
  return error;
}

Result<std::unique_ptr<ModelModule>> ModelModule::make(const std::string& path,
                                                       const std::vector<std::string>& words) {
  std::unique_ptr<ModelModule> module(new ModelModule());
  const Recipe recipe = TRY(read_words(path, words, module->spec_));
  module->prepared_ = TRY(prepare_model(recipe));
  module->notes_ = module->prepared_->model.notes;
  module->device_ = TRY(ModuleDevice::open(recipe.device));
  TRY(module->compile_variant(module->spec_.gradients));
  std::vector<std::string> trained;
  for (const ModuleGradients::Made& made : module->whole_->compiled.gradients.made)
    trained.push_back(made.of);
  TRY(check_apart(module->prepared_->model, trained));
  module->describe();
  const std::vector<std::string>& notes = module->whole_->compiled.notes;
  module->notes_.insert(module->notes_.end(), notes.begin(), notes.end());
  for (Value& v : module->prepared_->model.graph.values)  // the caller has them
    if (v.role == Role::parameter || v.role == Role::state) v.data = Tensor();
  return module;
}

Status ModelModule::compile_variant(bool gradients) {
  auto v = std::make_unique<Variant>();
  ModuleSpec spec = spec_;
  spec.gradients = gradients;
  v->compiled = TRY(compile_module(prepared_->model.graph, prepared_->options, spec));
  Graph& graph = v->compiled.graph;
  std::vector<ValueId> sources;
  std::unordered_map<std::string, Variant::Slot> known;
  std::unordered_map<std::string_view, ValueId> ids;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    ids[graph.values[id].name] = id;
    if (graph.values[id].role == Role::parameter || graph.values[id].role == Role::state)
      graph.values[id].data = Tensor();
  }
  const auto add = [&](ValueId id, Variant::Slot slot) {
    sources.push_back(id);
    v->sources.push_back(slot);
  };
  const Graph& model = prepared_->model.graph;
  const auto add_all = [&](ModuleKind kind, const std::vector<ValueId>& of) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      const std::string& name = model.values[of[i]].name;
      const auto at = ids.find(name);
      known[name] = {kind, i, true};
      add(at == ids.end() ? kNone : at->second, {kind, i, false});
    }
  };
  std::vector<ValueId> statistics;
  for (ValueId id = 0; id < model.values.size(); ++id)
    if (model.values[id].role == Role::state) statistics.push_back(id);
  add_all(ModuleKind::input, model.inputs);
  add_all(ModuleKind::parameter, model.parameters);
  add_all(ModuleKind::statistic, statistics);
  for (const ModuleGradients::Given& given : v->compiled.gradients.given)
    add(given.gradient, {ModuleKind::output, given.output, true});
  for (std::size_t i = 0; i < v->compiled.plan.forward_outputs; ++i)
    v->results.push_back({ModuleKind::output, i, false});
  for (const ModuleGradients::Made& made : v->compiled.gradients.made)
    v->results.push_back(known.at(made.of));
  const auto alone = device_->lock();
  v->executor = TRY(ModuleExecutor::create(graph, v->compiled.plan, device_->device(), sources));
  (gradients == spec_.gradients ? whole_ : forward_alone_) = std::move(v);
  return {};
}

// The values as the caller sees them.
void ModelModule::describe() {
  const Variant& v = *whole_;
  const Graph& model = prepared_->model.graph;
  const auto list = [&](ModuleKind kind) -> std::vector<ModuleValue>& {
    return values_[static_cast<std::size_t>(kind)];
  };
  for (const ValueId id : model.inputs)
    list(ModuleKind::input).push_back({model.values[id].name, model.type(id)});
  for (const ValueId id : model.parameters)
    list(ModuleKind::parameter).push_back({model.values[id].name, model.type(id)});
  for (const Value& value : model.values)
    if (value.role == Role::state) list(ModuleKind::statistic).push_back({value.name, value.type});
  std::vector<std::string> names = spec_.outputs;
  if (names.empty())
    for (const ValueId id : model.outputs) names.push_back(model.values[id].name);
  for (std::size_t i = 0; i < names.size(); ++i)
    list(ModuleKind::output).push_back({names[i], v.compiled.graph.type(v.compiled.graph.outputs[i])});
  for (std::size_t i = 0; i < v.sources.size(); ++i) {
    ModuleValue& value = list(v.sources[i].kind)[v.sources[i].number];
    if (v.sources[i].gradient)
      value.gradient = true;
    else
      value.used = v.executor->reads(i);
  }
  for (const Variant::Slot& slot : v.results)
    if (slot.gradient) list(slot.kind)[slot.number].gradient = true;
}

// REQUIRES the lock.
Result<ModelModule::Variant*> ModelModule::variant(bool no_grad) {
  if (!no_grad || !whole_->has_backward()) return whole_.get();
  if (!forward_alone_) TRY(compile_variant(false));
  return forward_alone_.get();
}

Result<std::int64_t> ModelModule::arena_bytes(bool no_grad) {
  const std::lock_guard lock(mutex_);
  return TRY(variant(no_grad))->compiled.plan.arena_bytes + arena_alignment();
}

// Of the arena's head, too. The host cannot write into the memory of a GPU: there the device has a list of what else is in it, and it has a
// recorded call's random state alone.
std::int64_t ModelModule::arena_alignment() const {
  return device_->queued() ? static_cast<std::int64_t>(kernels::kLibraryBoundaryBytes) : kAlignmentBytes;
}

// A forward begins in the arena (waits: nothing), or has ended and its backward is to come. REQUIRES the lock.
void ModelModule::note_forward(const ModuleCall& call, std::optional<Forward> waits) {
  const auto alone = device_->lock();
  if (!device_->queued())
    *static_cast<ArenaHead*>(call.arena) =
        waits ? ArenaHead{ArenaHead::kWaiting, this, call.seed, call.step} : ArenaHead{};
  else if (waits)
    device_->waiting[call.arena] = {this, waits->random, waits->recorded};
  else
    device_->waiting.erase(call.arena);
}

// The forward that waits in the arena; nothing: there is none. REQUIRES the lock.
std::optional<ModelModule::Forward> ModelModule::waiting_forward(const ModuleCall& call) const {
  const auto alone = device_->lock();
  if (device_->queued()) {
    const auto there = device_->waiting.find(call.arena);
    const bool ours = there != device_->waiting.end() && there->second.module == this;
    return ours ? std::optional(Forward{there->second.random, there->second.recorded}) : std::nullopt;
  }
  const auto& head = *static_cast<const ArenaHead*>(call.arena);
  if (head.waiting != ArenaHead::kWaiting || head.module != this) return std::nullopt;
  return Forward{{head.seed, head.step}};
}

// What the executor takes, of what a call has. REQUIRES the lock.
Result<ModuleMemory> ModelModule::memory(const Variant& v, const ModuleCall& call, bool backward) const {
  ModuleMemory memory;
  const std::int64_t alignment = arena_alignment();
  if (call.arena == nullptr ||
      reinterpret_cast<std::uintptr_t>(call.arena) % static_cast<std::uintptr_t>(alignment) != 0)
    return Error{Errc::usage, call.arena == nullptr ? std::string("no address for the arena")
                                                    : "the arena's address is not a multiple of " +
                                                          std::to_string(alignment) + " bytes"};
  memory.arena = static_cast<std::byte*>(call.arena) + alignment;
  if (device_->queued()) memory.drawn = static_cast<kernels::RandomState*>(call.arena);
  memory.random = {call.seed, call.step};
  memory.stream = call.stream;
  const void* const* const given[] = {call.inputs, nullptr, call.parameters, call.statistics};
  for (std::size_t i = 0; i < v.sources.size(); ++i) {
    const Variant::Slot& slot = v.sources[i];
    const ModuleValue& value = values(slot.kind)[slot.number];
    std::byte* at = nullptr;
    if (slot.gradient && backward)
      at = TRY(address(call.output_gradients, slot.number, slot.kind, value, "the gradient of "));
    else if (!slot.gradient && v.executor->reads(i))
      at = TRY(address(given[static_cast<std::size_t>(slot.kind)], slot.number, slot.kind, value, ""));
    memory.sources.push_back(at);
  }
  for (const Variant::Slot& slot : v.results) {
    const ModuleValue& value = values(slot.kind)[slot.number];
    std::byte* at = nullptr;
    if (slot.gradient && backward)
      at = TRY(address(slot.kind == ModuleKind::input ? call.input_gradients : call.parameter_gradients,
                       slot.number, slot.kind, value, "the gradient of "));
    else if (!slot.gradient && !backward)
      at = TRY(address(call.outputs, slot.number, slot.kind, value, ""));
    memory.results.push_back(at);
  }
  return memory;
}

void ModelModule::watch(ModuleWatch watch) {
  const std::lock_guard lock(mutex_);
  watch_ = std::move(watch);
}

// Whether the caller recorded it. REQUIRES the lock.
Result<bool> ModelModule::run(Variant& v, ModuleMemory with, const ModuleCall& call, bool backward) {
  const auto alone = device_->lock();
  device_->device().set_strict_libraries(prepared_->recipe.strict_libraries);
  const auto compute = [&]() -> Result<bool> {
    if (!backward) return v.executor->forward(with);
    TRY(v.executor->backward(with));
    return with.recorded;
  };
  if (!watch_.called) return compute();
  WatchedCall watched{&v.compiled, backward, call.arena};
  if (watch_.timed() && !device_->queued()) {  // the host's times are no kernel's there
    watched.samples.reserve(v.compiled.plan.steps.size());
    with.samples = &watched.samples;
  }
  watched.start_ns = monotonic_ns();
  const bool recorded = TRY(compute());
  watched.end_ns = monotonic_ns();
  if (!recorded) watch_.called(std::move(watched));  // else it has not run
  return recorded;
}

Status ModelModule::forward(const ModuleCall& call) {
  const std::lock_guard lock(mutex_);
  Variant& v = *TRY(variant(call.no_grad));
  ModuleMemory with = TRY(memory(v, call, false));
  note_forward(call, std::nullopt);
  const bool recorded = TRY(run(v, std::move(with), call, false));
  if (!call.no_grad && v.has_backward()) note_forward(call, Forward{{call.seed, call.step}, recorded});
  return {};
}

Status ModelModule::backward(const ModuleCall& call) {
  const std::lock_guard lock(mutex_);
  Variant& v = *whole_;
  if (!v.has_backward())
    return Error{Errc::usage, "the module has no backward: nothing in it has a gradient"};
  ModuleMemory with = TRY(memory(v, call, true));
  const std::optional<Forward> forward = waiting_forward(call);
  if (!forward)
    return Error{Errc::usage, "the arena holds no forward of this module that waits for its backward"};
  const auto [seed, step] = forward->random;
  if (seed != call.seed || step != call.step)
    return Error{Errc::usage, "backward takes seed and step of its forward: " + std::to_string(seed) +
                                  " and " + std::to_string(step)};
  note_forward(call, std::nullopt);
  with.recorded = forward->recorded;
  TRY(run(v, std::move(with), call, true));
  return {};
}

}  // namespace gradloom
