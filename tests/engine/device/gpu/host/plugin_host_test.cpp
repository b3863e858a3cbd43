// The host plugin through its C interface, loaded as the program loads it.
#include "engine/device/gpu/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "engine/device/gpu/abi.h"
#include "kernels/gpu/program_source.h"
#include "engine/device/gpu/host/recording.h"
#include "tests/environment.h"
#include "tests/folder.h"

namespace gradloom::kernels::gpu::test {
namespace {

// The library stays loaded to the end, as in the program.
void* library() {
  static void* const loaded = dlopen(GRADLOOM_HOST_GPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  return loaded;
}

const GpuPlugin* plugin() {
  if (library() == nullptr) {
    ADD_FAILURE() << dlerror();
    std::abort();
  }
  return reinterpret_cast<GpuPluginFn>(dlsym(library(), GRADLOOM_GPU_ENTRY))(GRADLOOM_GPU_VERSION);
}

class HostPlugin : public ::testing::Test {
 protected:
  void open() { ASSERT_EQ(gpu->open(0, &context), GPU_OK) << gpu->message(nullptr); }
  void SetUp() override { open(); }
  void TearDown() override {
    if (context != nullptr) gpu->close(context);
  }
  void reopen() {
    gpu->close(context);
    open();
  }

  template <class T>
  T* allocate(std::size_t n, bool pinned = false) {
    void* memory = nullptr;
    EXPECT_EQ(gpu->allocate(context, n * sizeof(T), pinned, &memory), GPU_OK) << message();
    return static_cast<T*>(memory);
  }
  std::string message() const { return gpu->message(context); }

  // out[i] = value for i < n.
  GpuStatus fill_with(float value, float* out, std::int64_t n, int stream = GPU_COMPUTE) {
    const FillArgs args{sizeof(float), n, &value, out};
    return gpu->run(context, stream, std::uint32_t(KernelId::fill), &args, sizeof args);
  }
  std::vector<HostGpuRecord> recording() {
    std::vector<HostGpuRecord> records(1000);
    std::int32_t count = 0;
    const auto read = reinterpret_cast<HostGpuRecordingFn>(dlsym(library(), GRADLOOM_HOST_GPU_RECORDING));
    EXPECT_EQ(read(context, records.data(), 1000, &count), GPU_OK);
    records.resize(std::size_t(count));
    return records;
  }
  std::vector<GpuActivity> trace() {
    std::vector<GpuActivity> activities(1000);
    std::int32_t count = 0;
    EXPECT_EQ(gpu->read_trace(context, 1, activities.data(), 1000, &count), GPU_OK);
    activities.resize(std::size_t(count));
    return activities;
  }

  const GpuPlugin* gpu = plugin();
  GpuContext* context = nullptr;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- the table ------------------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, TableFitsTheProgram) {
  EXPECT_EQ(gpu->version, unsigned(GRADLOOM_GPU_VERSION));
  EXPECT_EQ(gpu->struct_bytes, sizeof(GpuPlugin));
  EXPECT_EQ(gpu->kernel_abi, kernel_abi());
  EXPECT_STREQ(gpu->kind, "host-gpu");
  EXPECT_EQ(reinterpret_cast<GpuPluginFn>(dlsym(library(), GRADLOOM_GPU_ENTRY))(GRADLOOM_GPU_VERSION + 1),
            nullptr);
}

TEST_F(HostPlugin, DescribesItself) {
  std::int32_t count = 0;
  GpuDescription description;
  EXPECT_EQ(gpu->device_count(&count), GPU_OK);
  EXPECT_EQ(count, 1);
  ASSERT_EQ(gpu->describe(0, &description), GPU_OK);
  const std::string lanes = std::to_string(GRADLOOM_GPU_WARP);
  EXPECT_EQ(description.name, "host executor (" + lanes + "-lane warps)");
  EXPECT_EQ(description.warp_size, GRADLOOM_GPU_WARP);
  EXPECT_GT(description.memory_bytes, 0);
  EXPECT_EQ(gpu->describe(1, &description), GPU_NO_DEVICE);
  EXPECT_TRUE(has(gpu->message(nullptr), "one host-gpu device"));
  GpuEnvironment environment;
  ASSERT_EQ(gpu->environment(0, &environment), GPU_OK);
  EXPECT_EQ(environment.power_mw, -1);
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, NewMemoryIsNan) {
  const float* memory = allocate<float>(10);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  EXPECT_TRUE(std::isnan(memory[0]) && std::isnan(memory[9]));
}

TEST_F(HostPlugin, CopiesAndFills) {
  int* device = allocate<int>(4);
  const int from[4] = {1, 2, 3, 4};
  int to[4] = {};
  EXPECT_EQ(gpu->copy(context, GPU_UPLOAD, device, from, sizeof from), GPU_OK);
  EXPECT_EQ(gpu->fill(context, GPU_COMPUTE, device + 1, 0, 4), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, to, device, sizeof to), GPU_OK);
  EXPECT_EQ(std::vector<int>(to, to + 4), (std::vector<int>{1, 0, 3, 4}));
}

TEST_F(HostPlugin, CopiesMustStayInTheirAllocation) {
  char* device = allocate<char>(100);
  char host[100] = {};
  EXPECT_EQ(gpu->copy(context, 0, device + 50, host, 51), GPU_LAUNCH_FAILED);
  EXPECT_EQ(message(), "copy: 51 bytes at 50 of device memory of 100 bytes");
  EXPECT_EQ(gpu->fill(context, 0, device, 0, 101), GPU_LAUNCH_FAILED);
  EXPECT_EQ(gpu->copy(context, 0, device + 50, host, 50), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_STREAMS, device, host, 50), GPU_FAILED);
  EXPECT_EQ(message(), "copy: no stream 4 or no event 0");
}

TEST_F(HostPlugin, MemoryLimitIsRecoverable) {
  const Setting limit("GRADLOOM_HOSTGPU_MEMORY_MB", "1");
  void* half = allocate<char>(600'000);
  void* more = nullptr;
  EXPECT_EQ(gpu->allocate(context, 600'000, 0, &more), GPU_OUT_OF_MEMORY);
  EXPECT_EQ(message(), "allocate 600000 bytes of device memory (600000 of 1048576 in use)");
  EXPECT_EQ(gpu->allocate(context, 600'000, 1, &more), GPU_OK);  // pinned memory is the host's
  GpuDescription description;
  ASSERT_EQ(gpu->describe(0, &description), GPU_OK);
  EXPECT_EQ(description.memory_bytes, 1 << 20);
  EXPECT_EQ(description.free_bytes, (1 << 20) - 600'000);
  EXPECT_EQ(gpu->release(context, half, 0), GPU_OK);
  EXPECT_EQ(gpu->allocate(context, 600'000, 0, &half), GPU_OK);
}

#if !defined(__SANITIZE_ADDRESS__)  // which stops the program at the write
TEST_F(HostPlugin, KernelThatWritesAroundItsMemoryLosesTheDevice) {
  float* memory = allocate<float>(100);
  EXPECT_EQ(fill_with(1, memory, 100), GPU_OK);
  EXPECT_EQ(fill_with(1, memory, 101), GPU_DEVICE_LOST);
  EXPECT_TRUE(has(message(), "kernel ") && has(message(), "device memory of 400 bytes was written around"))
      << message();
  EXPECT_EQ(fill_with(1, memory, 100), GPU_DEVICE_LOST);  // for good
  EXPECT_TRUE(has(message(), "was written around"));
}

TEST_F(HostPlugin, ReleaseAndSynchronizeFindDamage) {
  char* memory = allocate<char>(10);
  memory[-1] = 0;
  EXPECT_EQ(gpu->synchronize(context), GPU_DEVICE_LOST);
  EXPECT_EQ(message(), "device memory of 10 bytes was written around");
  reopen();
  memory = allocate<char>(10);
  memory[10] = 0;
  EXPECT_EQ(gpu->release(context, memory, 0), GPU_DEVICE_LOST);
}
#endif

TEST_F(HostPlugin, ReleaseOfTheWrongMemory) {
  char* memory = allocate<char>(10);
  EXPECT_EQ(gpu->release(context, memory, 1), GPU_DEVICE_LOST);
  EXPECT_EQ(message(), "release: device memory of 10 bytes is of the other kind");
  reopen();
  EXPECT_EQ(gpu->release(context, &context, 0), GPU_DEVICE_LOST);
  EXPECT_EQ(message(), "release: not memory of this device");
}

// ---- work -----------------------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, RunsKernelsById) {
  float* out = allocate<float>(1000);
  EXPECT_EQ(fill_with(2.5f, out, 1000), GPU_OK) << message();
  EXPECT_EQ(std::vector<float>(out, out + 1000), std::vector<float>(1000, 2.5f));
  const FillArgs args{};
  EXPECT_EQ(gpu->run(context, 0, std::uint32_t(KernelId::fill), &args, sizeof args - 1), GPU_UNSUPPORTED);
  EXPECT_EQ(gpu->run(context, 0, std::uint32_t(KernelId::elementwise), &args, sizeof args), GPU_UNSUPPORTED);
  EXPECT_EQ(gpu->run(context, 0, std::uint32_t(KernelId::count), &args, sizeof args), GPU_UNSUPPORTED);
  EXPECT_TRUE(has(message(), "no such kernel"));
}

// y = a + b over n elements.
EwProgram addition(std::int64_t n) {
  EwProgram program;
  program.rank = 1;
  program.dims[0] = n;
  EwInput input{DType::f32};
  input.strides[0] = 1;
  program.inputs = {input, input};
  program.code = {{EwOp::Add, DType::f32, DType::f32, {0, 1, -1}, 0}};
  program.outputs = {{2, DType::f32}};
  return program;
}

struct AdditionParams {
  const void* in[2];
  void* out[1];
  const void* random;
};

TEST_F(HostPlugin, CompilesAndRunsGeneratedPrograms) {
  const GeneratedKernel small = generate(addition(100)), large = generate(addition(5000));
  const char* entries[] = {small.entry.c_str(), large.entry.c_str()};
  const std::string source = generated_prelude() + small.source + large.source;
  GpuModule* module = nullptr;
  ASSERT_EQ(gpu->compile(context, source.c_str(), entries, 2, nullptr, &module), GPU_OK) << message();
  float *a = allocate<float>(5000), *b = allocate<float>(5000), *y = allocate<float>(5000);
  std::iota(a, a + 5000, 0.0f);
  std::fill_n(b, 5000, 0.5f);
  const AdditionParams params{{a, b}, {y}, nullptr};
  ASSERT_EQ(sizeof params, large.params_bytes);
  ASSERT_EQ(gpu->run_program(context, 0, module, 1, {large.blocks, 1, 1}, {large.threads, 1, 1}, &params,
                             sizeof params),
            GPU_OK)
      << message();
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(y[i], float(i) + 0.5f);
  EXPECT_EQ(gpu->run_program(context, 0, module, 2, {1, 1, 1}, {32, 1, 1}, &params, sizeof params),
            GPU_LAUNCH_FAILED);
  EXPECT_EQ(gpu->run_program(context, 0, module, 1, {1, 1, 1}, {2000, 1, 1}, &params, sizeof params),
            GPU_LAUNCH_FAILED);
  EXPECT_TRUE(has(message(), "kernel " + large.entry + ": bad block (2000, 1, 1)")) << message();
  gpu->unload(context, module);
}

TEST_F(HostPlugin, CompilerErrorsAndMissingEntriesAreTold) {
  GpuModule* module = nullptr;
  const char* entries[] = {"missing"};
  EXPECT_EQ(gpu->compile(context, "int f() { return no_such_name; }", entries, 1, nullptr, &module),
            GPU_LAUNCH_FAILED);
  EXPECT_TRUE(has(message(), "no_such_name")) << message();
  EXPECT_EQ(gpu->compile(context, generated_prelude().c_str(), entries, 1, nullptr, &module),
            GPU_LAUNCH_FAILED);
  EXPECT_EQ(message(), "compile: the program has no entry missing");
  const Setting compiler("GRADLOOM_HOST_CXX", "/no/such/compiler");
  EXPECT_EQ(gpu->compile(context, generated_prelude().c_str(), entries, 1, nullptr, &module),
            GPU_LAUNCH_FAILED);
  EXPECT_TRUE(has(message(), "/no/such/compiler")) << message();
  EXPECT_EQ(module, nullptr);
}

TEST_F(HostPlugin, CompiledProgramsAreKept) {
  namespace fs = std::filesystem;
  const GeneratedKernel kernel = generate(addition(64));
  const std::string source = generated_prelude() + kernel.source;
  const char* entries[] = {kernel.entry.c_str()};
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  GpuModule* module = nullptr;
  ASSERT_EQ(gpu->compile(context, source.c_str(), entries, 1, folder.c_str(), &module), GPU_OK) << message();
  gpu->unload(context, module);
  ASSERT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  // Taken from the folder, so not written again.
  const fs::path kept = fs::directory_iterator(folder)->path();
  const auto written = fs::last_write_time(kept);
  ASSERT_EQ(gpu->compile(context, source.c_str(), entries, 1, folder.c_str(), &module), GPU_OK);
  EXPECT_EQ(fs::last_write_time(kept), written);
  gpu->unload(context, module);
  // Damaged code is compiled again.
  fs::resize_file(kept, fs::file_size(kept) / 2);
  ASSERT_EQ(gpu->compile(context, source.c_str(), entries, 1, folder.c_str(), &module), GPU_OK) << message();
  gpu->unload(context, module);
}

// ---- order ----------------------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, RecordsOperationsInOrder) {
  float* out = allocate<float>(8);
  float* host = allocate<float>(8, true);
  EXPECT_EQ(gpu->mark(context, 5, "fill"), GPU_OK);
  EXPECT_EQ(fill_with(1, out, 8), GPU_OK);
  EXPECT_EQ(gpu->mark(context, -1, ""), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 7), GPU_OK);
  EXPECT_EQ(gpu->wait_event(context, GPU_DOWNLOAD, 7), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host, out, 32), GPU_OK);
  EXPECT_EQ(gpu->synchronize(context), GPU_OK);
  const auto records = recording();
  ASSERT_EQ(records.size(), 5u);
  const auto expect = [&](std::size_t i, int operation, int stream, int event, int step) {
    EXPECT_EQ(records[i].operation, operation) << i;
    EXPECT_EQ(records[i].stream, stream) << i;
    EXPECT_EQ(records[i].event, event) << i;
    EXPECT_EQ(records[i].plan_step, step) << i;
  };
  expect(0, HOST_GPU_KERNEL, GPU_COMPUTE, -1, 5);
  expect(1, HOST_GPU_RECORD_EVENT, GPU_COMPUTE, 7, -1);
  expect(2, HOST_GPU_WAIT_EVENT, GPU_DOWNLOAD, 7, -1);
  expect(3, HOST_GPU_COPY, GPU_DOWNLOAD, -1, -1);
  expect(4, HOST_GPU_SYNCHRONIZE, -1, -1, -1);
  EXPECT_TRUE(has(records[0].name, "fill")) << records[0].name;
  EXPECT_EQ(records[3].target, host);
  EXPECT_EQ(records[3].bytes, 32u);
  EXPECT_TRUE(recording().empty());  // handed over once
}

TEST_F(HostPlugin, LazyStreamsRunWhenSomethingWaits) {
  const Setting lazy("GRADLOOM_HOSTGPU_LAZY", "1");
  reopen();
  float* device = allocate<float>(4);
  float* host = allocate<float>(4, true);
  EXPECT_EQ(fill_with(3, device, 4), GPU_OK);
  EXPECT_TRUE(std::isnan(device[0]));
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host, device, 16),
            GPU_OK);  // does not wait for the kernel: a bug of the caller
  EXPECT_EQ(gpu->record_event(context, GPU_DOWNLOAD, 0), GPU_OK);
  EXPECT_EQ(gpu->query_event(context, 0), GPU_NOT_READY);
  EXPECT_EQ(gpu->query_event(context, 0), GPU_OK);
  EXPECT_TRUE(std::isnan(host[0]));  // and shows
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 1), GPU_OK);
  EXPECT_EQ(gpu->wait_event(context, GPU_DOWNLOAD, 1), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host, device, 16), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_DOWNLOAD, 2), GPU_OK);
  EXPECT_EQ(gpu->synchronize_event(context, 2), GPU_OK);
  EXPECT_EQ(host[0], 3.0f);
}

TEST_F(HostPlugin, WaitMeansTheLatestRecordAtThatTime) {
  const Setting lazy("GRADLOOM_HOSTGPU_LAZY", "1");
  reopen();
  float* device = allocate<float>(1);
  EXPECT_EQ(gpu->wait_event(context, GPU_UPLOAD, 3), GPU_OK);  // never recorded: no wait
  EXPECT_EQ(fill_with(1, device, 1), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 3), GPU_OK);
  EXPECT_EQ(gpu->wait_event(context, GPU_UPLOAD, 3), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_UPLOAD, 4), GPU_OK);
  EXPECT_EQ(fill_with(2, device, 1), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 3), GPU_OK);
  EXPECT_EQ(gpu->synchronize_event(context, 4), GPU_OK);
  EXPECT_EQ(device[0], 1.0f);
  EXPECT_EQ(gpu->synchronize(context), GPU_OK);
  EXPECT_EQ(device[0], 2.0f);
}

TEST_F(HostPlugin, EventsMeasureTime) {
  std::int64_t ns = -1;
  EXPECT_EQ(gpu->elapsed_ns(context, 0, 1, &ns), GPU_FAILED);
  float* device = allocate<float>(100'000);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 0), GPU_OK);
  EXPECT_EQ(fill_with(1, device, 100'000), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 1), GPU_OK);
  EXPECT_EQ(gpu->elapsed_ns(context, 0, 1, &ns), GPU_OK);
  EXPECT_GT(ns, 0);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, GPU_EVENTS), GPU_FAILED);
}

// ---- recording ------------------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, GraphsRunWhatWasRecorded) {
  float* device = allocate<float>(4);
  GpuGraph* graph = nullptr;
  EXPECT_EQ(gpu->begin_capture(context), GPU_OK);
  EXPECT_EQ(gpu->mark(context, 2, "a"), GPU_OK);
  EXPECT_EQ(fill_with(1, device, 4), GPU_OK);  // its value is gone when the graph runs
  EXPECT_EQ(gpu->mark(context, 3, "b"), GPU_OK);
  EXPECT_EQ(gpu->fill(context, GPU_COMPUTE, device + 2, 0, 8), GPU_OK);
  EXPECT_EQ(gpu->end_capture(context, &graph), GPU_OK);
  EXPECT_TRUE(std::isnan(device[0]));  // nothing has run
  EXPECT_TRUE(recording().empty());
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(gpu->fill(context, GPU_COMPUTE, device, 0xFF, 16), GPU_OK);
    EXPECT_EQ(gpu->run_graph(context, graph), GPU_OK);
    EXPECT_EQ(std::vector<float>(device, device + 4), (std::vector<float>{1, 1, 0, 0}));
  }
  const auto records = recording();
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records[1].plan_step, 2);
  EXPECT_EQ(records[2].plan_step, 3);
  EXPECT_EQ(records[0].in_graph, 0);
  EXPECT_EQ(records[1].in_graph, 1);
  gpu->destroy_graph(context, graph);
}

// A stream that waits for an event of the recording belongs to it, and the compute stream must have waited for it at the end.
TEST_F(HostPlugin, RecordingsHoldTheStreamsThatJoinThem) {
  for (const char* const order : {"0", "1", "compute"}) {
    const Setting lazy("GRADLOOM_HOSTGPU_LAZY", order);
    reopen();
    float* device = allocate<float>(4);
    float* host = allocate<float>(4, true);
    std::int32_t made = 0, copied = 0;
    EXPECT_EQ(gpu->make_event(context, &made), GPU_OK);
    EXPECT_EQ(gpu->make_event(context, &copied), GPU_OK);
    EXPECT_TRUE(made >= GPU_EVENTS && copied == made + 1);
    GpuGraph* graph = nullptr;
    EXPECT_EQ(gpu->begin_capture(context), GPU_OK);
    EXPECT_EQ(fill_with(1, device, 4), GPU_OK);
    EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, made), GPU_OK);
    EXPECT_EQ(gpu->wait_event(context, GPU_DOWNLOAD, made), GPU_OK);
    EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host, device, 16), GPU_OK);
    EXPECT_EQ(gpu->record_event(context, GPU_DOWNLOAD, copied), GPU_OK);
    EXPECT_EQ(gpu->wait_event(context, GPU_COMPUTE, copied), GPU_OK);
    EXPECT_EQ(fill_with(2, device, 4), GPU_OK);
    ASSERT_EQ(gpu->end_capture(context, &graph), GPU_OK) << message();
    EXPECT_EQ(gpu->synchronize(context), GPU_OK);
    EXPECT_TRUE(std::isnan(host[0])) << "nothing has run";
    for (int run = 0; run < 2; ++run) {
      EXPECT_EQ(gpu->fill(context, GPU_COMPUTE, device, 0, 16), GPU_OK);
      EXPECT_EQ(gpu->run_graph(context, graph), GPU_OK);
      EXPECT_EQ(gpu->synchronize(context), GPU_OK);
      EXPECT_EQ(host[3], 1.0f) << order;
      EXPECT_EQ(device[3], 2.0f) << order;
      std::memset(host, 0, 16);
    }
    gpu->destroy_graph(context, graph);
  }
}

TEST_F(HostPlugin, RecordingsEndWhenAllTheirStreamsHave) {
  float* device = allocate<float>(4);
  float* host = allocate<float>(4, true);
  GpuGraph* graph = nullptr;
  EXPECT_EQ(gpu->begin_capture(context), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 40), GPU_OK);
  EXPECT_EQ(gpu->wait_event(context, GPU_DOWNLOAD, 40), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host, device, 16), GPU_OK);
  EXPECT_EQ(gpu->end_capture(context, &graph), GPU_FAILED);
  EXPECT_TRUE(has(message(), "does not wait for the recorded work of stream 2")) << message();
  EXPECT_EQ(graph, nullptr);
}

// GRADLOOM_HOSTGPU_LAZY=compute: what does not wait for the compute stream comes before it.
TEST_F(HostPlugin, CopiesMayRunAsEarlyAsTheirWaitsLetThem) {
  const Setting lazy("GRADLOOM_HOSTGPU_LAZY", "compute");
  reopen();
  float* device = allocate<float>(4);
  float* host = allocate<float>(8, true);
  EXPECT_EQ(fill_with(3, device, 4), GPU_OK);
  EXPECT_EQ(gpu->record_event(context, GPU_COMPUTE, 40), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host, device, 16), GPU_OK);
  EXPECT_TRUE(std::isnan(host[0])) << "copied before it was made";
  EXPECT_EQ(gpu->wait_event(context, GPU_DOWNLOAD, 40), GPU_OK);
  EXPECT_EQ(gpu->copy(context, GPU_DOWNLOAD, host + 4, device, 16), GPU_OK);
  EXPECT_EQ(host[4], 3.0f);
}

TEST_F(HostPlugin, CallsThatBreakARecording) {
  GpuGraph* graph = nullptr;
  void* memory = nullptr;
  char* device = allocate<char>(8);
  char host[8] = {};
  const std::function<GpuStatus()> calls[] = {
      [&] { return gpu->allocate(context, 8, 0, &memory); },
      [&] { return gpu->synchronize(context); },
      [&] { return gpu->query_event(context, 0); },
      [&] { return gpu->copy(context, GPU_COMPUTE, device, host, 8); },
      [&] { return gpu->wait_event(context, GPU_COMPUTE, 0); },
  };
  for (const auto& call : calls) {
    EXPECT_EQ(gpu->begin_capture(context), GPU_OK);
    EXPECT_EQ(call(), GPU_FAILED);
    EXPECT_TRUE(has(message(), "while work is recorded")) << message();
    EXPECT_EQ(gpu->end_capture(context, &graph), GPU_FAILED);
    EXPECT_TRUE(has(message(), "broken the recording")) << message();
  }
  EXPECT_EQ(gpu->end_capture(context, &graph), GPU_FAILED);  // never began
  EXPECT_EQ(graph, nullptr);
}

// ---- profiling ------------------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, TraceHoldsWhatRan) {
  float* device = allocate<float>(100'000);
  EXPECT_EQ(fill_with(1, device, 10), GPU_OK);  // before the trace
  EXPECT_EQ(gpu->set_trace(context, GPU_TRACE_KERNELS), GPU_OK);
  EXPECT_EQ(gpu->mark(context, 9, "step"), GPU_OK);
  EXPECT_EQ(fill_with(1, device, 100'000), GPU_OK);
  EXPECT_EQ(gpu->fill(context, GPU_UPLOAD, device, 0, 400), GPU_OK);
  const auto rows = trace();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kind, GPU_ACTIVITY_KERNEL);
  EXPECT_EQ(rows[0].plan_step, 9);
  EXPECT_LT(rows[0].start_ns, rows[0].end_ns);
  EXPECT_LE(rows[0].end_ns, rows[1].start_ns);
  EXPECT_TRUE(has(rows[0].name, "fill")) << rows[0].name;
  EXPECT_EQ(rows[1].kind, GPU_ACTIVITY_FILL);
  EXPECT_EQ(rows[1].stream, GPU_UPLOAD);
  EXPECT_EQ(rows[1].bytes, 400);
  EXPECT_TRUE(trace().empty());
}

TEST_F(HostPlugin, ApiCallsAreJoinedToTheirKernels) {
  float* device = allocate<float>(10);
  EXPECT_EQ(gpu->set_trace(context, GPU_TRACE_ALL), GPU_OK);
  EXPECT_EQ(fill_with(1, device, 10), GPU_OK);
  EXPECT_EQ(gpu->set_trace(context, GPU_TRACE_OFF), GPU_OK);
  EXPECT_EQ(fill_with(1, device, 10), GPU_OK);
  std::vector<GpuActivity> api, kernels;
  for (const GpuActivity& row : trace()) (row.kind == GPU_ACTIVITY_API ? api : kernels).push_back(row);
  ASSERT_EQ(kernels.size(), 1u);
  const auto call = std::find_if(api.begin(), api.end(),
                                 [](const GpuActivity& row) { return std::string(row.name) == "run"; });
  ASSERT_NE(call, api.end());
  EXPECT_EQ(call->correlation, kernels[0].correlation);
  EXPECT_LE(call->start_ns, kernels[0].start_ns);
}

// ---- failures on demand ---------------------------------------------------------------------------------------------------------

TEST_F(HostPlugin, FailuresOnDemand) {
  const Setting fail("GRADLOOM_HOSTGPU_FAIL", "allocate:2=4,run:1=5,copy:1=6,open:1=1");
  void* memory = nullptr;
  EXPECT_EQ(gpu->allocate(context, 8, 0, &memory), GPU_OK);
  EXPECT_EQ(gpu->allocate(context, 8, 0, &memory), GPU_OUT_OF_MEMORY);
  EXPECT_EQ(message(), "allocate: failure on demand");
  EXPECT_EQ(gpu->allocate(context, 8, 0, &memory), GPU_OK);
  EXPECT_EQ(fill_with(1, static_cast<float*>(memory), 2), GPU_LAUNCH_FAILED);
  EXPECT_EQ(fill_with(1, static_cast<float*>(memory), 2), GPU_OK);
  EXPECT_EQ(gpu->copy(context, 0, memory, memory, 8), GPU_DEVICE_LOST);
  EXPECT_EQ(gpu->synchronize(context), GPU_DEVICE_LOST);
  GpuContext* other = nullptr;
  EXPECT_EQ(gpu->open(0, &other), GPU_NO_DRIVER);
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(gpu->open(0, &other), GPU_OK);
  gpu->close(other);
}

TEST_F(HostPlugin, BadThreadOrder) {
  const Setting order("GRADLOOM_HOSTGPU_ORDER", "sideways");
  GpuContext* other = nullptr;
  EXPECT_EQ(gpu->open(0, &other), GPU_FAILED);
  EXPECT_TRUE(has(gpu->message(nullptr), "GRADLOOM_HOSTGPU_ORDER=sideways"));
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
