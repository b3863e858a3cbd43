// Device over the C interface of a plugin. Statuses become Errors; kernels that launchers queue keep the
// first failure until launch() returns it. Elementwise programs of all kernels of a plan are generated, those
// not yet known compiled in one go.
#include "engine/device/gpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>

#include "engine/base/text.h"
#include "engine/device/gpu_ranks.h"
#include "engine/device/host_calls.h"
#include "engine/device/kernel_cache.h"
#include "kernels/gpu/program_source.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

struct Program {
  GpuModule* module = nullptr;
  std::int32_t index = 0;
  unsigned blocks = 1, threads = 1;
};

class GpuPrepared final : public PreparedKernel {
 public:
  GpuPrepared(Kernel kernel, std::string node) : kernel_(std::move(kernel)), node_(std::move(node)) {}
  const std::string& name() const override { return kernel_.name; }
  std::size_t workspace_bytes() const override { return kernel_.workspace_bytes; }
  Implementations implementations() const override { return implementations_; }
  const Kernel& kernel() const { return kernel_; }
  const std::string& node() const { return node_; }
  // What the host does instead of it; null: nothing.
  HostCall* host_call() const { return host_call_.get(); }
  void set_host_call(std::unique_ptr<HostCall> call) { host_call_ = std::move(call); }
  bool host_meets_ranks() const override {
    return host_call_ != nullptr && host_call_->work().meets_ranks && !host_call_->by_library();
  }
  // What a launch tells, one after the other from 0, and that it told no more than `count`.
  void tell(std::size_t number, const char* kernel, const GpuImplementation& told) const {
    if (number < implementations_.size()) {
      const Implementation& known = implementations_[number];
      if (known.kernel == kernel && known.library == told.library && known.detail == told.detail) return;
    }
    implementations_.resize(number);
    implementations_.push_back({kernel, escaped(told.library), escaped(told.detail), told.failed != 0});
  }
  void told(std::size_t count) const {
    if (count < implementations_.size()) implementations_.resize(count);
  }

 private:
  Kernel kernel_;
  std::string node_;
  std::unique_ptr<HostCall> host_call_;
  mutable Implementations implementations_;
};

constexpr const char* kLibraryKernels[] = {
#define GRADLOOM_NAME(name, Args) #name,
    GRADLOOM_LIBRARY_KERNELS(GRADLOOM_NAME)
#undef GRADLOOM_NAME
};

class GpuDevice;

class GpuRecording final : public Recording {
 public:
  GpuRecording(GpuDevice& device, GpuGraph* graph) : device_(device), graph_(graph) {}
  ~GpuRecording() override;
  Status run() override;

 private:
  GpuDevice& device_;
  GpuGraph* graph_;
};

class GpuDevice final : public Device {
 public:
  GpuDevice(std::shared_ptr<const Plugin> plugin, GpuContext* context, DeviceInfo info, std::string uuid)
      : plugin_(std::move(plugin)),
        api_(plugin_->table()),
        context_(context),
        info_(std::move(info)),
        launcher_(&GpuDevice::queue, this, &GpuDevice::offer),
        tuner_(&GpuDevice::tune_one, this, &GpuDevice::offer),
        uuid_(std::move(uuid)) {}

  ~GpuDevice() override {
    for (GpuModule* module : modules_) api_.unload(context_, module);
    for (const auto& [memory, block] : live_) (void)api_.release(context_, memory, block.pinned);
    api_.close(context_);
  }

  DeviceInfo info() const override { return info_; }

  Result<void*> allocate(std::size_t bytes, Memory memory) override {
    const bool pinned = memory == Memory::pinned;
    void* result = nullptr;
    TRY(check(
        api_.allocate(context_, std::max<std::size_t>(bytes, 64), pinned, &result),
        "allocating " + bytes_text(static_cast<double>(bytes)) + (pinned ? " of pinned host memory" : "")));
    live_[result] = {bytes, pinned};
    if (pinned) {
      pinned_bytes_ += static_cast<std::int64_t>(bytes);
    } else {
      live_bytes_ += static_cast<std::int64_t>(bytes);
      peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    }
    return result;
  }

  void release(void* memory) override {
    const auto it = live_.find(memory);
    if (it == live_.end()) return;
    (it->second.pinned ? pinned_bytes_ : live_bytes_) -= static_cast<std::int64_t>(it->second.bytes);
    (void)api_.release(context_, memory, it->second.pinned);  // a lost device has lost its memory too
    live_.erase(it);
  }

  Status copy(Queue queue, void* target, const void* source, std::size_t bytes) override {
    if (bytes == 0) return {};
    TRY(check(api_.mark(context_, -1, "copy"), "copying"));  // not part of the step launched last
    return check(api_.copy(context_, stream_of(queue), target, source, bytes),
                 "copying " + bytes_text(static_cast<double>(bytes)));
  }

  Status transfer(Queue queue, void* target, const void* source, std::size_t bytes,
                  std::int32_t plan_step) override {
    if (bytes == 0) return {};
    TRY(check(api_.mark(context_, plan_step, "copy"), "copying"));
    TRY(check(api_.copy(context_, stream_of(queue), target, source, bytes),
              "copying " + bytes_text(static_cast<double>(bytes))));
    return check(api_.mark(context_, -1, ""), "copying");
  }

  Result<std::vector<std::unique_ptr<PreparedKernel>>> prepare(
      const std::vector<KernelRequest>& requests) override {
    std::vector<std::unique_ptr<GpuPrepared>> prepared;
    std::vector<std::pair<const kernels::EwProgram*, kernels::gpu::GeneratedKernel>> wanted;
    for (const KernelRequest& r : requests) {
      const std::string where = "node '" + escaped(r.node) + "'";
      if (r.op->gpu == nullptr) return Error{Errc::device, where + ": " + r.op->name + " has no GPU kernel"};
      NodeTypes types = r.types;
      types.target = kernels::Target::gpu;
      auto kernel = prepare_kernel(*r.op, types);
      if (!kernel) return with_context(kernel.error(), where);
      for (const auto& program : kernel->programs)
        wanted.emplace_back(program.get(), kernels::gpu::generate(*program));
      prepared.push_back(std::make_unique<GpuPrepared>(std::move(kernel).value(), r.node));
      if (auto work = TRY(host_work(*r.op, types)))
        prepared.back()->set_host_call(
            std::make_unique<HostCall>(host_calls_, std::move(*work), prepared.back()->name()));
    }
    TRY(compile(wanted));
    TRY(give_host_memory(prepared));
    return std::vector<std::unique_ptr<PreparedKernel>>(std::make_move_iterator(prepared.begin()),
                                                        std::make_move_iterator(prepared.end()));
  }

  Status launch(const PreparedKernel& kernel, const Operands& o, std::int32_t plan_step) override {
    const auto& prepared = static_cast<const GpuPrepared&>(kernel);
    const Kernel& k = prepared.kernel();
    if (prepared.host_call() != nullptr) return call_host(prepared, o, plan_step, GPU_COMPUTE);
    TRY(check(api_.mark(context_, plan_step, k.name.c_str()), k.name));
    launching_ = &prepared;
    told_ = 0;
    k.run({o.inputs, o.outputs, o.workspace, o.random, launcher_});
    launching_ = nullptr;
    prepared.told(told_);
    const GpuStatus status = std::exchange(failed_, GPU_OK);
    if (const std::string refused = std::exchange(refused_, ""); !refused.empty())
      return Error{Errc::device, info_.id + ": node '" + escaped(prepared.node()) + "' (" + k.name +
                                     "): " + refused + " (an error with --strict-libraries on)"};
    return check(status, k.name);
  }

  Status launch_exchange(const PreparedKernel& kernel, const Operands& o, std::int32_t plan_step) override {
    const auto& prepared = static_cast<const GpuPrepared&>(kernel);
    CHECK(prepared.host_call() != nullptr, "a kernel of the device beside its compute queue");
    return call_host(prepared, o, plan_step, GPU_EXCHANGE);
  }

  Status meet_ranks() override {
    ranks_ = TRY(gradloom::meet_ranks(*plugin_, context_, uuid_));
    host_calls_.set_library(ranks_.joined);
    return {};
  }

  void set_strict_libraries(bool strict) override { strict_ = strict; }

  Status tune(const PreparedKernel& kernel, const Operands& o, std::int32_t candidates) override {
    const Kernel& k = static_cast<const GpuPrepared&>(kernel).kernel();
    candidates_ = candidates;
    k.run({o.inputs, o.outputs, o.workspace, o.random, tuner_});
    const GpuStatus status = std::exchange(failed_, GPU_OK);
    return check(status, "choosing algorithms for " + k.name);
  }

  Status set_algorithms(const Algorithms& algorithms) override {
    for (const auto& [problem, algorithm] : algorithms) {
      GpuAlgorithm a{};
      const auto bytes = bytes_from_hex(algorithm.bytes);
      if (problem.size() >= sizeof a.problem || !bytes || bytes->size() > sizeof a.bytes) continue;
      problem.copy(a.problem, problem.size());
      std::copy(bytes->begin(), bytes->end(), a.bytes);
      a.size = static_cast<std::int32_t>(bytes->size());
      a.time_ns = algorithm.time_ns;
      TRY(check(api_.set_algorithm(context_, &a), "setting an algorithm"));
    }
    return {};
  }

  Result<Algorithms> algorithms() override {
    std::int32_t count = 0;
    TRY(check(api_.algorithms(context_, nullptr, 0, &count), "reading algorithms"));
    std::vector<GpuAlgorithm> rows(static_cast<std::size_t>(std::max(count, 0)));
    TRY(check(api_.algorithms(context_, rows.data(), count, &count), "reading algorithms"));
    Algorithms result;
    for (const GpuAlgorithm& a : rows) {
      const auto size = static_cast<std::size_t>(std::clamp(a.size, 0, std::int32_t{sizeof a.bytes}));
      result[escaped({a.problem, strnlen(a.problem, sizeof a.problem)})] = {hex_from_bytes({a.bytes, size}),
                                                                            a.time_ns};
    }
    return result;
  }

  Status order(Queue before, Queue after) override {
    const std::int32_t event = next_event();
    TRY(check(api_.record_event(context_, stream_of(before), event), "recording an event"));
    return check(api_.wait_event(context_, stream_of(after), event), "waiting for an event");
  }

  Result<Event> make_event() override {
    Event event = 0;
    if (!free_events_.empty()) {
      event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
    TRY(check(api_.make_event(context_, &event), "making an event"));
    return event;
  }
  void release_event(Event event) override { free_events_.push_back(event); }
  Status note(Event event, Queue queue) override {
    return check(api_.record_event(context_, stream_of(queue), event), "recording an event");
  }
  Status wait_for(Event event, Queue queue) override {
    return check(api_.wait_event(context_, stream_of(queue), event), "waiting for an event");
  }

  Result<bool> follow_stream(void* stream) override {
    std::int32_t recorded = 0;
    TRY(check(api_.join_stream(context_, stream, 1, &recorded), "waiting for the caller's stream"));
    return recorded != 0;
  }
  Status lead_stream(void* stream) override {
    std::int32_t recorded = 0;
    TRY(check(api_.join_stream(context_, stream, 0, &recorded), "letting the caller's stream wait"));
    return host_calls_.take_failure();
  }

  Result<Fence> fence() override {
    // Fences take events in turn; the one that had this event before was waited for long
    // ago or is waited for now.
    const Fence fence = next_fence_++;
    const auto event = static_cast<std::int32_t>(fence % kFences);
    if (fence >= kFences) TRY(wait(fence - kFences));
    TRY(check(api_.record_event(context_, GPU_COMPUTE, event), "recording an event"));
    reached_ns_[event] = -1;
    return fence;
  }

  Result<std::int64_t> wait(Fence fence) override {
    const auto event = static_cast<std::int32_t>(fence % kFences);
    if (fence + kFences < next_fence_) return monotonic_ns();  // passed long ago
    if (reached_ns_[event] < 0) {
      const bool late = api_.query_event(context_, event) == GPU_OK;
      if (ranks_.joined) TRY(wait_for_ranks(*plugin_, context_, event, info_.id));
      TRY(check(api_.synchronize_event(context_, event), "waiting for the device"));
      reached_ns_[event] = time_of(fence, late);
    }
    TRY(host_calls_.take_failure());
    return reached_ns_[event];
  }

  Result<std::unique_ptr<Recording>> record(const std::function<Status()>& work) override {
    TRY(check(api_.begin_capture(context_), "recording the step"));
    const Status done = work();
    GpuGraph* graph = nullptr;
    const GpuStatus ended = api_.end_capture(context_, &graph);
    std::unique_ptr<Recording> recording =
        graph != nullptr ? std::make_unique<GpuRecording>(*this, graph) : nullptr;
    if (!done) return done.error();
    TRY(check(ended, "recording the step"));
    return recording;
  }

  Result<bool> trace(bool on) override {
    const GpuStatus status = api_.set_trace(context_, on ? GPU_TRACE_KERNELS : GPU_TRACE_OFF);
    if (status == GPU_DEVICE_LOST) return check(status, "switching the trace").error();
    host_calls_.trace(on && status == GPU_OK);
    if (status == GPU_OK) return true;
    why_no_trace_ = escaped(api_.message(context_));
    return false;
  }
  std::string why_no_trace() const override { return why_no_trace_; }
  Result<std::int64_t> elapsed_ns(Event from, Event to) override {
    std::int64_t ns = 0;
    TRY(check(api_.elapsed_ns(context_, from, to, &ns), "reading times of events"));
    return ns;
  }

  Result<std::vector<Activity>> collect_trace() override {
    std::vector<Activity> result;
    std::vector<GpuActivity> rows(4096);
    for (;;) {
      std::int32_t count = 0;
      TRY(check(api_.read_trace(context_, 1, rows.data(), static_cast<std::int32_t>(rows.size()), &count),
                "reading the trace"));
      for (std::int32_t i = 0; i < count; ++i) {
        const GpuActivity& r = rows[static_cast<std::size_t>(i)];
        const auto kind = r.kind >= 0 && r.kind <= GPU_ACTIVITY_LOST ? static_cast<Activity::Kind>(r.kind)
                                                                     : Activity::Kind::api;
        result.push_back({kind, r.plan_step, r.stream, r.start_ns, r.end_ns, r.bytes,
                          std::string(r.name, strnlen(r.name, sizeof r.name))});
      }
      if (count == static_cast<std::int32_t>(rows.size())) continue;
      const std::vector<Activity> of_host = host_calls_.take_activities();
      result.insert(result.end(), of_host.begin(), of_host.end());
      return result;
    }
  }

  std::int64_t peak_bytes() const override { return peak_bytes_; }
  std::int64_t pinned_bytes() const override { return pinned_bytes_; }

  Status run_graph(GpuGraph* graph) {
    return check(api_.run_graph(context_, graph), "running the recorded step");
  }
  void destroy_graph(GpuGraph* graph) { api_.destroy_graph(context_, graph); }

 private:
  // Events 0..kFences-1 are fences, the others order queues.
  static constexpr std::int64_t kFences = 32;

  // When a fence that has just been waited for was reached. A host that really waited knows; one that came
  // late asks the device how long after the last such fence it was.
  std::int64_t time_of(Fence fence, bool late) {
    std::int64_t reached_ns = monotonic_ns();
    const bool event_kept = last_fence_ >= 0 && next_fence_ <= last_fence_ + kFences;
    std::int64_t since_ns = 0;
    if (late && event_kept && fence > last_fence_ &&
        api_.elapsed_ns(context_, static_cast<std::int32_t>(last_fence_ % kFences),
                        static_cast<std::int32_t>(fence % kFences), &since_ns) == GPU_OK)
      reached_ns = std::min(reached_ns, last_fence_ns_ + since_ns);
    if (fence > last_fence_) {
      last_fence_ = fence;
      last_fence_ns_ = reached_ns;
    }
    return reached_ns;
  }

  struct Block {
    std::size_t bytes;
    bool pinned;
  };

  Status call_host(const GpuPrepared& prepared, const Operands& o, std::int32_t plan_step,
                   std::int32_t stream) {
    TRY(check(api_.mark(context_, plan_step, prepared.name().c_str()), prepared.name()));
    GpuImplementation told{};
    if (prepared.host_call()->by_library()) {
      TRY(check(prepared.host_call()->queue_by_library(api_, context_, stream, o), prepared.name()));
      api_.implementation(context_, &told);
      prepared.tell(0, prepared.name().c_str(), told);
      return {};
    }
    const bool no_library = prepared.host_call()->work().on_device.kind == DeviceExchange::Kind::none;
    const char* const what = prepared.host_call()->work().meets_ranks ? "which exchanges" : "which computes";
    const std::string detail = std::string("through pinned memory of the host, ") + what +
                               (ranks_.why_not.empty() || no_library ? "" : ": " + ranks_.why_not);
    detail.copy(told.detail, sizeof told.detail - 1);
    told.failed = ranks_.failed && !no_library ? 1 : 0;
    prepared.tell(0, prepared.name().c_str(), told);
    if (strict_ && told.failed != 0)
      return Error{Errc::device, info_.id + ": node '" + escaped(prepared.node()) + "' (" + prepared.name() +
                                     "): " + ranks_.why_not + " (an error with --strict-libraries on)"};
    return check(prepared.host_call()->queue(api_, context_, stream, o, plan_step), prepared.name());
  }

  // One block for all kernels of a plan, which goes with the last of them.
  Status give_host_memory(const std::vector<std::unique_ptr<GpuPrepared>>& prepared) {
    std::int64_t bytes = 0;
    for (const auto& kernel : prepared)
      if (kernel->host_call() != nullptr) bytes = std::max(bytes, kernel->host_call()->work().bytes);
    if (bytes == 0) return {};
    const std::shared_ptr<std::byte> memory(
        static_cast<std::byte*>(TRY(allocate(static_cast<std::size_t>(bytes), Memory::pinned))),
        [this](std::byte* block) { release(block); });
    for (const auto& kernel : prepared)
      if (kernel->host_call() != nullptr) kernel->host_call()->set_memory(memory);
    return {};
  }

  static std::int32_t stream_of(Queue queue) { return static_cast<std::int32_t>(queue); }
  static_assert(GPU_COMPUTE == static_cast<int>(Queue::compute) &&
                GPU_UPLOAD == static_cast<int>(Queue::upload) &&
                GPU_DOWNLOAD == static_cast<int>(Queue::download) &&
                GPU_EXCHANGE == static_cast<int>(Queue::exchange));
  std::int32_t next_event() {
    return static_cast<std::int32_t>(kFences + next_order_++ % (GPU_EVENTS - kFences));
  }

  Status check(GpuStatus status, const std::string& what) const {
    if (status == GPU_OK) return {};
    return plugin_->error(status, context_, info_.id + ": " + what);
  }

  static void queue(void* self, kernels::KernelId id, const void* args, std::size_t bytes) {
    GpuDevice& device = *static_cast<GpuDevice*>(self);
    if (device.failed_ != GPU_OK) return;
    if (id == kernels::KernelId::elementwise) {
      device.failed_ = device.run_program(*static_cast<const kernels::ElementwiseArgs*>(args));
      return;
    }
    device.failed_ =
        device.api_.run(device.context_, GPU_COMPUTE, static_cast<std::uint32_t>(id), args, bytes);
    device.tell(kernels::kernel_name(id));
  }

  static bool offer(void* self, kernels::LibraryKernelId id, const void* args, std::size_t bytes) {
    GpuDevice& device = *static_cast<GpuDevice*>(self);
    if (device.failed_ != GPU_OK) return false;
    std::int32_t taken = 0;
    device.failed_ =
        device.api_.offer(device.context_, GPU_COMPUTE, static_cast<std::uint32_t>(id), args, bytes, &taken);
    device.tell(kLibraryKernels[static_cast<std::size_t>(id)]);
    return taken != 0;
  }

  // What computed the kernel that was queued just now, as the launch under way keeps it.
  void tell(const char* kernel) {
    if (launching_ == nullptr || failed_ != GPU_OK) return;
    GpuImplementation told;
    api_.implementation(context_, &told);
    if (told.library[0] == 0 && told.detail[0] == 0) return;
    launching_->tell(told_++, kernel, told);
    if (!strict_ || told.failed == 0) return;
    failed_ = GPU_LAUNCH_FAILED;
    refused_ = std::string(kernel) + ": " + escaped(told.detail);
  }

  static void tune_one(void* self, kernels::KernelId id, const void* args, std::size_t bytes) {
    GpuDevice& device = *static_cast<GpuDevice*>(self);
    if (device.failed_ != GPU_OK || id == kernels::KernelId::elementwise) return;
    device.failed_ =
        device.api_.tune(device.context_, static_cast<std::uint32_t>(id), args, bytes, device.candidates_);
  }

  // The one parameter of a generated kernel: struct { const void* in[]; void* out[];
  // const RandomState* random; }.
  GpuStatus run_program(const kernels::ElementwiseArgs& args) {
    const auto found = programs_.find(args.program);
    CHECK(found != programs_.end(), "an elementwise program that its kernel did not list");
    const Program& p = found->second;
    const void* params[kernels::kEwMaxRegisters + kernels::kEwMaxOutputs + 1];
    std::size_t count = 0;
    for (std::size_t i = 0; i < args.program->inputs.size(); ++i) params[count++] = args.inputs[i];
    for (std::size_t i = 0; i < args.program->outputs.size(); ++i) params[count++] = args.outputs[i];
    params[count++] = args.random;
    return api_.run_program(context_, GPU_COMPUTE, p.module, p.index, {p.blocks, 1, 1}, {p.threads, 1, 1},
                            params, count * sizeof(void*));
  }

  Status compile(
      const std::vector<std::pair<const kernels::EwProgram*, kernels::gpu::GeneratedKernel>>& wanted) {
    std::string source;
    std::vector<const char*> entries;
    std::set<std::string> taken;
    for (const auto& [program, generated] : wanted) {
      if (entries_.count(generated.entry) != 0 || !taken.insert(generated.entry).second) continue;
      if (source.empty()) source = kernels::gpu::generated_prelude();
      source += generated.source;
      entries.push_back(generated.entry.c_str());
    }
    if (!entries.empty()) {
      GpuModule* module = nullptr;
      const std::string folder = kernel_cache_folder();
      TRY(check(
          api_.compile(context_, source.c_str(), entries.data(), static_cast<std::int32_t>(entries.size()),
                       folder.empty() ? nullptr : folder.c_str(), &module),
          "compiling " + std::to_string(entries.size()) + " fused kernels"));
      modules_.push_back(module);
      for (std::size_t i = 0; i < entries.size(); ++i)
        entries_[entries[i]] = {module, static_cast<std::int32_t>(i)};
    }
    for (const auto& [program, generated] : wanted) {
      const auto& [module, index] = entries_.at(generated.entry);
      programs_[program] = {module, index, generated.blocks, generated.threads};
    }
    return {};
  }

  std::shared_ptr<const Plugin> plugin_;
  const GpuPlugin& api_;
  GpuContext* context_;
  DeviceInfo info_;
  kernels::Launcher launcher_, tuner_;
  std::int32_t candidates_ = 0;  // of tuner_
  GpuStatus failed_ = GPU_OK;    // of a launch under way
  const GpuPrepared* launching_ = nullptr;
  std::size_t told_ = 0;  // of its implementations
  std::string refused_;   // what a library did not do although it must
  bool strict_ = false;
  HostCalls host_calls_;
  const std::string uuid_;
  MetRanks ranks_;
  std::string why_no_trace_;
  std::map<void*, Block> live_;
  std::int64_t live_bytes_ = 0, peak_bytes_ = 0, pinned_bytes_ = 0;
  std::vector<GpuModule*> modules_;
  std::map<std::string, std::pair<GpuModule*, std::int32_t>> entries_;  // compiled, by entry name
  std::unordered_map<const kernels::EwProgram*, Program> programs_;
  Fence next_fence_ = 0;
  std::int64_t next_order_ = 0;
  std::vector<Event> free_events_;
  std::int64_t reached_ns_[kFences] = {};  // by event; -1: not waited for
  Fence last_fence_ = -1;                  // the latest one that was waited for, and when it was reached
  std::int64_t last_fence_ns_ = 0;
};

GpuRecording::~GpuRecording() { device_.destroy_graph(graph_); }
Status GpuRecording::run() { return device_.run_graph(graph_); }

Result<DeviceInfo> describe(const Plugin& plugin, int index, const std::string& id) {
  GpuDescription d{};
  const GpuStatus status = plugin.table().describe(index, &d);
  if (status != GPU_OK) return plugin.error(status, nullptr, id);
  const auto text = [](const char* chars, std::size_t size) {
    return escaped(std::string(chars, strnlen(chars, size)));
  };
  DeviceInfo info;
  info.id = id;
  info.name = text(d.name, sizeof d.name) + ", " + text(d.architecture, sizeof d.architecture);
  info.available = true;
  info.memory_bytes = d.memory_bytes;
  info.free_bytes = d.free_bytes;
  info.queued = true;
  const auto join = [](const std::string& a, const std::string& b) {
    return a.empty() || b.empty() ? a + b : a + ", " + b;
  };
  info.driver = text(d.driver, sizeof d.driver);
  info.libraries = join(d.runtime[0] != 0 ? "runtime " + text(d.runtime, sizeof d.runtime) : "",
                        text(d.libraries, sizeof d.libraries));
  info.detail = join(info.driver.empty() ? "" : "driver " + info.driver, info.libraries);
  return info;
}

}  // namespace

Result<std::unique_ptr<Device>> open_gpu_device(std::shared_ptr<const Plugin> plugin, int index,
                                                const std::string& id) {
  std::int32_t count = 0;
  GpuStatus status = plugin->table().device_count(&count);
  if (status != GPU_OK) return plugin->error(status, nullptr, id);
  if (index >= count)
    return Error{Errc::device, id + ": there are " + std::to_string(count) + " devices, counted from 0"};
  const DeviceInfo info = TRY(describe(*plugin, index, id));
  GpuContext* context = nullptr;
  status = plugin->table().open(index, &context);
  if (status != GPU_OK) return plugin->error(status, nullptr, id);
  GpuDescription described{};
  (void)plugin->table().describe(index, &described);
  const std::string uuid(described.uuid, strnlen(described.uuid, sizeof described.uuid));
  return std::unique_ptr<Device>(std::make_unique<GpuDevice>(std::move(plugin), context, info,
                                                             uuid.empty() ? std::to_string(index) : uuid));
}

DeviceState gpu_state(const Plugin& plugin, int index) {
  GpuEnvironment e{};
  if (plugin.table().environment(index, &e) != GPU_OK) return {};
  DeviceState state{e.sm_clock_mhz,   e.memory_clock_mhz,    e.temperature_c,   e.power_mw,
                    e.power_limit_mw, e.utilization_percent, e.other_processes, ""};
  state.throttle = escaped(std::string(e.throttle_text, strnlen(e.throttle_text, sizeof e.throttle_text)));
  return state;
}

std::vector<DeviceInfo> list_gpu_devices(const Plugin& plugin, const std::string& prefix) {
  const auto unavailable = [&](const std::string& id, const Error& error) {
    DeviceInfo info;
    info.id = id;
    info.why_not =
        error.message.rfind(id + ": ", 0) == 0 ? error.message.substr(id.size() + 2) : error.message;
    return info;
  };
  std::int32_t count = 0;
  const GpuStatus status = plugin.table().device_count(&count);
  const std::string first = prefix + ":0";
  if (status != GPU_OK) return {unavailable(first, plugin.error(status, nullptr, first))};
  if (count == 0) return {unavailable(first, Error{Errc::device, "no device found"})};
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    const std::string id = prefix + ":" + std::to_string(i);
    auto info = describe(plugin, i, id);
    devices.push_back(info ? *info : unavailable(id, info.error()));
  }
  return devices;
}

}  // namespace gradloom
