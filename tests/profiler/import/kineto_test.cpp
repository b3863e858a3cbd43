// Traces of PyTorch's profiler: own times, steps, phases, modules, and kernels of GPUs by their launches.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/profiler/import/trace_text.h"

namespace gradloom::test {
namespace {

// Two steps of a linear layer in a module, its backward, an optimizer, and what comes after the backward.
KinetoText two_steps() {
  KinetoText trace;
  for (int i = 0; i < 2; ++i) {
    const double t = 1000.0 * i;
    const auto sequence = [&](int n) {
      return fmt::format(R"("Sequence number":{},"Fwd thread id":)", 10 * i + n);
    };
    trace.mark(fmt::format("ProfilerStep#{}", i + 5), t, 900);
    trace.mark("blocks.0", t + 10, 200).mark("blocks.0/up", t + 20, 150);
    trace.op("aten::linear", t + 30, 100, sequence(1) + "0");
    trace.op("aten::t", t + 31, 4, sequence(1) + "0");
    trace.op(
        "aten::addmm", t + 40, 80.5,
        sequence(2) +
            R"(0,"Input Dims":[[128],[32,64],[64,128],[]],"Input type":["float","float","float","Scalar"])");
    trace.op("aten::copy_", t + 42, 10);
    trace.op("aten::add", t + 180, 20, sequence(3) + "0");
    const std::string evaluate = "autograd::engine::evaluate_function: ";
    trace.op(evaluate + "AddmmBackward0", t + 300, 100, sequence(2) + "1");
    trace.op("AddmmBackward0", t + 305, 90, sequence(2) + "1");
    trace.op("aten::mm", t + 310, 50);
    trace.op(evaluate + "torch::autograd::AccumulateGrad", t + 400, 20);
    trace.op("torch::autograd::AccumulateGrad", t + 401, 18);
    trace.op("aten::add_", t + 402, 10);
    trace.op("aten::_foreach_norm", t + 430, 5);
    trace.mark("Optimizer.step#AdamW.step", t + 500, 100);
    trace.op("aten::addcdiv_", t + 510, 40);
  }
  return trace;
}

TEST(Kineto, AStepInWhichTheProfilerEndedIsLeftOut) {
  KinetoText trace = two_steps();
  trace.mark("ProfilerStep#7", 2000, 50);
  trace.op("aten::zeros", 2010, 5);
  const auto cut = read_text(trace.text());
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(cut->steps.size(), 2u);
  ASSERT_FALSE(cut->notes.empty());
  EXPECT_NE(cut->notes.back().find("the profiler ended in the last step (1 of some"), std::string::npos)
      << cut->notes.back();
}

// Of a torch.autograd.Function, or what torch.compile made: the node computes, not an operator inside it.
TEST(Kineto, FunctionsOfTheProgramAreOperators) {
  KinetoText trace;
  const std::string sequence = R"("Sequence number":3)";
  trace.mark("ProfilerStep#1", 0, 100).mark("net", 5, 30).op("F", 10, 20, sequence);
  trace.op("autograd::engine::evaluate_function: FBackward", 40, 50, sequence);
  trace.op("FBackward", 42, 40, sequence).op("aten::mul", 50, 10);
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->kernels.size(), 3u);
  const ImportedKernel* const node = find_kernel(*read, "FBackward", "backward");
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->info.node, "net/FBackward");
  EXPECT_EQ(time_of(read->steps[0], *node), 30'000);
  const ImportedKernel* const inside = find_kernel(*read, "aten::mul", "backward");
  ASSERT_NE(inside, nullptr);
  EXPECT_EQ(inside->info.node, "net/FBackward/aten::mul");
  EXPECT_EQ(time_of(read->steps[0]), 60'000);
}

TEST(Kineto, OperatorsHaveTheirOwnTime) {
  const auto trace = read_text(two_steps().text());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->origin, "kineto");
  EXPECT_EQ(trace->device, "cpu");
  EXPECT_EQ(trace->environment.at("trace.steps"), "ProfilerStep#5 to ProfilerStep#6");
  ASSERT_EQ(trace->steps.size(), 2u);
  EXPECT_EQ(trace->steps[0].duration_ns, 900'000);
  EXPECT_EQ(trace->steps[1].start_ns, 1'000'000);
  const ImportedKernel* const addmm = find_kernel(*trace, "aten::addmm", "forward");
  ASSERT_NE(addmm, nullptr);
  EXPECT_EQ(addmm->info.scope, "blocks.0/up");
  EXPECT_EQ(addmm->info.node, "blocks.0/up/aten::linear/aten::addmm");
  EXPECT_EQ(addmm->inputs, "f32[128] f32[32, 64] f32[64, 128]");
  const ImportedKernel* const linear = find_kernel(*trace, "aten::linear", "forward");
  ASSERT_NE(linear, nullptr);
  for (const ImportedStep& step : trace->steps) {
    EXPECT_EQ(time_of(step, *addmm), 70'500) << "without the copy inside it";
    EXPECT_EQ(time_of(step, *linear), 100'000 - 4'000 - 80'500);
    // linear with all in it, add, mm, add_, the norm and the optimizer's.
    EXPECT_EQ(time_of(step), 100'000 + 20'000 + 50'000 + 10'000 + 5'000 + 40'000);
    EXPECT_LE(time_of(step), step.duration_ns);
  }
  const auto sample =
      std::find_if(trace->steps[1].samples.begin(), trace->steps[1].samples.end(),
                   [&](const KernelSample& s) { return s.plan_step == addmm->info.plan_step; });
  EXPECT_EQ(sample->start_ns, 1'050'000) << "after the copy, and ending with the operator";
}

TEST(Kineto, PhasesAndModulesFollowAutogradAndMarks) {
  const auto trace = read_text(two_steps().text());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const ImportedKernel* const mm = find_kernel(*trace, "aten::mm", "backward");
  ASSERT_NE(mm, nullptr);
  EXPECT_EQ(mm->info.scope, "blocks.0/up") << "of the forward operator with its number";
  EXPECT_EQ(mm->info.node, "blocks.0/up/AddmmBackward0/aten::mm");
  const ImportedKernel* const grad = find_kernel(*trace, "aten::add_", "backward");
  ASSERT_NE(grad, nullptr);
  EXPECT_EQ(grad->info.scope, "blocks.0/up") << "a gradient is added where it was made";
  const ImportedKernel* const update = find_kernel(*trace, "aten::addcdiv_", "optimizer");
  ASSERT_NE(update, nullptr);
  EXPECT_EQ(update->info.scope, "");
  EXPECT_EQ(update->info.node, "AdamW.step/aten::addcdiv_");
  EXPECT_NE(find_kernel(*trace, "aten::_foreach_norm", "optimizer"), nullptr)
      << "after the backward: clipping";
  const ImportedKernel* const add = find_kernel(*trace, "aten::add", "forward");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add->info.scope, "blocks.0");
  // What the program called: the source of forward and backward alike.
  const auto source = [&](const ImportedKernel& k) { return trace->operators[k.info.sources.at(0)].name; };
  EXPECT_EQ(source(*mm), "blocks.0/up/aten::linear");
  EXPECT_EQ(source(*find_kernel(*trace, "aten::copy_", "forward")), "blocks.0/up/aten::linear");
  EXPECT_TRUE(update->info.sources.empty());
  EXPECT_TRUE(trace->notes.empty()) << trace->notes[0];
  // Names of nodes are each of one row.
  std::vector<std::string> nodes;
  for (const ImportedKernel& k : trace->kernels) nodes.push_back(k.info.node);
  std::sort(nodes.begin(), nodes.end());
  EXPECT_EQ(std::adjacent_find(nodes.begin(), nodes.end()), nodes.end());
}

TEST(Kineto, TheThreadsSpansLieInsideOneAnother) {
  const auto trace = read_text(two_steps().text());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  for (const ImportedStep& step : trace->steps) {
    ASSERT_EQ(step.host.size(), 6u);
    EXPECT_EQ(step.host[0].kind, "step");
    EXPECT_EQ(step.host[1].name, "blocks.0");
    EXPECT_EQ(step.host[2].parent, 1);
    EXPECT_EQ(step.host[3].kind, "backward");
    EXPECT_EQ(step.host[3].name, "AddmmBackward0");
    EXPECT_EQ(step.host[5].kind, "optimizer");
    EXPECT_EQ(step.host[5].name, "AdamW.step");
  }
}

TEST(Kineto, KernelsBelongToWhatLaunchedThem) {
  KinetoText trace;
  const auto launched = [](int correlation, const char* more = "") {
    return fmt::format(R"("External id":{},"correlation":{}{})", correlation, correlation, more);
  };
  trace.mark("ProfilerStep#1", 0, 1000).mark("net", 5, 300);
  trace.op("aten::linear", 10, 100, R"("Sequence number":4)")
      .op("aten::addmm", 12, 90, R"("Sequence number":5)");
  trace.event("cuda_runtime", "cudaLaunchKernel", 1, 20, 5, launched(70));
  trace.event("cuda_runtime", "cudaMemcpyAsync", 1, 200, 5, launched(71));
  const std::string evaluate = "autograd::engine::evaluate_function: AddmmBackward0";
  trace.event("cpu_op", evaluate, 2, 400, 100, R"("Sequence number":5,"Fwd thread id":1)");
  trace.event("cpu_op", "aten::mm", 2, 410, 80);
  trace.event("cuda_runtime", "cudaLaunchKernel", 2, 420, 5, launched(72));
  const char* const seven = R"(,"device":0,"stream":7)";
  trace.event("kernel", "gemm", 7, 900, 300, launched(70, seven));
  trace.event("kernel", "gemm", 7, 1300, 500, launched(72, seven));
  trace.event("gpu_memcpy", "Memcpy HtoD", 20, 950, 40,
              launched(71, R"(,"device":0,"stream":20,"bytes":4096)"));
  trace.event("kernel", "lost", 7, 100, 1, launched(99, seven));
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->device, "cuda:0");
  EXPECT_EQ(read->environment.at("gpu.name"), "GPU Zero");
  EXPECT_EQ(read->environment.at("trace.stream_0"), "stream 7 of device 0");
  ASSERT_EQ(read->kernels.size(), 3u) << "no operator is a kernel beside them";
  const ImportedKernel* const forward = find_kernel(*read, "aten::addmm", "forward");
  const ImportedKernel* const backward = find_kernel(*read, "aten::mm", "backward");
  ASSERT_TRUE(forward != nullptr && backward != nullptr);
  EXPECT_EQ(forward->info.kernel, "gemm");
  EXPECT_EQ(forward->info.scope, "net");
  EXPECT_EQ(backward->info.scope, "net") << "its thread is another";
  EXPECT_EQ(time_of(read->steps[0], *forward), 300'000);
  EXPECT_EQ(time_of(read->steps[0], *backward), 500'000) << "it ran after the step's end, launched within";
  const std::vector<Activity>& others = read->steps[0].activities;
  ASSERT_EQ(others.size(), 4u);
  const auto copy = std::find_if(others.begin(), others.end(),
                                 [](const Activity& a) { return a.kind == Activity::Kind::copy; });
  ASSERT_NE(copy, others.end());
  EXPECT_EQ(copy->bytes, 4096);
  EXPECT_NE(copy->stream, 0);
  EXPECT_EQ(std::count_if(others.begin(), others.end(),
                          [&](const Activity& a) {
                            return a.kind == Activity::Kind::api && a.plan_step == forward->info.plan_step;
                          }),
            1);
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_EQ(read->notes[0], "1 kernel whose launch the trace does not have");
}

TEST(Kineto, OneLaunchOfAGraphStartsManyKernels) {
  KinetoText trace;
  trace.mark("ProfilerStep#1", 0, 100);
  trace.event("cuda_runtime", "cudaGraphLaunch", 1, 10, 5, R"("correlation":7)");
  for (int i = 0; i < 3; ++i)
    trace.event("kernel", fmt::format("void (anonymous namespace)::at::k{}<float, 4>(int)", i), 7,
                20 + 10 * i, 5, R"("correlation":7,"device":0,"stream":7)");
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->kernels.size(), 3u);
  EXPECT_EQ(read->kernels[0].info.op, "at::k0") << "no operator launched it";
  ASSERT_EQ(read->steps[0].activities.size(), 1u);
  EXPECT_EQ(read->steps[0].activities[0].plan_step, 0);
}

TEST(Kineto, WithoutStepsAllIsOne) {
  KinetoText trace;
  trace.op("aten::mm", 0, 10).op("aten::mm", 20, 10);
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->steps.size(), 1u);
  EXPECT_EQ(read->steps[0].duration_ns, 30'000);
  ASSERT_EQ(read->kernels.size(), 1u) << "both executions are of one row";
  EXPECT_EQ(read->steps[0].samples.size(), 2u);
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_NE(read->notes[0].find("marks no steps"), std::string::npos);
}

TEST(Kineto, OtherThreadsAreOtherStreams) {
  KinetoText trace;
  trace.mark("ProfilerStep#1", 0, 100).op("aten::mm", 10, 50);
  trace.event("cpu_op", "aten::mm", 9, 20, 50).event("cpu_op", "aten::stack", 8, 20, 5);
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->kernels.size(), 3u);
  std::vector<std::int32_t> streams;
  for (const ImportedKernel& kernel : read->kernels) streams.push_back(kernel.info.stream);
  EXPECT_EQ(streams, (std::vector<std::int32_t>{0, 4, 5}));
  EXPECT_EQ(read->environment.at("trace.stream_4"), "thread 7/9");
  EXPECT_EQ(stream_name(4), "stream 4") << "not one that our own runs use for something";
  EXPECT_EQ(stream_name(4, read->environment), "stream 4 (thread 7/9)");
}

TEST(Kineto, ModulesOfTracesWithStacks) {
  KinetoText trace;
  trace.mark("ProfilerStep#1", 0, 100);
  trace.event("python_function", "train.py(3): main", 1, 0, 100);
  trace.event("python_function", "nn.Module: Net_0", 1, 1, 50);
  trace.event("python_function", "nn.Module: Linear_3", 1, 2, 20);
  trace.op("aten::linear", 3, 10);
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(find_kernel(*read, "aten::linear", "forward")->info.scope, "Net_0/Linear_3");
  EXPECT_EQ(read->steps[0].host.size(), 3u) << "the step and two modules";
}

// PyTorch without Kineto: a bare list, no categories, no numbers.
TEST(Kineto, OldTracesAreMatchedByOrder) {
  std::string text = "[";
  const auto add = [&](const char* name, int start_us, int duration_us) {
    text += fmt::format(
        R"({}{{"name": "{}", "ph": "X", "ts": {}, "dur": {}, "tid": 1, "pid": "CPU functions", "args": {{}}}})",
        text.size() > 1 ? ", " : "", name, start_us, duration_us);
  };
  add("ProfilerStep#0", 0, 1000);
  for (const char* module : {"first", "second"}) {
    const int t = module[0] == 'f' ? 10 : 110;
    add(module, t, 80);
    add("aten::linear", t + 1, 60);
    add("aten::t", t + 2, 5);
    add("aten::transpose", t + 3, 2);
    add("aten::addmm", t + 10, 40);
  }
  const char* const order[] = {"AddmmBackward0", "TBackward0", "AddmmBackward0", "TBackward0"};
  for (int i = 0; i < 4; ++i) {
    add((std::string("autograd::engine::evaluate_function: ") + order[i]).c_str(), 300 + 50 * i, 40);
    add(order[i], 301 + 50 * i, 30);
    add(i % 2 == 0 ? "aten::mm" : "aten::t", 302 + 50 * i, 20);
  }
  const auto read = read_text(text + "]");
  ASSERT_TRUE(read.ok()) << read.error().message;
  std::vector<std::string> scopes;
  for (const ImportedKernel& k : read->kernels)
    if (k.info.phase == "backward") scopes.push_back(k.info.scope);
  EXPECT_EQ(scopes, (std::vector<std::string>{"second", "second", "first", "first"}));
  ASSERT_EQ(read->notes.size(), 2u);
  EXPECT_NE(read->notes[0].find("no Kineto"), std::string::npos);
  EXPECT_NE(read->notes[1].find("no sequence numbers"), std::string::npos);
}

}  // namespace
}  // namespace gradloom::test
