// Sizes that cost: batches too small for their kernels, dims that kernels are slow for, positions that are padding.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/advice/subject.h"
#include "app/job.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/padding/token_rows.h"
#include "sessions/stats.h"

namespace gradloom::advice {
namespace {

bool can_be_cut(const std::string& data) { return data == "synthetic" || data.rfind("tokens", 0) == 0; }

// Of a bigger batch, the smallest that gains nearly as much as any that the memory holds.
Result<const ChangedJob*> better_batch(Subject& subject, std::int64_t batch) {
  constexpr double kOfMemory = 0.8, kNearly = 0.8;
  const double room = kOfMemory * static_cast<double>(subject.machine().memory_bytes);
  const ChangedJob* best = nullptr;
  for (const std::int64_t factor : {2, 4, 8, 16}) {
    std::string change = "dim=batch=" + std::to_string(batch * factor);
    if (!can_be_cut(subject.recipe().data)) change += ";data=synthetic";
    const ChangedJob* const changed = TRY(subject.changed(change));
    if (changed == nullptr || static_cast<double>(changed->candidate.peak_bytes) > room) break;
    if (best == nullptr || best->gain.ns < kNearly * changed->gain.ns) best = changed;
  }
  return best;
}

}  // namespace

Status find_batch(Subject& subject, Findings& found) {
  const Recipe& recipe = subject.recipe();
  const auto batch = recipe.dims.find("batch");
  if (batch == recipe.dims.end()) return {};
  const ChangedJob* const changed = TRY(better_batch(subject, batch->second));
  if (changed == nullptr) return {};
  constexpr double kFewFixed = 3;  // a kernel of so many times the fixed cost is mostly that
  const double small_ns = kFewFixed * subject.predictor().fixed_ns();
  std::int64_t count = 0;
  double ns = 0;
  for (const KernelInfo& kernel : subject.job().kernels)
    if (const double one = subject.predictor().ns(kernel); one <= small_ns) {
      ++count;
      ns += one;
    }
  const std::int64_t larger = changed->candidate.recipe.dims.at("batch");
  Finding finding =
      subject.of_change(*changed, fmt::format("batch {}: batch {} takes {} less per sample", batch->second,
                                              larger, percent_text(subject.share(changed->gain.ns))));
  if (count > 0)
    finding.numbers.push_back(
        fmt::format("{} of {} take {} or less, whatever their size: {}", count,
                    plural_text(static_cast<std::int64_t>(subject.job().kernels.size()), "kernel"),
                    duration_text(small_ns), subject.of_a_step(ns)));
  finding.numbers.push_back(fmt::format("batch {} plans {} of the machine's {}, batch {} {}", batch->second,
                                        bytes_text(static_cast<double>(subject.job().peak_bytes)),
                                        bytes_text(static_cast<double>(subject.machine().memory_bytes)),
                                        larger,
                                        bytes_text(static_cast<double>(changed->candidate.peak_bytes))));
  finding.numbers.push_back(fmt::format(
      "a step then has {0} times the samples: compare, which tells steps, shows a gain above {1:.3f}x",
      larger / batch->second, static_cast<double>(batch->second) / static_cast<double>(larger)));
  finding.remedy = "another batch is another training: the learning rate may want to change with it";
  if (!can_be_cut(recipe.data)) finding.remedy += "; data of that batch have to be made";
  found.push_back(std::move(finding));
  return {};
}

namespace {

constexpr std::int64_t kEven = 16;  // numbers of a vector register of 512 bits

bool even(std::int64_t dim) { return dim % kEven == 0; }
std::int64_t made_even(std::int64_t dim) {
  const std::int64_t step = dim >= 1024 ? 4 * kEven : kEven;
  return (dim + step - 1) / step * step;
}

// The last two dims of all that a product reads and writes.
std::set<std::int64_t> product_dims(const Graph& graph, const Node& node) {
  std::set<std::int64_t> dims;
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const ValueId id : *values) {
      if (id == kNone || !is_float(graph.type(id).dtype)) continue;
      const Shape& shape = graph.type(id).shape;
      for (std::size_t i = shape.size() > 2 ? shape.size() - 2 : 0; i < shape.size(); ++i)
        dims.insert(shape[i]);
    }
  return dims;
}

// FLOPs per ns of products whose sizes are all even.
class EvenRates {
 public:
  EvenRates(const Graph& graph, const std::vector<NodeTime>& times) {
    for (const NodeTime& time : times) {
      if (!is_product(*time.node) || time.kernel->flops <= 0) continue;
      const std::set<std::int64_t> dims = product_dims(graph, *time.node);
      if (std::all_of(dims.begin(), dims.end(), even)) all_.emplace_back(time.kernel->flops, time.ns);
    }
  }
  // Of those about as large: a small product is slow for another reason. Nothing: there is none.
  std::optional<double> of(double flops) const {
    constexpr double kAlike = 8;
    std::vector<double> rates;
    for (const auto& [others, ns] : all_)
      if (others <= kAlike * flops && flops <= kAlike * others) rates.push_back(others / ns);
    return rates.empty() ? std::nullopt : std::optional(median(rates));
  }

 private:
  std::vector<std::pair<double, double>> all_;  // FLOPs, ns
};

// A dim of a parameter that is no multiple, and the products that have it.
struct OddDim {
  std::string parameter;
  std::int64_t products = 0;
  double ns = 0, flops = 0, even_ns = 0;  // even_ns: at the rate of products of even sizes, padded
};

}  // namespace

Status find_odd_sizes(Subject& subject, Findings& found) {
  const Graph& graph = subject.graph();
  const std::vector<NodeTime> times = subject.node_times();
  std::map<std::int64_t, OddDim> odd;
  for (const ValueId id : graph.parameters)
    for (const std::int64_t dim : graph.type(id).shape)
      if (dim > 2 * kEven && !even(dim) && graph.type(id).shape.size() >= 2)
        odd.try_emplace(dim, OddDim{graph.value(id).name});
  if (odd.empty()) return {};
  const EvenRates rates(graph, times);
  for (const NodeTime& time : times) {
    if (!is_product(*time.node) || time.kernel->flops <= 0) continue;
    const auto rate = rates.of(time.kernel->flops);
    if (!rate) continue;
    for (const std::int64_t dim : product_dims(graph, *time.node)) {
      const auto at = odd.find(dim);
      if (at == odd.end()) continue;
      const double more = static_cast<double>(made_even(dim)) / static_cast<double>(dim);
      ++at->second.products;
      at->second.ns += time.ns;
      at->second.flops += time.kernel->flops;
      at->second.even_ns += std::min(time.ns, time.kernel->flops * more / *rate);
    }
  }
  for (const auto& [dim, of] : odd) {
    const double gain = of.ns - of.even_ns;
    if (of.products == 0 || !subject.matters(gain)) continue;
    Finding finding = subject.of_model(
        {gain, 0.3 * gain, 1.2 * gain, 0},
        fmt::format("size {} of {} is no multiple of {}: {} reach {}, even ones of their size {}", dim,
                    escaped(of.parameter), kEven, plural_text(of.products, "product"),
                    count_text(of.flops / of.ns * 1e9, "FLOP/s"),
                    count_text(of.flops / of.even_ns * 1e9, "FLOP/s")),
        fmt::format("make it {} in the model; what was added is never a label", made_even(dim)));
    finding.numbers.push_back("these products take " + subject.of_a_step(of.ns));
    found.push_back(std::move(finding));
  }
  return {};
}

namespace {

// Contents of a value that follows from inputs by elementwise operators; undefined: it does not.
Tensor value_in(const Graph& graph, ValueId id, const std::map<std::string, Tensor>& batch) {
  const Value& value = graph.value(id);
  if (value.producer == kNone) {
    const auto at = batch.find(value.name);
    return at != batch.end() ? at->second : value.data;
  }
  const Node& node = graph.nodes[value.producer];
  if (!node.op->has(kElementwise) && !node.op->has(kView) && !is_op(node, "Cast")) return {};
  std::vector<Tensor> inputs;
  for (const ValueId in : node.inputs) {
    inputs.push_back(in == kNone ? Tensor() : value_in(graph, in, batch));
    if (in != kNone && !inputs.back().defined()) return {};
  }
  const auto outputs = evaluate(*node.op, node.attrs, inputs);
  return outputs.ok() ? outputs->front() : Tensor();
}

// The part of the positions that are tokens in the first batches; nothing: the data do not say.
std::optional<double> tokens_part(const Prepared& prepared) {
  const Graph& graph = prepared.compiled.train.graph;
  const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& n) { return n.op == &token_rows_op(); });
  const auto batches = recipe_batches(prepared.recipe, input_specs(graph));
  if (node == graph.nodes.end() || !batches) return std::nullopt;
  const bool inverted = node->attrs.integer("inverted") != 0;
  constexpr std::int64_t kLookedAt = 8;
  const std::int64_t most = (*batches)->count() > 0 ? std::min(kLookedAt, (*batches)->count()) : kLookedAt;
  double tokens = 0, positions = 0;
  for (std::int64_t i = 0; i < most; ++i) {
    const auto batch = (*batches)->batch(i);
    if (!batch) return std::nullopt;
    const Tensor mask = value_in(graph, node->inputs[0], *batch);
    if (!mask.defined()) return std::nullopt;
    for (const double m : mask.to_f64()) tokens += (m != 0) != inverted ? 1 : 0;
    positions += static_cast<double>(mask.count());
  }
  return positions > 0 ? std::optional(tokens / positions) : std::nullopt;
}

}  // namespace

// Kernels of rows are planned for all positions and compute those that are tokens.
Status find_padding(Subject& subject, Findings& found) {
  Pipeline pipeline = TRY(recipe_pipeline(subject.recipe()));
  const PassDef& def = *find_pass("drop-padding");
  if (subject.recipe().data == "synthetic") return {};
  if (pipeline.find(def.name) != nullptr) return {};
  pipeline.passes.insert(place_of(pipeline, def, TRY(recipe_rules(subject.recipe()))),
                         TRY(configure_pass(def)));
  const std::string change = TRY(pipeline_change(subject.recipe(), pipeline));
  const ChangedJob* const changed = TRY(subject.changed(change));
  if (changed == nullptr) return {};
  const auto prepared = TRY(subject.prepared_with(change));
  const auto part = tokens_part(*prepared);
  if (!part || *part > 0.95) return {};
  double rows_ns = 0;
  std::int64_t kernels = 0;
  for (const KernelInfo& kernel : changed->candidate.kernels)
    if (kernel.op == "PackedRows") {
      rows_ns += subject.predictor().ns(kernel);
      ++kernels;
    }
  ChangedJob shown = *changed;
  if (!changed->timed) {
    // What was predicted wrong of all rows is so of those that stay. Fewer rows may go slower each.
    const double saved = (1 - *part) * rows_ns, ns = changed->gain.ns + saved;
    shown.gain.ns = ns;
    shown.gain.low_ns = ns - *part * (changed->gain.ns - changed->gain.low_ns) - 0.25 * saved;
    shown.gain.high_ns = ns + *part * (changed->gain.high_ns - changed->gain.ns) + 0.05 * saved;
  }
  Finding finding =
      subject.of_change(shown, fmt::format("{} of the positions are padding: {} compute them all",
                                           percent_text(1 - *part), plural_text(kernels, "kernel")));
  finding.numbers.push_back("with drop-padding they compute tokens alone");
  finding.remedy = "right where the loss reads nothing at padding: " + subject.proof(change);
  found.push_back(std::move(finding));
  return {};
}

namespace {

// Products whose sizes are odd are rule odd_sizes' business, what another rule would take away is that rule's.
bool is_explained(const Subject& subject, const NodeTime& time, const Findings& found) {
  const std::set<std::int64_t> dims =
      is_product(*time.node) ? product_dims(subject.graph(), *time.node) : std::set<std::int64_t>();
  if (std::any_of(dims.begin(), dims.end(), [](std::int64_t d) { return d > 2 * kEven && !even(d); }))
    return true;
  return std::any_of(found.begin(), found.end(), [&](const Finding& finding) {
    if (finding.gain.ns <= 0) return false;
    const bool whole = finding.rule == "precision" || finding.rule == "batch";  // of every kernel
    return !whole && (finding.node == time.node->name || finding.nodes.count(time.node->name) != 0 ||
                      subject.takes_away(finding.change, *time.kernel));
  });
}

// Where nothing is known of the processor it is measured before.
std::string roofline_command(const Subject& subject) {
  const Recipe& job = subject.recipe();
  std::string measure;
  if (subject.machine().types.empty())
    measure = "gradloom devices --measure" + std::string(job.device == "cpu" ? " --device cpu" : "") +
              (job.threads > 0 ? " --threads " + std::to_string(job.threads) : "") + " && ";
  return measure + "gradloom plan " + subject.job_flags() + " --roofline";
}

}  // namespace

// A kernel that takes a large part of the step, and several times as long as its work takes others of its size.
Status find_efficiency(Subject& subject, Findings& found) {
  constexpr double kLarge = 0.05, kFar = 4;
  struct Worst {
    const NodeTime* time = nullptr;
    double ns = 0, best_ns = 0, excess_ns = 0;
    std::int64_t nodes = 0;
  };
  const std::vector<NodeTime> times = subject.node_times();
  std::map<std::string, Worst> by_kernel;  // alike nodes of all layers
  for (const NodeTime& time : times) {
    const double own_ns = time.ns - subject.predictor().fixed_ns(),
                 best = subject.predictor().best_ns(*time.kernel);
    if (best <= 0 || own_ns < kFar * best || is_explained(subject, time, found)) continue;
    Worst& worst = by_kernel[time.kernel->kernel + " " + time.kernel->types];
    if (worst.time == nullptr || time.ns > worst.time->ns) worst.time = &time;
    worst.ns += time.ns;
    worst.best_ns += best;
    worst.excess_ns += own_ns - best;
    ++worst.nodes;
  }
  for (const auto& [_, worst] : by_kernel) {
    if (subject.share(worst.ns) < kLarge) continue;
    const KernelInfo& kernel = *worst.time->kernel;
    const double bytes = kernel.bytes_read + kernel.bytes_written, ns = worst.time->ns;
    Finding finding;
    finding.title =
        fmt::format("{}{} ({}{}) takes {:.1f} times as long as others of its size would",
                    worst.nodes > 1 ? std::to_string(worst.nodes) + " x " : "", kernel.op,
                    escaped(kernel.node), worst.nodes > 1 ? ", .." : "", worst.ns / worst.best_ns);
    finding.node = kernel.node;
    finding.gain = {0.5 * worst.excess_ns, 0, worst.excess_ns, 0};
    finding.numbers.push_back("takes " + subject.of_a_step(worst.ns));
    finding.numbers.push_back(
        fmt::format("reaches {} and {}/s; at the best rates of kernels of its size it would take {}",
                    count_text(kernel.flops / ns * 1e9, "FLOP/s"), bytes_text(bytes / ns * 1e9),
                    duration_text(worst.best_ns)));
    finding.numbers.push_back("no size, type or pass explains it");
    finding.remedy =
        "look at its place under the roofs and at its operands' layout; another operator that computes the same "
        "may have the better kernel";
    finding.command = roofline_command(subject);
    found.push_back(std::move(finding));
  }
  return {};
}

}  // namespace gradloom::advice
