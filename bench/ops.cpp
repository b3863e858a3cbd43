// Times the CPU kernel of every operator row at its benchmark samples (engine/ops: `bench = true`), and, as
// ROW/SAMPLE/gradient, the kernels of its gradient rule after the default passes, one after the other (but
// for elementwise rows), beside what this machine can do:
//   GB/s, of copy      bytes that must move (every input read once, every output written once) over time; a copy of as many
//                      bytes by as many threads
//   GFLOP/s, of peak   operations over time; a square matrix product in oneDNN by as many threads
//   of bare            products and convolutions: the same in oneDNN with memory layouts of its own choice, over ours
// Kernel, copy and bare primitive run in turn, so that a busy machine hits all of them; the median of the
// ratios is shown. Each begins with empty caches, as in a training step, whose tensors together are far
// larger than them; --warm leaves in the caches what the run before put there.
//   ops [--benchmark_filter=REGEX] [--benchmark_repetitions=N] [--threads=N] [--warm]
#include <benchmark/benchmark.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops/preparation.h"
#include "engine/onnx/read/sample_graph.h"
#include "kernels/launcher.h"
#include "kernels/prepared/dnnl.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using dnnl::memory;
using Run = std::function<void()>;

constexpr int kRuns = 51;  // of each row

double seconds_of(const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Fills the caches of every thread with something else; nothing when the caches are to stay warm.
class Caches {
 public:
  explicit Caches(bool warm)
      : other_(warm ? 0
                    : static_cast<std::size_t>(std::max(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), 64L << 20)) /
                          sizeof(std::int64_t),
               1) {}

  void empty() const {
    kernels::for_parts(kernels::threads(), [&](std::int64_t) {  // all of it in each thread
      std::int64_t sum = 0;
      for (const std::int64_t word : other_) sum += word;
      benchmark::DoNotOptimize(sum);
    });
  }

 private:
  std::vector<std::int64_t> other_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::shared_ptr<char> aligned_bytes(std::size_t bytes) {
  const std::size_t total = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
  std::shared_ptr<char> memory(static_cast<char*>(std::aligned_alloc(64, total)), std::free);
  std::memset(memory.get(), 0, total);
  return memory;
}

// ---- what the machine can do --------------------------------------------------------------------------------

// Reads and writes `bytes` together.
Run copy_of(double bytes) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  auto from = aligned_bytes(half), to = aligned_bytes(half);
  return [=, count = static_cast<std::int64_t>(half)] {
    const std::int64_t part = 1 << 16;
    kernels::for_parts((count + part - 1) / part, [&](std::int64_t number) {
      const std::int64_t at = number * part;
      std::memcpy(to.get() + at, from.get() + at, static_cast<std::size_t>(std::min(part, count - at)));
    });
  };
}

// A primitive on memory of its own.
Run primitive_run(const dnnl::primitive& primitive,
                  const std::vector<std::pair<int, memory::desc>>& arguments) {
  std::unordered_map<int, memory> map;
  for (const auto& [slot, desc] : arguments) {
    const memory m(desc, kernels::prepared::engine());
    std::memset(m.get_data_handle(), 0, desc.get_size());
    map.emplace(slot, m);
  }
  return [=] {
    static dnnl::stream stream(kernels::prepared::engine());
    primitive.execute(stream, map);
    stream.wait();
  };
}

memory::desc any(const memory::dims& dims) { return {dims, memory::data_type::f32, memory::format_tag::any}; }

Run bare_matmul(const memory::dims& a, const memory::dims& b, const memory::dims& c) {
  const dnnl::matmul::primitive_desc pd({any(a), any(b), any(c)}, kernels::prepared::engine());
  return primitive_run(
      dnnl::matmul(pd),
      {{DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, pd.dst_desc()}});
}

// Seconds of a multiply or an add at the machine's peak.
double peak_flops() {
  const std::int64_t n = 1536;
  const Run product = bare_matmul({n, n}, {n, n}, {n, n});
  product();
  double best = 1e9;
  for (int i = 0; i < 12; ++i) best = std::min(best, seconds_of(product));
  return 2.0 * n * n * n / best;
}

// ---- bare oneDNN ------------------------------------------------------------------------------------------

// Shapes of a convolution as oneDNN has them: groups are an axis of the weights, dilations count from 0.
struct BareConvolution {
  memory::dims x, w, y, strides, dilations, before, after;
};

BareConvolution bare_shapes(const NodeTypes& types, const Shape& x, const Shape& w, const Shape& y) {
  const std::size_t axes = x.size() - 2;
  const auto list = [&](const char* name, std::int64_t fallback, std::size_t count) {
    return types.attrs.integers(name, std::vector<std::int64_t>(count, fallback));
  };
  const std::vector<std::int64_t> pads = list("pads", 0, 2 * axes);
  BareConvolution c{x, w, y, list("strides", 1, axes), list("dilations", 1, axes), {}, {}};
  for (std::int64_t& d : c.dilations) --d;
  c.before.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  c.after.assign(pads.begin() + static_cast<std::ptrdiff_t>(axes), pads.end());
  if (const std::int64_t groups = types.attrs.integer("group", 1); groups > 1) {
    c.w[0] /= groups;
    c.w.insert(c.w.begin(), groups);
  }
  return c;
}

// The shape without blocks of channels (passes/block_channels.cpp).
Shape plain(const NodeTypes& types, const char* block, Shape shape) {
  if (!types.attrs.has(block)) return shape;
  shape[1] *= shape.back();
  shape.pop_back();
  return shape;
}

Run bare_convolution(const NodeTypes& types, const std::string& op) {
  const Shape &a = types.inputs[0].shape, &b = types.inputs[1].shape, &out = types.outputs[0].shape;
  const auto convolution = [&](const Shape& x, const Shape& w, const Shape& y) {
    return bare_shapes(types, plain(types, "x_block", x), w, plain(types, "y_block", y));
  };
  const BareConvolution c = op == "Conv"           ? convolution(a, b, out)
                            : op == "ConvGradData" ? convolution(out, b, a)
                                                   : convolution(b, out, a);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, any(c.x), any(c.w), any(c.y), c.strides, c.dilations,
       c.before, c.after},
      kernels::prepared::engine());
  if (op == "Conv")
    return primitive_run(dnnl::convolution_forward(forward), {{DNNL_ARG_SRC, forward.src_desc()},
                                                              {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                                                              {DNNL_ARG_DST, forward.dst_desc()}});
  if (op == "ConvGradData") {
    const dnnl::convolution_backward_data::primitive_desc pd(
        {algorithm, any(c.x), any(c.w), any(c.y), c.strides, c.dilations, c.before, c.after},
        kernels::prepared::engine(), forward);
    return primitive_run(dnnl::convolution_backward_data(pd), {{DNNL_ARG_DIFF_SRC, pd.diff_src_desc()},
                                                               {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                                               {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()}});
  }
  const dnnl::convolution_backward_weights::primitive_desc pd(
      {algorithm, any(c.x), any(c.w), any(c.y), c.strides, c.dilations, c.before, c.after},
      kernels::prepared::engine(), forward);
  return primitive_run(dnnl::convolution_backward_weights(pd),
                       {{DNNL_ARG_SRC, pd.src_desc()},
                        {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()},
                        {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()}});
}

// The operation in oneDNN alone; empty: it is not one of oneDNN's here.
Run bare_run(const OpDef& op, const NodeTypes& types) {
  const std::string name = op.name;
  if (name == "Conv" || name == "ConvGradData" || name == "ConvGradWeights")
    return bare_convolution(types, name);
  if (name != "MatMul") return {};
  memory::dims a = types.inputs[0].shape, b = types.inputs[1].shape;
  memory::dims c = types.outputs[0].shape;
  if (b.size() == 2 && a.size() > 2) {  // rows of all batches
    const std::int64_t k = a.back(), n = c.back();
    const std::int64_t rows = element_count(a) / k;
    a = {rows, k};
    c = {rows, n};
  }
  return bare_matmul(a, b, c);
}

// ---- one row ----------------------------------------------------------------------------------------------

// A node alone: its kernel and the memory of everything it touches.
struct Prepared {
  Graph graph;
  std::string label;
  Cost cost;
  Run run, bare;
};

// Elementwise samples are small, for tests; here their rows become as many elements as the activations of
// GPT-2 124M at batch 4 x 1024.
Sample enlarged(const OpDef& op, Sample sample) {
  if ((op.traits & kElementwise) == 0) return sample;
  for (SampleInput& input : sample.inputs)
    if (input.type.shape.size() == 2 && input.values.empty()) input.type.shape[0] *= 48;
  return sample;
}

// Runs node `id` on the memory of its values; views get that of what they see.
Result<Run> node_run(const Graph& graph, const Node& node, std::vector<std::shared_ptr<char>>& memory,
                     std::string& label) {
  if (node.op->has(kView)) {
    memory[node.outputs[0]] = memory[node.inputs[0]];
    return Run();
  }
  if (node.op->cpu == nullptr) return no_kernel(std::string(node.op->name) + " has no kernel");
  auto kernel = std::make_shared<Kernel>(TRY(node.op->cpu(node_types(graph, node))));
  label += (label.empty() ? "" : ", ") + kernel->name;
  std::vector<std::shared_ptr<char>> in, out;
  for (const ValueId id : node.inputs) in.push_back(id == kNone ? nullptr : memory[id]);
  for (const ValueId id : node.outputs) {
    if (id != kNone && memory[id] == nullptr) memory[id] = aligned_bytes(byte_size(graph.type(id)));
    out.push_back(id == kNone ? nullptr : memory[id]);
  }
  return Run([=, workspace = aligned_bytes(kernel->workspace_bytes)] {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const auto& i : in) inputs.push_back(i.get());
    for (const auto& o : out) outputs.push_back(o.get());
    const kernels::RandomState random{1, 2};
    kernel->run({inputs.data(), outputs.data(), workspace.get(), &random, kernels::cpu_launcher()});
  });
}

std::shared_ptr<char> copy_of_tensor(const Tensor& t) {
  auto memory = aligned_bytes(t.bytes());
  std::memcpy(memory.get(), t.data(), t.bytes());
  return memory;
}

// Adds the gradient of output 0 of node 0 in every floating input; returns what it gives.
Result<std::vector<ValueId>> add_gradient(GraphBuilder& b, SampleNode& made) {
  const Graph& graph = b.graph();
  GradContext ctx{b, graph.nodes[0], 0, {}, {}, {}};
  ctx.out_grads.assign(ctx.node.outputs.size(), kNone);
  ctx.out_grads[0] = b.input("dy", graph.type(ctx.node.outputs[0]));
  for (const ValueId id : ctx.node.inputs)
    ctx.wanted.push_back(id != kNone && is_float(graph.type(id).dtype) && made.feeds.count(id) > 0);
  ctx.in_grads.assign(ctx.node.inputs.size(), kNone);
  TRY(ctx.node.op->grad(ctx));
  std::vector<ValueId> results;
  std::copy_if(ctx.in_grads.begin(), ctx.in_grads.end(), std::back_inserter(results),
               [](ValueId id) { return id != kNone; });
  if (results.empty()) return no_kernel("nothing has a gradient");
  return results;
}

// What a gradient must read and write: what comes from outside, and its results.
Cost gradient_cost(const Graph& graph, const std::vector<ValueId>& results) {
  Cost cost;
  std::vector<bool> seen(graph.values.size());
  for (std::size_t n = 1; n < graph.nodes.size(); ++n) {
    cost.flops += graph.nodes[n].op->cost(node_types(graph, graph.nodes[n])).flops;
    for (const ValueId id : graph.nodes[n].inputs) {
      if (id == kNone || seen[id] || graph.value(id).data.defined()) continue;
      seen[id] = true;
      const NodeId producer = graph.value(id).producer;
      if (producer == kNone || producer == 0)
        cost.bytes_read += static_cast<double>(byte_size(graph.type(id)));
    }
  }
  for (const ValueId id : results) cost.bytes_written += static_cast<double>(byte_size(graph.type(id)));
  return cost;
}

// The graph of the gradient alone, what it needs of the forward node an input, after the passes that a
// training step has by default.
Status compile_gradient(Graph& graph, const std::vector<ValueId>& results) {
  for (const ValueId id : graph.nodes[0].outputs) {
    if (id == kNone) continue;
    graph.values[id].producer = kNone;
    graph.values[id].role = Role::input;
    graph.inputs.push_back(id);
  }
  graph.nodes[0] = {};
  graph.outputs = results;
  std::vector<PassReport> reports;
  return run_passes(graph, default_pipeline(), PassPhase::post_gradient, reports, kernels::Target::cpu);
}

Result<std::shared_ptr<Prepared>> prepare(const OpDef& op, const Sample& sample, bool gradient) {
  auto p = std::make_shared<Prepared>();
  Graph& graph = p->graph;
  GraphBuilder b(graph);
  SampleNode made = TRY(add_sample(b, op, sample, DType::f32));
  std::vector<ValueId> results;
  if (gradient) results = TRY(add_gradient(b, made));
  std::vector<std::shared_ptr<char>> memory;
  const auto provide = [&] {
    memory.resize(graph.values.size());
    for (ValueId id = 0; id < graph.values.size(); ++id) {
      const auto fed = made.feeds.find(id);
      if (memory[id] != nullptr) continue;
      if (graph.value(id).data.defined())
        memory[id] = copy_of_tensor(graph.value(id).data);
      else if (fed != made.feeds.end())
        memory[id] = copy_of_tensor(fed->second);
      else if (graph.value(id).producer == kNone)
        memory[id] = aligned_bytes(byte_size(graph.type(id)));  // upstream gradients
    }
  };
  provide();
  std::string forward;
  p->run = TRY(node_run(graph, graph.nodes[0], memory, forward));
  if (!gradient) {
    const NodeTypes types = node_types(graph, graph.nodes[0]);
    p->label = forward;
    p->cost = op.cost(types);
    p->bare = bare_run(op, types);
    return p;
  }
  p->run();
  p->cost = gradient_cost(graph, results);
  TRY(compile_gradient(graph, results));
  provide();
  std::vector<Run> runs;
  for (const NodeId n : TRY(topological_order(graph)))
    if (Run run = TRY(node_run(graph, graph.node(n), memory, p->label))) runs.push_back(std::move(run));
  p->run = [runs] {
    for (const Run& run : runs) run();
  };
  return p;
}

void time_row(benchmark::State& state, const OpDef& op, const Sample& sample, bool gradient, double peak,
              const Caches& caches) {
  const auto prepared = prepare(op, enlarged(op, sample), gradient);
  if (!prepared.ok()) return state.SkipWithError(prepared.error().message.c_str());
  const Prepared& p = **prepared;
  const double bytes = p.cost.bytes_read + p.cost.bytes_written;
  const Run copy = copy_of(bytes);
  p.run();
  copy();
  if (p.bare) p.bare();
  const auto timed = [&](const Run& run) {
    caches.empty();
    return seconds_of(run);
  };
  std::vector<double> ours, of_copy, of_bare;
  for (auto _ : state) {
    const double t = timed(p.run);
    state.SetIterationTime(t);
    ours.push_back(t);
    of_copy.push_back(timed(copy) / t);
    if (p.bare) of_bare.push_back(timed(p.bare) / t);
  }
  const double typical = median(ours);
  state.counters["GB/s"] = bytes / typical / 1e9;
  state.counters["of copy"] = median(of_copy);
  state.counters["GFLOP/s"] = p.cost.flops / typical / 1e9;
  state.counters["of peak"] = p.cost.flops / typical / peak;
  if (p.bare) state.counters["of bare"] = median(of_bare);
  state.SetLabel(p.label);
}

int run(int argc, char** argv) {
  int threads = kernels::threads();
  bool warm = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--threads=", 10) == 0) threads = std::atoi(argv[i] + 10);
    warm = warm || std::strcmp(argv[i], "--warm") == 0;
  }
  kernels::set_threads(std::max(threads, 1));
  omp_set_num_threads(kernels::threads());  // of the bare primitives
  const Caches caches(warm);
  const double peak = peak_flops();
  benchmark::AddCustomContext("threads", std::to_string(kernels::threads()));
  benchmark::AddCustomContext("matrix product", std::to_string(std::llround(peak / 1e9)) + " GFLOP/s");
  benchmark::AddCustomContext("level", kernels::cpu().isa);
  benchmark::AddCustomContext("caches", warm ? "warm" : "empty");
  for (const OpDef* op : all_ops()) {
    if (op->samples == nullptr || op->cpu == nullptr) continue;
    for (const Sample& sample : op->samples()) {
      if (!sample.bench) continue;
      for (const bool gradient : {false, true}) {
        if (gradient && (op->grad == nullptr || op->has(kElementwise) || op->has(kNoGradient))) continue;
        benchmark::RegisterBenchmark(
            (std::string(op->name) + "/" + sample.name + (gradient ? "/gradient" : "")).c_str(),
            [=, &caches](benchmark::State& state) { time_row(state, *op, sample, gradient, peak, caches); })
            ->UseManualTime()
            ->Iterations(kRuns)
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) { return gradloom::run(argc, argv); }
