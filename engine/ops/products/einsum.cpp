// Einsum: y[output labels] = sum over all other labels of the product of the inputs at their labels. A label
// stands for one dimension, "..." for the dimensions that are left; sizes of 1 broadcast. The kernel
// is a sequence of other rows' kernels: each input has its diagonals taken and what it alone has summed away;
// then two at a time are joined, those first that make the least of the most (Daniel Smith and Johnnie Gray,
// "opt_einsum", 2018: greedy paths), each pair as one batched matrix product
//   [batch (in both and later), m (in the left and later), k (in both, not later)] x [batch, n (in the right and later), k].
// The gradient of an input is the Einsum of dy and the other inputs to the input's labels, broadcast over
// labels that only it has and put on its diagonals. Source: ONNX Einsum-12.
#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <set>

#include "engine/ops/kernel_sequence.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;
using Labels =
    std::string;  // one character per dimension; dimensions of "..." are 'digits' from kFirstFree on

constexpr char kFirstFree = '\1';
constexpr std::size_t kMostFree = 16;

struct Terms {
  std::vector<Labels> inputs;
  Labels output;
};

std::vector<std::string> split_terms(const std::string& text) {
  std::vector<std::string> terms(1);
  for (char c : text) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  return terms;
}

// "..." becomes `free` labels, the last ones of kMostFree.
Result<Labels> labels_of(const std::string& term, std::size_t free) {
  const std::size_t at = term.find("...");
  Labels labels = term;
  if (at != std::string::npos) {
    Labels dims;
    for (std::size_t i = kMostFree - free; i < kMostFree; ++i)
      dims += static_cast<char>(kFirstFree + static_cast<char>(i));
    labels = term.substr(0, at) + dims + term.substr(at + 3);
  }
  for (char c : labels)
    if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c >= ' ')
      return infer_error("'" + std::string(1, c) + "' in a term of the equation");
  return labels;
}

Result<Terms> parse(const Attrs& attrs, const std::vector<std::size_t>& ranks) {
  std::string text;
  for (char c : attrs.text("equation"))
    if (c != ' ') text += c;
  const std::size_t arrow = text.find("->");
  const std::vector<std::string> inputs = split_terms(text.substr(0, arrow));
  if (inputs.size() != ranks.size())
    return infer_error("the equation has " + std::to_string(inputs.size()) + " terms for " +
                       std::to_string(ranks.size()) + " inputs");
  Terms terms;
  std::size_t most_free = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool open = inputs[i].find("...") != std::string::npos;
    const std::size_t named = inputs[i].size() - (open ? 3 : 0);
    if (named > ranks[i] || (!open && named != ranks[i]) || ranks[i] - named > kMostFree)
      return infer_error("term '" + inputs[i] + "' does not fit an input of rank " +
                         std::to_string(ranks[i]));
    most_free = std::max(most_free, ranks[i] - named);
    terms.inputs.push_back(TRY(labels_of(inputs[i], ranks[i] - named)));
  }
  if (arrow != std::string::npos) {
    terms.output = TRY(labels_of(text.substr(arrow + 2), most_free));
  } else {  // the dimensions of "...", then the labels that appear once, in the order of the alphabet
    std::map<char, int> counts;
    for (const Labels& labels : terms.inputs)
      for (char c : labels) ++counts[c];
    for (const auto& [label, count] : counts)
      if (count == 1 || label < ' ') terms.output += label;
  }
  std::set<char> seen;
  for (char c : terms.output) {
    if (!seen.insert(c).second) return infer_error("the output has a label twice");
    if (std::none_of(terms.inputs.begin(), terms.inputs.end(),
                     [&](const Labels& l) { return l.find(c) != Labels::npos; }))
      return infer_error("the output has a label that no input has");
  }
  return terms;
}

// The size of every label. Sizes of 1 broadcast between inputs, as in numpy, not within one.
Result<std::map<char, std::int64_t>> sizes_of(const Terms& terms, const std::vector<Shape>& shapes) {
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    for (std::size_t d = 0; d < shapes[i].size(); ++d) {
      const char label = terms.inputs[i][d];
      const std::size_t first = terms.inputs[i].find(label);
      if (dims_differ(shapes[i][first], shapes[i][d]))
        return infer_error("a label stands for " + std::to_string(shapes[i][first]) + " and for " +
                           std::to_string(shapes[i][d]) + " in one input");
      const auto [it, added] = sizes.insert({label, shapes[i][d]});
      if (added) continue;
      if (it->second == 1 || shapes[i][d] == 1) {
        it->second = it->second == 1 ? shapes[i][d] : it->second;
        continue;
      }
      if (dims_differ(it->second, shapes[i][d]))
        return infer_error("a label stands for " + std::to_string(it->second) + " and for " +
                           std::to_string(shapes[i][d]));
      it->second = known_dim(it->second, shapes[i][d]);
    }
  return sizes;
}

template <class List, class ShapeOf>
std::vector<Shape> shapes_of(const List& inputs, const ShapeOf& shape_of) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i) shapes.push_back(shape_of(i));
  return shapes;
}
std::vector<std::size_t> ranks_of(const std::vector<Shape>& shapes) {
  std::vector<std::size_t> ranks;
  for (const Shape& s : shapes) ranks.push_back(s.size());
  return ranks;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, std::max<std::size_t>(ctx.inputs.size(), 1)));
  const std::vector<Shape> shapes = shapes_of(ctx.inputs, [&](std::size_t i) { return ctx.shape(i); });
  for (std::size_t i = 1; i < shapes.size(); ++i)
    if (ctx.dtype(i) != ctx.dtype(0)) return infer_error("the inputs have different types");
  const Terms terms = TRY(parse(ctx.attrs, ranks_of(shapes)));
  const auto sizes = TRY(sizes_of(terms, shapes));
  Shape y;
  for (char c : terms.output) y.push_back(sizes.at(c));
  return set_outputs(ctx, {{ctx.dtype(0), y}});
}

// ---- the sequence -----------------------------------------------------------------------------------------

bool has(const Labels& labels, char c) { return labels.find(c) != Labels::npos; }

struct Term {
  ValueId value;
  Labels labels;
};

// Adds nodes to a builder; all shapes are known.
class Lowering {
 public:
  Lowering(GraphBuilder& b, const std::map<char, std::int64_t>& sizes) : b_(b) {
    for (const auto& [label, size] : sizes) sizes_[index(label)] = size;
  }

  // y with the labels `output`.
  ValueId lower(std::vector<Term> terms, const Labels& output) {
    const auto others = [&](std::size_t i) {
      Labels labels = output;
      for (std::size_t j = 0; j < terms.size(); ++j)
        if (j != i) labels += terms[j].labels;
      return labels;
    };
    for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = without_ones(diagonal(terms[i]), others(i));
    for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = summed(terms[i], others(i));
    while (terms.size() > 1) {
      const auto [i, j] = best_pair(terms, output);
      terms[i] = product(terms[i], terms[j], labels_beside(terms, i, j) + output);
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
    }
    return arranged(terms[0], output);
  }

 private:
  static constexpr std::size_t kCharacters = 128;
  static std::size_t index(char label) { return static_cast<unsigned char>(label) % kCharacters; }
  static constexpr std::size_t kMostCompared = 8;  // terms, so that a thousand of them take no seconds

  static Labels labels_beside(const std::vector<Term>& terms, std::size_t i, std::size_t j) {
    Labels labels;
    for (std::size_t t = 0; t < terms.size(); ++t)
      if (t != i && t != j) labels += terms[t].labels;
    return labels;
  }

  // The terms whose product takes the least more elements than they themselves do; of equals the first.
  std::pair<std::size_t, std::size_t> best_pair(const std::vector<Term>& terms, const Labels& output) const {
    std::pair<std::size_t, std::size_t> best{0, 1};
    double least = std::numeric_limits<double>::infinity();
    const std::size_t count = std::min(terms.size(), kMostCompared);
    // In how many terms a label is, the output among them: what two alone have is summed away.
    std::array<int, kCharacters> uses{};
    for (const Term& term : terms)
      for (char c : term.labels) ++uses[index(c)];
    for (char c : output) ++uses[index(c)];
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = i + 1; j < count; ++j) {
        const Labels &a = terms[i].labels, &b = terms[j].labels;
        const auto kept = [&](char c) { return uses[index(c)] > 2 || !has(a, c) || !has(b, c); };
        const auto fresh = [&](char c) { return !has(a, c); };
        const double more = elements(a, kept) * elements(b, fresh) - elements(a) - elements(b);
        if (more >= least) continue;
        least = more;
        best = {i, j};
      }
    return best;
  }
  template <class Taken>
  double elements(const Labels& labels, const Taken& taken) const {
    double n = 1;
    for (char c : labels)
      if (taken(c)) n *= static_cast<double>(size(c));
    return n;
  }
  double elements(const Labels& labels) const {
    return elements(labels, [](char) { return true; });
  }

  std::int64_t size(char c) const { return sizes_[index(c)]; }
  std::int64_t size(const Labels& labels) const {
    std::int64_t n = 1;
    for (char c : labels) n *= size(c);
    return n;
  }
  ValueId reshaped(ValueId v, const Shape& shape) {
    if (b_.shape(v) == shape) return v;
    return b_.reshape(v, shape);
  }

  // Repeated labels: the dims next to each other, then every (n + 1)-th element of their n x n.
  Term diagonal(Term t) {
    for (std::size_t i = 0; i < t.labels.size(); ++i) {
      const std::size_t j = t.labels.find(t.labels[i], i + 1);
      if (j == Labels::npos) continue;
      const char label = t.labels[i];
      Labels rest = t.labels;
      rest.erase(j, 1);
      rest.erase(i, 1);
      Ints perm;
      Shape shape;
      for (std::size_t d = 0; d < t.labels.size(); ++d) {
        if (d == i || d == j) continue;
        perm.push_back(static_cast<std::int64_t>(d));
        shape.push_back(b_.shape(t.value)[d]);
      }
      perm.insert(perm.end(), {static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)});
      const std::int64_t n = b_.shape(t.value)[i],
                         outer = element_count(b_.shape(t.value)) / std::max<std::int64_t>(n * n, 1);
      const ValueId flat = reshaped(b_.op("Transpose", {t.value}, {{"perm", perm}}), {outer, n * n});
      const ValueId taken =
          b_.op("Slice", {flat, b_.i64s({0}), b_.i64s({n * n}), b_.i64s({1}), b_.i64s({n + 1})});
      shape.push_back(n);
      return diagonal({reshaped(taken, shape), rest + label});
    }
    return t;
  }

  // Dimensions of 1 that others broadcast are dropped.
  Term without_ones(Term t, const Labels& later) {
    Labels kept;
    Shape shape;
    const Shape from = b_.shape(t.value);
    for (std::size_t d = 0; d < from.size(); ++d) {
      if (from[d] != size(t.labels[d]) && has(later, t.labels[d])) continue;
      kept += t.labels[d];
      shape.push_back(from[d]);
    }
    return {reshaped(t.value, shape), kept};
  }

  Term summed(Term t, const Labels& later) {
    Ints axes;
    Labels kept;
    for (std::size_t d = 0; d < t.labels.size(); ++d) {
      if (has(later, t.labels[d]))
        kept += t.labels[d];
      else
        axes.push_back(static_cast<std::int64_t>(d));
    }
    if (axes.empty()) return t;
    return {b_.op("ReduceSum", {t.value, b_.i64s(axes)}, {{"keepdims", std::int64_t{0}}}), kept};
  }

  ValueId ordered(const Term& t, const Labels& order) {
    Ints perm;
    bool same = true;
    for (char c : order) perm.push_back(static_cast<std::int64_t>(t.labels.find(c)));
    for (std::size_t d = 0; d < perm.size(); ++d) same = same && perm[d] == static_cast<std::int64_t>(d);
    return same ? t.value : b_.op("Transpose", {t.value}, {{"perm", perm}});
  }

  Term product(const Term& a, const Term& b, const Labels& later) {
    Labels batch, m, n, k;
    for (char c : a.labels) (!has(b.labels, c) ? m : has(later, c) ? batch : k) += c;
    for (char c : b.labels)
      if (!has(a.labels, c)) n += c;
    Shape shape;
    for (char c : batch + m + n) shape.push_back(size(c));
    const ValueId left = reshaped(ordered(a, batch + m + k), {size(batch), size(m), size(k)});
    const ValueId right = reshaped(ordered(b, batch + k + n), {size(batch), size(k), size(n)});
    // Without sums the elements are multiplied where they are.
    const ValueId y = k.empty() ? b_.op("Mul", {left, right}) : b_.op("FusedMatMul", {left, right});
    return {reshaped(y, shape), batch + m + n};
  }

  // The result in its order, made by a node that is no view.
  ValueId arranged(const Term& t, const Labels& output) {
    Ints perm;
    for (char c : output) perm.push_back(static_cast<std::int64_t>(t.labels.find(c)));
    return b_.op("Transpose", {t.value}, {{"perm", perm}});
  }

  GraphBuilder& b_;
  std::array<std::int64_t, kCharacters> sizes_{};  // by label
};

Result<Kernel> prepare(const NodeTypes& types) {
  const DType dtype = types.inputs[0].dtype;
  if (is_float(dtype)) TRY(require_kernel_type(types.target, dtype, multiplies_bf16(types.target, dtype)));
  const std::vector<Shape> shapes =
      shapes_of(types.inputs, [&](std::size_t i) { return types.inputs[i].shape; });
  const Terms terms = TRY(parse(types.attrs, ranks_of(shapes)));
  KernelSequence sequence(types);
  std::vector<Term> list;
  for (std::size_t i = 0; i < shapes.size(); ++i) list.push_back({sequence.in(i), terms.inputs[i]});
  Lowering lowering(sequence.b(), TRY(sizes_of(terms, shapes)));
  const ValueId y = lowering.lower(std::move(list), terms.output);
  return sequence.prepare("einsum", {y});
}

// ---- gradient ---------------------------------------------------------------------------------------------

// Labels as letters of an equation without "...".
class Letters {
 public:
  std::string of(const Labels& labels) {
    std::string text;
    for (char c : labels) {
      const auto [it, added] = letters_.insert({c, next_});
      if (added) next_ = next_ == 'z' ? 'A' : static_cast<char>(next_ + 1);
      text += it->second;
    }
    return text;
  }

 private:
  std::map<char, char> letters_;
  char next_ = 'a';
};

// d input i of the Einsum, with the input's labels.
ValueId gradient_of(GradContext& ctx, const Terms& terms, const std::map<char, std::int64_t>& sizes,
                    std::size_t i) {
  const Labels& own = terms.inputs[i];
  const Shape shape = ctx.shape(ctx.in(i));
  Labels reachable = terms.output, wanted;  // labels that dy and the other inputs have
  std::vector<ValueId> inputs = {ctx.grad()};
  Letters letters;
  std::string equation = letters.of(terms.output);
  for (std::size_t j = 0; j < terms.inputs.size(); ++j) {
    if (j == i) continue;
    // Broadcast dims are made whole first, so that every label has one size.
    Shape whole;
    for (char c : terms.inputs[j]) whole.push_back(sizes.at(c));
    const ValueId in = ctx.in(j);
    inputs.push_back(ctx.shape(in) == whole ? in : ctx.b.op("Expand", {in, ctx.b.i64s(whole)}));
    equation += "," + letters.of(terms.inputs[j]);
    reachable += terms.inputs[j];
  }
  for (std::size_t d = 0; d < own.size(); ++d)
    if (has(reachable, own[d]) && !has(wanted, own[d]) && (shape[d] == sizes.at(own[d]) || shape[d] != 1))
      wanted += own[d];
  ValueId g = ctx.b.op("Einsum", inputs, {{"equation", equation + "->" + letters.of(wanted)}});
  // Dims of 1 for the labels that are missing, all in the order of the input,
  // then broadcast; diagonals by a mask.
  Shape with_ones, target;
  Labels order;
  std::vector<std::pair<std::size_t, std::size_t>> diagonals;
  for (std::size_t d = 0; d < own.size(); ++d) {
    target.push_back(shape[d]);
    const std::size_t first = own.find(own[d]);
    if (first != d) diagonals.push_back({first, d});
    with_ones.push_back(first == d && has(wanted, own[d]) ? shape[d] : 1);
  }
  g = ctx.b.reshape(g, with_ones);
  if (with_ones != target) g = ctx.b.op("Expand", {g, ctx.b.i64s(target)});
  for (const auto& [a, b] : diagonals) {
    const std::int64_t n = target[a];
    std::vector<double> eye(static_cast<std::size_t>(n * n), 0);
    for (std::int64_t k = 0; k < n; ++k) eye[static_cast<std::size_t>(k * n + k)] = 1;
    Shape mask(target.size(), 1);
    mask[a] = mask[b] = n;
    g = ctx.b.op("Mul", {g, ctx.b.constant(Tensor::from_f64(ctx.dtype(g), mask, eye))});
  }
  return g;
}

Status grad(GradContext& ctx) {
  for (ValueId in : ctx.node.inputs) TRY(require_static(ctx, in));
  const std::vector<Shape> shapes =
      shapes_of(ctx.node.inputs, [&](std::size_t i) { return ctx.shape(ctx.in(i)); });
  const Terms terms = TRY(parse(ctx.node.attrs, ranks_of(shapes)));
  const auto sizes = TRY(sizes_of(terms, shapes));
  if (sizes.size() > 52) return infer_error("the gradient of Einsum has letters for 52 dimensions");
  for (std::size_t i = 0; i < shapes.size(); ++i)
    if (ctx.wants(i)) ctx.set(i, gradient_of(ctx, terms, sizes, i));
  return {};
}

// A product and an addition per input for every combination of labels, as if nothing were shared.
Cost cost(const NodeTypes& types) {
  const std::vector<Shape> shapes =
      shapes_of(types.inputs, [&](std::size_t i) { return types.inputs[i].shape; });
  const auto terms = parse(types.attrs, ranks_of(shapes));
  const auto sizes = terms ? sizes_of(*terms, shapes) : Result<std::map<char, std::int64_t>>(terms.error());
  double flops = static_cast<double>(shapes.size());
  if (sizes)
    for (const auto& [label, size] : *sizes) flops *= static_cast<double>(size);
  return cost_of(types, flops);
}

std::vector<Sample> samples() {
  const auto equation = [](const char* text) { return Attrs{{"equation", std::string(text)}}; };
  return {
      sample_of("matrix product", equation("ij,jk->ik"), {floats({3, 4}), floats({4, 5})}),
      sample_of("implicit output", equation("b i j , b j k"), {floats({2, 3, 4}), floats({2, 4, 5})}),
      sample_of("attention", equation("bqhd,bkhd->bhqk"), {floats({2, 3, 2, 4}), floats({2, 5, 2, 4})}),
      sample_of("transpose", equation("ijk->kij"), {floats({2, 3, 4})}),
      sample_of("sum", equation("ij->i"), {floats({3, 4})}),
      sample_of("to a scalar", equation("i,i->"), {floats({5}), floats({5})}),
      sample_of("outer product", equation("i,j->ji"), {floats({3}), floats({4})}),
      sample_of("elementwise", equation("ij,ij->ij"), {floats({3, 4}), floats({3, 4})}),
      sample_of("three inputs", equation("ij,jk,kl->il"), {floats({2, 3}), floats({3, 4}), floats({4, 2})}),
      sample_of("three inputs, the last one first", equation("td,teh,te->ehd"),
                {floats({5, 2}), floats({5, 2, 3}), floats({5, 2})}),
      sample_of("four inputs", equation("ab,cd,bc,de->ae"),
                {floats({2, 3}), floats({4, 2}), floats({3, 4}), floats({2, 5})}),
      sample_of("bilinear", equation("bn,anm,bm->ba"), {floats({2, 3}), floats({4, 3, 2}), floats({2, 2})}),
      sample_of("diagonal", equation("ii->i"), {floats({4, 4})}),
      sample_of("batch diagonal", equation("...ii->...i"), {floats({3, 4, 4})}),
      sample_of("trace", equation("bii,bj->bj"), {floats({2, 3, 3}), floats({2, 4})}),
      sample_of("broadcast", equation("...ij,...jk->...ik"), {floats({3, 1, 2, 4}), floats({5, 4, 3})}),
      sample_of("label of size 1", equation("ij,jk->ik"), {floats({3, 1}), floats({4, 5})}),
      sample_of("second label of size 1", equation("ij,jk,j->ik"),
                {floats({3, 4}), floats({1, 5}), floats({4})}),
      sample_of("diagonal of size 1", equation("iij,i->ij"), {floats({1, 1, 3}), floats({4})}),
      sample_of("summed alone", equation("ij,k->k"), {floats({2, 3}), floats({4})})};
}

}  // namespace

const OpDef einsum_op = {.name = "Einsum",
                         .since = 12,
                         .summary = "Sums of products over named dimensions",
                         .min_inputs = 1,
                         .max_inputs = 1 << 10,
                         .infer = infer,
                         .grad = grad,
                         .cost = cost,
                         .cpu = prepare,
                         .gpu = prepare,
                         .samples = samples,
                         .precision = Precision::low,
                         .arithmetic = Arithmetic::products};

}  // namespace gradloom
