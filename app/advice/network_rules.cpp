// Causes that lie in how the network is written: it computes what it need not, or in more kernels than it needs.
//
// Products: product_rules.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "app/advice/subject.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/elementwise/fused.h"
#include "passes/product.h"

namespace gradloom::advice {
namespace {

// Of all kernels, each by the part of its nodes; and the one that takes most.
struct KernelsOf {
  double ns = 0, most_ns = 0;
  std::string node;
};
KernelsOf kernels_of(const std::vector<NodeTime>& times, const Sources& sources) {
  KernelsOf sum;
  for (const NodeTime& time : times) {
    const auto& own = time.kernel->sources;
    const auto shared =
        std::count_if(own.begin(), own.end(), [&](std::uint32_t s) { return sources.count(s) != 0; });
    if (shared == 0) continue;
    const double ns = time.ns * static_cast<double>(shared) / static_cast<double>(own.size());
    sum.ns += ns;
    if (ns <= sum.most_ns) continue;
    sum.most_ns = ns;
    sum.node = time.node->name;
  }
  return sum;
}

bool sums(const Node& node) {
  return node.alive() && (is_op(node, "ReduceSum") || is_op(node, "ReduceMean"));
}

KernelInfo copy_of(const KernelInfo& kernel, double bytes) {
  KernelInfo copy;
  copy.op = copy.kernel = "Gather";
  copy.types = kernel.types;
  copy.bytes_read = copy.bytes_written = bytes;
  return copy;
}

}  // namespace

// ---- f64 where the job computes in f32 ----

namespace {

bool has_f64(const Graph& graph, const std::vector<ValueId>& values) {
  return std::any_of(values.begin(), values.end(), [&](ValueId id) {
    return id != kNone && graph.type(id).dtype == DType::f64 && is_static(graph.type(id).shape) &&
           element_count(graph.type(id).shape) > 1;
  });
}

KernelInfo in_f32(KernelInfo kernel) {
  for (std::size_t at = 0; (at = kernel.types.find("f64", at)) != std::string::npos;)
    kernel.types.replace(at, 3, "f32");
  kernel.bytes_read /= 2;
  kernel.bytes_written /= 2;
  return kernel;
}

// The first tensor of f64, and what brings it in.
std::string where_f64_begins(const Graph& graph) {
  for (const ValueId id : graph.inputs)
    if (has_f64(graph, {id})) return "input " + escaped(graph.value(id).name);
  for (const Node& node : graph.nodes) {
    if (!node.alive() || !has_f64(graph, node.outputs)) continue;
    for (const ValueId in : node.inputs)
      if (in != kNone && graph.value(in).producer == kNone && graph.type(in).dtype == DType::f64)
        return escaped(graph.value(in).name) + ", which " + escaped(node.name) + " reads";
    return escaped(node.name) + " (" + node.op->name + ")";
  }
  return "";
}

}  // namespace

Status find_wide(Subject& subject, Findings& found) {
  if (subject.recipe().precision == "f64") return {};
  const Graph& graph = subject.graph();
  const Predictor& predictor = subject.predictor();
  double ns = 0, narrow_ns = 0, casts_ns = 0;
  std::int64_t count = 0;
  const NodeTime* longest = nullptr;
  const std::vector<NodeTime> times = subject.node_times();
  for (const NodeTime& time : times) {
    if (!has_f64(graph, time.node->inputs) && !has_f64(graph, time.node->outputs)) continue;
    ++count;
    ns += time.ns;
    if (is_cast(*time.node))
      casts_ns += time.ns;
    else
      narrow_ns += time.ns * std::min(1.0, predictor.ns(in_f32(*time.kernel)) / predictor.ns(*time.kernel));
    if (longest == nullptr || time.ns > longest->ns) longest = &time;
  }
  const double gain = ns - narrow_ns;
  if (count == 0 || !subject.matters(gain)) return {};
  Finding finding = subject.of_model(
      {gain, 0.4 * gain, std::max(gain, 0.98 * ns), 0},
      fmt::format("{} {} in f64 ({}{}), where the job computes in {}", plural_text(count, "kernel"),
                  count == 1 ? "works" : "work", escaped(longest->node->name), count > 1 ? ", .." : "",
                  subject.recipe().precision),
      "let it be f32 in the model: constants, buffers, .double() and float64 data");
  finding.node = longest->node->name;
  if (const std::string begins = where_f64_begins(subject.prepared().compiled.forward); !begins.empty())
    finding.numbers.push_back("f64 begins at " + begins);
  finding.numbers.push_back("they take " + subject.of_a_step(ns) + ", as f32 about " +
                            duration_text(narrow_ns));
  if (casts_ns > 0) finding.numbers.push_back("casts among them take " + duration_text(casts_ns));
  found.push_back(std::move(finding));
  return {};
}

// ---- Rows of zeros with a one ----

namespace {

// Kernels that multiply with the value, behind casts and views, and those casts. What else reads it is no cause: a recurrence, a
// convolution or a mask over other axes may need the rows as they are.
struct HotReaders {
  std::vector<const NodeTime*> products, factors, casts;
  bool picks_numbers = false;  // the last axis of what is multiplied is summed up
};

bool multiplies(const Node& node) {
  if (is_op(node, "Mul")) return true;
  if (!is_op(node, "FusedElementwise")) return false;
  const auto code = parse_fused(node.attrs.text("code"));
  return code.ok() && std::any_of(code->begin(), code->end(),
                                  [](const FusedStatement& s) { return s.op == kernels::EwOp::Mul; });
}

// Whether the last axis, and no other, of one of the node's results is summed up.
bool sums_last_axis(const Graph& graph, const std::vector<std::vector<Use>>& uses, const Node& node) {
  for (const ValueId out : node.outputs) {
    if (out == kNone || graph.type(out).shape.empty()) continue;
    Shape without = graph.type(out).shape;
    without.pop_back();
    Shape kept = without;
    kept.push_back(1);
    for (const Use& use : uses[out]) {
      const Node& sum = graph.nodes[use.node];
      if (!sums(sum)) continue;
      const Shape& shape = graph.type(sum.outputs[0]).shape;
      if (shape == without || shape == kept) return true;
    }
  }
  return false;
}

// Nodes of the model that are plain products: a recurrence that was taken apart has products too, but none that its module gathers.
Sources plain_products(const Graph& forward) {
  Sources sources;
  for (NodeId id = 0; id < static_cast<NodeId>(forward.nodes.size()); ++id)
    if (forward.nodes[id].alive() && read_product(forward, id)) add_sources(forward.nodes[id], sources);
  return sources;
}

void add_readers(const Graph& graph, const Sources& plain, const std::vector<std::vector<Use>>& uses,
                 const std::map<const Node*, const NodeTime*>& timed, ValueId id, HotReaders& readers) {
  for (const Use& use : uses[id]) {
    const Node& node = graph.nodes[use.node];
    if (!node.alive()) continue;
    const auto at = timed.find(&node);
    if (node.op->has(kView) || is_cast(node) || node.op->has(kPermutes)) {
      if (at != timed.end()) readers.casts.push_back(at->second);
      add_readers(graph, plain, uses, timed, node.outputs[0], readers);
    } else if (const bool product = is_product(node);
               at != timed.end() &&
               (product ? read_product(graph, use.node) && stands_for(*at->second->kernel, plain)
                        : multiplies(node))) {
      auto& list = product ? readers.products : readers.factors;
      readers.picks_numbers |= !product && sums_last_axis(graph, uses, node);
      if (std::find(list.begin(), list.end(), at->second) == list.end()) list.push_back(at->second);
    }
  }
}

double sum_of(const std::vector<const NodeTime*>& times) {
  double ns = 0;
  for (const NodeTime* time : times) ns += time->ns;
  return ns;
}

}  // namespace

// A product with them picks rows, and a loss that multiplies with them picks one number of each row.
Status find_one_hot(Subject& subject, Findings& found) {
  const Graph& graph = subject.graph();
  const auto uses = uses_of(graph);
  const Sources plain = plain_products(subject.prepared().compiled.forward);
  const std::vector<NodeTime> times = subject.node_times();
  std::map<const Node*, const NodeTime*> timed;
  for (const NodeTime& time : times) timed[time.node] = &time;
  for (const NodeTime& time : times) {
    if (!is_op(*time.node, "OneHot")) continue;
    HotReaders readers;
    add_readers(graph, plain, uses, timed, time.node->outputs[0], readers);
    if (!readers.picks_numbers) readers.factors.clear();
    if (readers.products.empty() && readers.factors.empty()) continue;
    const double made = time.ns + sum_of(readers.casts), products = sum_of(readers.products),
                 factors = sum_of(readers.factors);
    double gathers = 0;
    for (const NodeTime* product : readers.products)
      gathers += subject.predictor().ns(copy_of(*product->kernel, product->kernel->bytes_written));
    const Gain gain{std::max(0.0, made + products - gathers) + 0.7 * factors,
                    std::max(0.0, 0.5 * (made + products) - gathers), made + products + factors, 0};
    if (!subject.matters(gain.ns)) continue;
    const auto classes = element_count(graph.type(time.node->outputs[0]).shape) /
                         std::max<std::int64_t>(1, element_count(graph.type(time.node->inputs[0]).shape));
    const bool picks_rows = products > factors;
    const NodeTime& reader = picks_rows ? *readers.products.front() : time;
    Finding finding = subject.of_model(
        gain,
        fmt::format("OneHot of {} classes ({}) {}", classes, escaped(time.node->name),
                    picks_rows ? "is multiplied to pick rows: " + escaped(reader.node->name)
                               : "is multiplied to pick one number of each row"),
        picks_rows
            ? "pick the rows by their numbers: table[ids], nn.Embedding"
            : "give the loss the classes' numbers: F.cross_entropy(logits, labels), or gather(-1, ids)");
    finding.node = time.node->name;
    finding.numbers.push_back("making it takes " + subject.of_a_step(made));
    if (products > 0)
      finding.numbers.push_back(plural_text(static_cast<std::int64_t>(readers.products.size()), "product") +
                                " with it " + subject.of_a_step(products) + ", gathering the rows about " +
                                duration_text(gathers));
    if (factors > 0)
      finding.numbers.push_back("what else multiplies with it takes " + subject.of_a_step(factors));
    found.push_back(std::move(finding));
  }
  return {};
}

// ---- Statistics of a part that is not trained ----

Status find_frozen_norms(Subject& subject, Findings& found) {
  const Graph& forward = subject.prepared().compiled.forward;
  Sources sources;
  std::int64_t count = 0;
  const Node* first = nullptr;
  for (const Node& node : forward.nodes) {
    if (!node.alive() || !is_op(node, "BatchNormalization") || node.attrs.integer("training_mode") == 0)
      continue;
    // Constants are those of a norm that never had a scale and bias (affine=False): it is not a frozen part.
    const auto is_frozen = [&](ValueId id) {
      return forward.value(id).role == Role::parameter && forward.value(id).frozen;
    };
    if (!is_frozen(node.inputs[1]) || !is_frozen(node.inputs[2])) continue;
    add_sources(node, sources);
    if (count++ == 0) first = &node;
  }
  if (count == 0) return {};
  double ns = 0;
  std::string node;
  for (const NodeTime& time : subject.node_times()) {
    const std::string_view op = time.node->op->name;
    if (op.find("BatchNorm") == std::string_view::npos || !stands_for(*time.kernel, sources)) continue;
    ns += time.ns;
    if (node.empty()) node = time.node->name;
  }
  const double gain = 0.6 * ns;
  if (!subject.matters(gain)) return {};
  Finding finding = subject.of_model(
      {gain, 0.2 * ns, ns, 0},
      fmt::format("{} ({}{}) {} the batch's statistics, though scale and bias are not trained",
                  plural_text(count, "BatchNormalization"), escaped(first->name), count > 1 ? ", .." : "",
                  count == 1 ? "takes" : "take"),
      "put what is frozen into evaluation before the export: backbone.eval(), which takes the running statistics");
  finding.node = node;
  finding.numbers.push_back("they take " + subject.of_a_step(ns) +
                            "; with running statistics they are a product and a sum "
                            "that fuse with what stands beside them");
  found.push_back(std::move(finding));
  return {};
}

// ---- Distances of all pairs ----

namespace {

// Whether the squares of a difference are summed over the last axis; adds what does it.
bool summed_squares(const Graph& graph, const std::vector<std::vector<Use>>& uses, const Node& difference,
                    Sources& sources) {
  for (const Use& use : uses[difference.outputs[0]]) {
    const Node& square = graph.nodes[use.node];
    double power = 0;
    const bool squares =
        square.alive() &&
        ((is_op(square, "Mul") && square.inputs[0] == square.inputs[1]) ||
         (is_op(square, "Pow") && scalar_constant(graph, square.inputs[1], &power) && power == 2));
    if (!squares) continue;
    for (const Use& next : uses[square.outputs[0]]) {
      const Node& sum = graph.nodes[next.node];
      if (!sums(sum) ||
          element_count(graph.type(sum.outputs[0]).shape) * graph.type(square.outputs[0]).shape.back() !=
              element_count(graph.type(square.outputs[0]).shape))
        continue;
      for (const Node* node : {&difference, &square, &sum}) add_sources(*node, sources);
      return true;
    }
  }
  return false;
}

}  // namespace

Status find_pairs(Subject& subject, Findings& found) {
  constexpr std::int64_t kMore = 8;  // times what is subtracted
  const Graph& forward = subject.prepared().compiled.forward;
  const auto uses = uses_of(forward);
  const std::vector<NodeTime> times = subject.node_times();
  for (const Node& node : forward.nodes) {
    if (!node.alive() || !is_op(node, "Sub") || !is_float(forward.type(node.outputs[0]).dtype)) continue;
    if (!is_static(forward.type(node.outputs[0]).shape) || forward.type(node.outputs[0]).shape.empty())
      continue;
    const std::int64_t all = element_count(forward.type(node.outputs[0]).shape),
                       a = element_count(forward.type(node.inputs[0]).shape),
                       b = element_count(forward.type(node.inputs[1]).shape);
    Sources sources;
    if (all < kMore * std::max(a, b) || !summed_squares(forward, uses, node, sources)) continue;
    const KernelsOf kernels = kernels_of(times, sources);
    const double ns = kernels.ns;
    const std::int64_t width = forward.type(node.outputs[0]).shape.back();
    KernelInfo product;
    const double bytes = static_cast<double>(dtype_bytes(forward.type(node.outputs[0]).dtype));
    product.flops = 2 * static_cast<double>(all);
    product.bytes_read = bytes * static_cast<double>(a + b);
    product.bytes_written = bytes * static_cast<double>(all / width);
    const double instead = 3 * 1.5 * subject.predictor().best_ns(product), gain = ns - instead;
    if (gain <= 0 || !subject.matters(gain)) continue;
    Finding finding = subject.of_model(
        {gain, 0.4 * gain, ns, 0},
        fmt::format("{} subtracts all pairs of rows: {} numbers, of which the sum of squares leaves {}",
                    escaped(node.name), all, all / width),
        "write |a|^2 + |b|^2 - 2 a @ b.T: one product (torch.cdist is exported as differences)");
    finding.node = kernels.node;
    finding.numbers.push_back("differences, squares, sums and their gradients take " + subject.of_a_step(ns) +
                              ", a product and its gradients about " + duration_text(instead));
    found.push_back(std::move(finding));
  }
  return {};
}

}  // namespace gradloom::advice
