// Products that compute what they need not, or are more than they need be.
//
// What they take is the time of the products that were made of the nodes concerned, with those of their gradients.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/advice/subject.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "passes/product.h"

namespace gradloom::advice {
namespace {

// Of the kernels that stand for them: products, with those of their gradients, or all others.
double ns_of(const std::vector<NodeTime>& times, const Sources& sources, bool products) {
  double ns = 0;
  for (const NodeTime& time : times)
    if (is_product(*time.node) == products && stands_for(*time.kernel, sources)) ns += time.ns;
  return ns;
}

// Nodes of the model that are products: what a pass fused with them, as an activation, may stand for kernels of other layers too.
Sources product_sources(const Subject& subject) {
  Sources products;
  for (const Node& node : subject.prepared().compiled.forward.nodes)
    if (node.alive() && is_product(node)) add_sources(node, products);
  return products;
}
void add_product_sources(const Sources& products, const Node& node, Sources& sources) {
  for (const std::uint32_t source : node.origin.sources)
    if (products.count(source) != 0) sources.insert(source);
}

}  // namespace

// ---- Products in the slower of two orders ----

namespace {

// Of the matrices as they are multiplied; batch: how many of them.
struct ProductSizes {
  double batch = 1, m = 0, k = 0, n = 0;
  double flops() const { return 2 * batch * m * k * n; }
};

std::optional<ProductSizes> sizes_of(const Graph& graph, const Product& product) {
  ProductSpec spec;
  spec.perm_a = product.perm_a;
  spec.perm_b = product.perm_b;
  const auto shape = product_shape(graph.type(product.a).shape, graph.type(product.b).shape, spec);
  if (!shape.ok()) return std::nullopt;
  ProductSizes sizes{1, static_cast<double>(shape->m), static_cast<double>(shape->k),
                     static_cast<double>(shape->n)};
  for (const std::int64_t dim : shape->batch) sizes.batch *= static_cast<double>(dim);
  return sizes;
}

// The product that makes this operand of another, and nothing else of the forward pass; kNone: none does.
NodeId inner_product(const Graph& graph, const std::vector<std::vector<Use>>& uses, ValueId operand) {
  const NodeId id = graph.value(operand).producer;
  if (id == kNone || graph.nodes[id].origin.phase != Phase::forward) return kNone;
  if (std::find(graph.outputs.begin(), graph.outputs.end(), operand) != graph.outputs.end()) return kNone;
  const auto product = read_product(graph, id);
  if (!product || product->bias != kNone || product->activation != "none") return kNone;
  const auto readers = std::count_if(uses[operand].begin(), uses[operand].end(), [&](const Use& use) {
    return graph.nodes[use.node].alive() && graph.nodes[use.node].origin.phase == Phase::forward;
  });
  return readers == 1 ? id : kNone;
}

// (A B) C or C (A B): FLOPs as it stands, and in the other order.
struct ProductOrder {
  double now = 0, other = 0;
};
ProductOrder order_of(const ProductSizes& inner, const ProductSizes& outer, bool left) {
  // The result of the inner product may be taken as it is or transposed, its shared dim is inner.k in both.
  const double kept = left ? outer.m : outer.n, shared = outer.k, free = left ? outer.n : outer.m;
  return {inner.flops() + outer.flops(), 2 * outer.batch * (shared * inner.k * free + kept * inner.k * free)};
}

}  // namespace

Status find_product_order(Subject& subject, Findings& found) {
  constexpr double kWorth = 0.7;  // of the FLOPs
  const Graph& graph = subject.graph();
  const auto uses = uses_of(graph);
  const std::vector<NodeTime> times = subject.node_times();
  const Sources products = product_sources(subject);
  for (const NodeTime& time : times) {
    if (time.node->origin.phase != Phase::forward || !is_product(*time.node)) continue;
    const auto outer = read_product(graph, graph.value(time.node->outputs[0]).producer);
    const auto outer_sizes = outer ? sizes_of(graph, *outer) : std::nullopt;
    if (!outer_sizes) continue;
    for (const bool left : {true, false}) {
      const NodeId id = inner_product(graph, uses, left ? outer->a : outer->b);
      if (id == kNone) continue;
      const auto inner_sizes = sizes_of(graph, *read_product(graph, id));
      if (!inner_sizes) continue;
      const ProductOrder order = order_of(*inner_sizes, *outer_sizes, left);
      if (order.other > kWorth * order.now) continue;
      Sources sources;
      add_product_sources(products, *time.node, sources);
      add_product_sources(products, graph.nodes[id], sources);
      const double ns = ns_of(times, sources, true), gain = ns * (1 - order.other / order.now);
      if (!subject.matters(gain)) continue;
      Finding finding = subject.of_model(
          {gain, 0.4 * gain, std::min(1.1 * gain, ns), 0},
          fmt::format(
              "{} and then {} multiply three matrices in the slower order: {}, the other order takes {}",
              escaped(graph.nodes[id].name), escaped(time.node->name), count_text(order.now, "FLOP"),
              count_text(order.other, "FLOP")),
          left ? "multiply from the right: a @ (b @ c)" : "multiply from the left: (x @ a) @ b");
      finding.node = time.node->name;
      finding.numbers.push_back("these products and their gradients take " + subject.of_a_step(ns));
      found.push_back(std::move(finding));
    }
  }
  return {};
}

// ---- Rows that are the same ----

namespace {

// How often each row of the operand is there by an Expand or Tile of other dims than the last; 1: none is there twice.
struct RepeatedRows {
  const Node* by = nullptr;
  std::int64_t times = 1;
};
RepeatedRows repeated_rows(const Graph& graph, ValueId operand) {
  const NodeId id = graph.value(behind_views(graph, operand)).producer;
  const Node* const by = id == kNone ? nullptr : &graph.nodes[id];
  if (by == nullptr || (!is_op(*by, "Expand") && !is_op(*by, "Tile"))) return {};
  const ValueId from = by->inputs[0], to = by->outputs[0];
  const Shape &before = graph.type(from).shape, &after = graph.type(to).shape;
  if (before.empty() || before.back() != after.back() || element_count(graph.type(from).shape) == 0)
    return {};
  // Reshapes behind it keep rows whole where the last dim stays.
  if (graph.type(operand).shape.back() != after.back()) return {};
  return {by, element_count(graph.type(to).shape) / element_count(graph.type(from).shape)};
}

}  // namespace

Status find_repeated(Subject& subject, Findings& found) {
  const Graph& graph = subject.graph();
  const std::vector<NodeTime> times = subject.node_times();
  const Sources products = product_sources(subject);
  for (const NodeTime& time : times) {
    if (time.node->origin.phase != Phase::forward || !is_product(*time.node)) continue;
    const auto product = read_product(graph, graph.value(time.node->outputs[0]).producer);
    if (!product || product->perm_a != identity_perm(product->perm_a.size()) ||
        graph.type(product->b).shape.size() != 2)
      continue;
    const RepeatedRows rows = repeated_rows(graph, product->a);
    if (rows.times < 2) continue;
    Sources sources;
    add_product_sources(products, *time.node, sources);
    const double multiplied = ns_of(times, sources, true);
    Sources copies;
    add_sources(*rows.by, copies);
    const double copied = ns_of(times, copies, false);  // what repeats the rows, and adds up their gradients
    const double ns = multiplied + copied, gain = ns * (1 - 1 / static_cast<double>(rows.times));
    if (!subject.matters(gain)) continue;
    Finding finding = subject.of_model(
        {gain, 0.5 * gain, ns, 0},
        fmt::format("{} computes each row {} times: {} ({}) repeats them before", escaped(time.node->name),
                    rows.times, escaped(rows.by->name), rows.by->op->name),
        "multiply first, then repeat: additions and products behind it broadcast by themselves");
    finding.node = time.node->name;
    finding.numbers.push_back(fmt::format(
        "{} rows, {} of them different",
        element_count(graph.type(product->a).shape) / graph.type(product->a).shape.back(),
        element_count(graph.type(product->a).shape) / graph.type(product->a).shape.back() / rows.times));
    finding.numbers.push_back("the product and its gradients take " + subject.of_a_step(multiplied) +
                              ", copies of rows " + duration_text(copied));
    found.push_back(std::move(finding));
  }
  return {};
}

// ---- Loops that were unrolled ----

namespace {

constexpr std::size_t kFewest = 4;

// Products of the forward pass that could be fewer: those with one weight, or of one operand with weights of one shape.
struct UnrolledLoop {
  std::vector<NodeId> nodes;  // of all weights, or operands, that are there as often
  std::size_t passes = 0;
  bool one_weight = false;
  Sources around;  // with one weight: nodes that depend on, or feed, the products of one pass alone
};

// The parameter behind views and transposes; kNone: it is none.
ValueId weight_of(const Graph& graph, ValueId id) {
  while (graph.value(id).producer != kNone) {
    const Node& node = graph.nodes[graph.value(id).producer];
    if (!node.op->has(kView) && !node.op->has(kPermutes)) return kNone;
    id = node.inputs[0];
  }
  return graph.value(id).role == Role::parameter ? id : kNone;
}

// Those of the nodes that need no result of another of them.
std::vector<NodeId> independent(const Graph& graph, const std::vector<NodeId>& order,
                                const std::vector<NodeId>& nodes) {
  const std::set<NodeId> own(nodes.begin(), nodes.end());
  std::vector<bool> needs(graph.values.size());
  std::vector<NodeId> free;
  for (const NodeId id : order) {
    const Node& node = graph.nodes[id];
    if (!node.alive() || node.origin.phase != Phase::forward) continue;
    const bool after = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId in) { return in != kNone && needs[in]; });
    const bool is_own = own.count(id) != 0;
    if (is_own && !after) free.push_back(id);
    for (const ValueId out : node.outputs)
      if (out != kNone) needs[out] = after || is_own;
  }
  return free;
}

// Which of the nodes something depends on, or feeds: 0 none, else its place from 1 on, or several.
constexpr std::int64_t kSeveral = -1;
std::int64_t both_of(std::int64_t a, std::int64_t b) {
  if (a == 0 || a == b) return b;
  return b == 0 ? a : kSeveral;
}

// Adds the sources of what depends on, or feeds, exactly one of the nodes.
void add_around(const Graph& graph, const std::vector<NodeId>& order, const std::vector<NodeId>& nodes,
                Sources& sources) {
  std::map<NodeId, std::int64_t> place;
  for (const NodeId id : nodes) place.emplace(id, static_cast<std::int64_t>(place.size()) + 1);
  const auto place_of = [&](NodeId id) {
    const auto at = place.find(id);
    return at == place.end() ? std::int64_t{0} : at->second;
  };
  std::vector<std::int64_t> needs(graph.values.size()), feeds(graph.values.size()), met(graph.nodes.size());
  for (const NodeId id : order) {
    const Node& node = graph.nodes[id];
    if (!node.alive() || node.origin.phase != Phase::forward) continue;
    met[id] = place_of(id);
    for (const ValueId in : node.inputs)
      if (in != kNone) met[id] = both_of(met[id], needs[in]);
    for (const ValueId out : node.outputs)
      if (out != kNone) needs[out] = met[id];
  }
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const Node& node = graph.nodes[*at];
    if (!node.alive() || node.origin.phase != Phase::forward) continue;
    std::int64_t fed = place_of(*at);
    for (const ValueId out : node.outputs)
      if (out != kNone) fed = both_of(fed, feeds[out]);
    for (const ValueId in : node.inputs)
      if (in != kNone) feeds[in] = both_of(feeds[in], fed);
    if (both_of(met[*at], fed) > 0) add_sources(node, sources);
  }
}

struct UnrolledLoops {
  std::vector<UnrolledLoop> all;
  bool recurrent = false;  // some products need what others with their weight give
};

// Null: too few.
UnrolledLoop* add_loop(std::vector<UnrolledLoop>& all, const std::vector<NodeId>& nodes, bool one_weight) {
  if (nodes.size() < kFewest) return nullptr;
  auto at = std::find_if(all.begin(), all.end(), [&](const UnrolledLoop& loop) {
    return loop.one_weight == one_weight && loop.passes == nodes.size();
  });
  if (at == all.end()) at = all.insert(at, {{}, nodes.size(), one_weight, {}});
  at->nodes.insert(at->nodes.end(), nodes.begin(), nodes.end());
  return &*at;
}

UnrolledLoops unrolled_loops(const Graph& graph) {
  UnrolledLoops loops;
  const auto order = topological_order(graph);
  if (!order.ok()) return loops;
  std::map<ValueId, std::vector<NodeId>> by_weight;
  std::map<std::pair<ValueId, Shape>, std::vector<NodeId>> by_operand;
  for (const NodeId id : *order) {
    if (graph.nodes[id].origin.phase != Phase::forward) continue;
    const auto product = read_product(graph, id);
    const ValueId weight = product ? weight_of(graph, product->b) : kNone;
    if (weight == kNone) continue;
    by_weight[weight].push_back(id);
    by_operand[{product->a, graph.type(weight).shape}].push_back(id);
  }
  for (const auto& [_, nodes] : by_weight) {
    if (nodes.size() < kFewest) continue;
    const std::vector<NodeId> free = independent(graph, *order, nodes);
    loops.recurrent |= free.size() < nodes.size();
    if (UnrolledLoop* const loop = add_loop(loops.all, free, true))
      add_around(graph, *order, free, loop->around);
  }
  for (const auto& [_, nodes] : by_operand) add_loop(loops.all, nodes, false);
  return loops;
}

// What so many kernels of a time take as one. A small one does not keep a processor busy: its time hardly grows with its work, that of a
// long one as its work. (On a core, AVX2: 255 kernels of 1.5 us are 14 times as long as what they could be, 64 of 7 us 3.9 times; merged Q, K
// and V of longer ones are no faster: passes/README.md.)
double as_one(double ns, double count) {
  const auto tenfold = [&](double from_ns) { return std::clamp(std::log10(ns / from_ns), 0.0, 1.0); };
  return ns * std::pow(count, 0.25 + 0.25 * tenfold(1'000) + 0.5 * tenfold(10'000));
}

// Whether all that the kernel stands for belongs to one pass, or another, of the loop.
bool is_around(const KernelInfo& kernel, const UnrolledLoop& loop) {
  return !kernel.sources.empty() &&
         std::all_of(kernel.sources.begin(), kernel.sources.end(),
                     [&](std::uint32_t source) { return loop.around.count(source) != 0; });
}

// Kernels of a loop, and what they take where each pass through it is a part of one.
struct LoopKernels {
  std::size_t kernels = 0, into = 0;
  double ns = 0, merged_ns = 0;
};
LoopKernels kernels_of_loop(const Subject& subject, const std::vector<const NodeTime*>& times,
                            std::size_t passes) {
  std::map<std::string, std::vector<const NodeTime*>> alike;
  for (const NodeTime* time : times)
    alike[time->kernel->kernel + " " + time->kernel->types + " " + time->kernel->phase].push_back(time);
  LoopKernels sums;
  const double launch_ns = subject.predictor().launch_ns();
  for (const auto& [_, kind] : alike) {
    if (kind.size() < passes) continue;
    double ns = 0;
    for (const NodeTime* time : kind) ns += time->ns;
    const auto count = static_cast<double>(kind.size());
    const std::size_t into = (kind.size() + passes - 1) / passes;
    sums.kernels += kind.size();
    sums.into += into;
    sums.ns += ns + count * launch_ns;
    sums.merged_ns +=
        static_cast<double>(into) * (as_one(ns / count, count / static_cast<double>(into)) + launch_ns);
  }
  return sums;
}

}  // namespace

Status find_unrolled(Subject& subject, Findings& found) {
  const Graph& graph = subject.graph();
  const std::vector<NodeTime> times = subject.node_times();
  const Sources products = product_sources(subject);
  const UnrolledLoops loops = unrolled_loops(graph);
  for (const UnrolledLoop& loop : loops.all) {
    Sources sources;
    for (const NodeId id : loop.nodes) add_product_sources(products, graph.nodes[id], sources);
    // A recurrence goes on one position after the other, whatever its products do.
    std::vector<const NodeTime*> own, others;
    for (const NodeTime& time : times) {
      if (is_product(*time.node)) {
        if (stands_for(*time.kernel, sources)) own.push_back(&time);
      } else if (!loops.recurrent && is_around(*time.kernel, loop)) {
        others.push_back(&time);
      }
    }
    const LoopKernels multiplied = kernels_of_loop(subject, own, loop.passes),
                      rest = kernels_of_loop(subject, others, loop.passes);
    const double saved = multiplied.ns - multiplied.merged_ns, gain = saved + rest.ns - rest.merged_ns;
    if (saved <= 0 || !subject.matters(gain)) continue;
    const Node& first = graph.nodes[loop.nodes.front()];
    Finding finding = subject.of_model(
        {gain, 0.3 * saved, 0.98 * (multiplied.ns + rest.ns), 0},
        fmt::format("{} products {} ({}, ..) could be one", loop.passes,
                    loop.one_weight ? "with one weight" : "of one operand", escaped(first.name)),
        loop.one_weight
            ? "stack what they multiply and multiply once: a batch instead of a loop, all positions before a recurrence"
            : "put their weights side by side in one, multiply once and split what comes out");
    finding.node = first.name;
    finding.numbers.push_back(fmt::format(
        "{} take {}, {} of all their rows about {}",
        plural_text(static_cast<std::int64_t>(multiplied.kernels), "product"),
        subject.of_a_step(multiplied.ns), plural_text(static_cast<std::int64_t>(multiplied.into), "product"),
        duration_text(multiplied.merged_ns)));
    if (rest.kernels > 0)
      finding.numbers.push_back(
          fmt::format("{} that are as often there take {}, as {} about {}",
                      plural_text(static_cast<std::int64_t>(rest.kernels), "other kernel"),
                      subject.of_a_step(rest.ns), rest.into, duration_text(rest.merged_ns)));
    found.push_back(std::move(finding));
  }
  return {};
}

}  // namespace gradloom::advice
