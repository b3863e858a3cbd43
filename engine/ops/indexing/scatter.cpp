//   ScatterElements(data, indices, updates) and Scatter, attribute axis:
//     y = data, then y[.., indices[i], ..] = updates[i]
//   ScatterND(data, indices, updates):
//     y = data, then y[indices[i, 0], .., indices[i, k - 1], :] = updates[i, :]
// Attribute reduction add, mul, max or min joins the old and the new element; with none the new one replaces
// the old. Duplicates meet in row-major order of the indices, so with none the last one stays.
// Gradients; g is dy, gather reads the places that the scatter wrote:
//   none      ddata = g with zeros scattered in; dupdates = gather(g) where the update stayed
//   add       ddata = g, dupdates = gather(g)
//   mul       g times the product of the other factors of the place, from the product of those that are not 0 and the number of zeros
//   max, min  g shared evenly by all that equal the result (as in PyTorch)
// Source: ONNX Scatter-9, ScatterElements-18, ScatterND-18.
#include "engine/ops/input_roles.h"
#include "engine/ops/indexing/index_walks.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::ScatterReduction;

Result<ScatterReduction> reduction_of(const Attrs& attrs) {
  const std::string text = attrs.text("reduction", "none");
  if (text == "none") return ScatterReduction::none;
  if (text == "add") return ScatterReduction::add;
  if (text == "mul") return ScatterReduction::mul;
  if (text == "max") return ScatterReduction::max;
  if (text == "min") return ScatterReduction::min;
  return infer_error("reduction '" + text + "' is not supported");
}

Status check_common(const InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  TRY(reduction_of(ctx.attrs));
  if (!indexing::is_index(ctx.dtype(1)))
    return infer_error(std::string("indices are ") + dtype_name(ctx.dtype(1)));
  if (ctx.dtype(2) != ctx.dtype(0)) return infer_error("updates must have the type of the data");
  return {};
}

bool differ(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return true;
  for (std::size_t d = 0; d < a.size(); ++d)
    if (a[d] >= 0 && b[d] >= 0 && a[d] != b[d]) return true;
  return false;
}

// ---- what reads and writes the same places ----------------------------------------------------------------

struct Elements {
  static constexpr const char *kGather = "GatherElements", *kScatter = "ScatterElements";
  static Attrs attrs(const GradContext& ctx) { return {{"axis", ctx.node.attrs.integer("axis")}}; }
};
struct Tuples {
  static constexpr const char *kGather = "GatherND", *kScatter = "ScatterND";
  static Attrs attrs(const GradContext&) { return {}; }
};

template <class Places>
class Rule {
 public:
  explicit Rule(GradContext& ctx) : ctx_(ctx), b_(ctx.b), dtype_(ctx.dtype(ctx.in(0))) {}

  Status replaced() {
    const ValueId g = ctx_.grad();
    if (ctx_.wants(0)) ctx_.set(0, scattered(g, filled(updates(), dtype_, 0), "none"));
    if (!ctx_.wants(2)) return {};
    const Shape shape = ctx_.shape(updates());
    if (!is_static(shape) || !is_static(ctx_.shape(data())))
      return infer_error("the gradient of Scatter needs known dimensions");
    // The number of the update that stayed at every place, against each update's own.
    const ValueId ones = b_.op("Expand", {b_.scalar(DType::i64, 1), b_.i64s({element_count(shape)})});
    const ValueId numbers = reshaped_like(ctx_, b_.op("CumSum", {ones, b_.scalar(DType::i64, 0)}), updates());
    const ValueId stayed = scattered(filled(data(), DType::i64, 0), numbers, "none");
    ctx_.set(2, b_.op("Where", {b_.op("Equal", {gathered(stayed), numbers}), gathered(g), zero()}));
    return {};
  }

  Status added() {
    if (ctx_.wants(0)) ctx_.set(0, ctx_.grad());
    if (ctx_.wants(2)) ctx_.set(2, gathered(ctx_.grad()));
    return {};
  }

  Status multiplied() {
    const ValueId data_zero = b_.op("Equal", {data(), zero()}),
                  update_zero = b_.op("Equal", {updates(), zero()});
    const ValueId one = b_.scalar(dtype_, 1);
    const ValueId data_factor = b_.op("Where", {data_zero, one, data()}),
                  update_factor = b_.op("Where", {update_zero, one, updates()});
    const ValueId product = scattered(data_factor, update_factor, "mul"),
                  zeros = scattered(number(data_zero), number(update_zero), "add");
    const auto others = [&](ValueId all, ValueId all_zeros, ValueId factor, ValueId is_zero) {
      const ValueId none_else = b_.op("Equal", {b_.op("Sub", {all_zeros, number(is_zero)}), zero()});
      return b_.op("Where", {none_else, b_.op("Div", {all, factor}), zero()});
    };
    if (ctx_.wants(0))
      ctx_.set(0, b_.op("Mul", {ctx_.grad(), others(product, zeros, data_factor, data_zero)}));
    if (ctx_.wants(2))
      ctx_.set(2, b_.op("Mul", {gathered(ctx_.grad()),
                                others(gathered(product), gathered(zeros), update_factor, update_zero)}));
    return {};
  }

  Status selected() {
    const ValueId y = ctx_.out(0);
    const ValueId data_chosen = number(b_.op("Equal", {data(), y})),
                  update_chosen = number(b_.op("Equal", {updates(), gathered(y)}));
    const ValueId share = b_.op("Div", {ctx_.grad(), scattered(data_chosen, update_chosen, "add")});
    if (ctx_.wants(0)) ctx_.set(0, b_.op("Mul", {share, data_chosen}));
    if (ctx_.wants(2)) ctx_.set(2, b_.op("Mul", {gathered(share), update_chosen}));
    return {};
  }

 private:
  ValueId data() const { return ctx_.in(0); }
  ValueId updates() const { return ctx_.in(2); }
  ValueId zero() { return b_.scalar(dtype_, 0); }
  ValueId number(ValueId truth) { return b_.op("Cast", {truth}, {{"to", onnx_from_dtype(dtype_)}}); }
  ValueId filled(ValueId like, DType dtype, double value) {
    return b_.op("Expand", {b_.scalar(dtype, value), shape_of(ctx_, like)});
  }
  ValueId gathered(ValueId v) { return b_.op(Places::kGather, {v, ctx_.in(1)}, Places::attrs(ctx_)); }
  ValueId scattered(ValueId to, ValueId what, const char* reduction) {
    Attrs attrs = Places::attrs(ctx_);
    attrs.set("reduction", std::string(reduction));
    return b_.op(Places::kScatter, {to, ctx_.in(1), what}, attrs);
  }

  GradContext& ctx_;
  GraphBuilder& b_;
  DType dtype_;
};

template <class Places>
Status grad_scatter(GradContext& ctx) {
  Rule<Places> rule(ctx);
  switch (TRY(reduction_of(ctx.node.attrs))) {
    case ScatterReduction::none: return rule.replaced();
    case ScatterReduction::add: return rule.added();
    case ScatterReduction::mul: return rule.multiplied();
    case ScatterReduction::max:
    case ScatterReduction::min: return rule.selected();
  }
  return {};
}

// ---- ScatterElements --------------------------------------------------------------------------------------

Status infer_elements(InferContext& ctx) {
  TRY(check_common(ctx));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const std::int64_t axis = TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()));
  if (differ(indices, ctx.shape(2))) return infer_error("updates must have the shape of the indices");
  if (indices.size() != data.size()) return infer_error("the indices must have the rank of the data");
  for (std::size_t d = 0; d < data.size(); ++d)
    if (static_cast<std::int64_t>(d) != axis && data[d] >= 0 && indices[d] > data[d])
      return infer_error("indices " + to_string(indices) + " reach beyond data " + to_string(data));
  TRY(indexing::check_range(ctx.constant(1), data[static_cast<std::size_t>(axis)]));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<Kernel> prepare_elements(const NodeTypes& types) {
  const Shape& data = types.inputs[0].shape;
  const std::int64_t axis = TRY(normalized_axis(types.attrs.integer("axis"), data.size()));
  const auto walk = TRY(indexing::elements_walk(types.inputs[1], data, axis));
  return indexing::scatter_kernel(types, walk, TRY(reduction_of(types.attrs)), 0, 2);
}

std::vector<Sample> scatter_samples() {
  return {sample_of("rows", {}, {floats({4, 3}), ints({2, 3}, -4, 3), floats({2, 3})}),
          sample_of("last axis, duplicates", {{"axis", std::int64_t{-1}}},
                    {floats({3, 5}), exact(DType::i32, {3, 3}, {1, 1, 4, 0, 2, 0, 3, 3, 3}), floats({3, 3})}),
          sample_of("integers", {}, {ints({5}, -9, 9), exact(DType::i64, {2}, {4, 1}), ints({2}, -9, 9)})};
}

std::vector<Sample> elements_samples() {
  std::vector<Sample> list = scatter_samples();
  const std::int64_t last = 1;
  for (const char* reduction : {"add", "mul", "max", "min"}) {
    list.push_back(
        sample_of(reduction, {{"axis", last}, {"reduction", std::string(reduction)}},
                  {floats({3, 5, 2}, 0.5, 1.5), ints({3, 7, 2}, -5, 4), floats({3, 7, 2}, 0.5, 1.5)}));
  }
  list.push_back(sample_of("mul with zeros", {{"reduction", std::string("mul")}},
                           {exact(DType::f32, {3}, {0, 2, 0}), exact(DType::i64, {4}, {0, 1, 1, 2}),
                            exact(DType::f32, {4}, {0.5, 0, 3, 0})}));
  list.push_back(sample_of("added integers", {{"reduction", std::string("add")}},
                           {ints({4}, -9, 9), ints({9}, 0, 3), ints({9}, -9, 9)}));
  return list;
}

// ---- ScatterND --------------------------------------------------------------------------------------------

Status infer_nd(InferContext& ctx) {
  TRY(check_common(ctx));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  if (data.empty() || indices.empty()) return infer_error("data and indices must have a dimension");
  const std::int64_t depth = indices.back();
  if (depth < 0) return infer_error("the last dimension of the indices must be known");
  if (depth > static_cast<std::int64_t>(data.size()))
    return infer_error(std::to_string(depth) + " indices per item for data " + to_string(data));
  Shape want(indices.begin(), indices.end() - 1);
  want.insert(want.end(), data.begin() + depth, data.end());
  if (differ(want, ctx.shape(2)))
    return infer_error("updates are " + to_string(ctx.shape(2)) + ", not " + to_string(want));
  TRY(indexing::check_nd_range(ctx.constant(1), data, 0));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<Kernel> prepare_nd(const NodeTypes& types) {
  const auto walk = TRY(indexing::nd_walk(types.inputs[1], types.inputs[0].shape, 0));
  return indexing::scatter_kernel(types, walk, TRY(reduction_of(types.attrs)), 0, 2);
}

std::vector<Sample> nd_samples() {
  std::vector<Sample> list = {
      sample_of("elements", {},
                {floats({3, 4}), exact(DType::i64, {3, 2}, {0, 1, -1, -1, 1, 2}), floats({3})}),
      sample_of("rows, duplicates", {},
                {floats({4, 3, 2}), exact(DType::i64, {3, 1}, {1, 3, 1}), floats({3, 3, 2})})};
  for (const char* reduction : {"add", "mul", "max", "min"}) {
    list.push_back(sample_of(
        reduction, {{"reduction", std::string(reduction)}},
        {floats({3, 4}, 0.5, 1.5), ints({2, 4, 1}, -3, 2, DType::i32), floats({2, 4, 4}, 0.5, 1.5)}));
  }
  return list;
}

}  // namespace

const OpDef scatter_elements_op = {.name = "ScatterElements",
                                   .since = 11,
                                   .summary = "Elements written to places chosen by indices along an axis",
                                   .min_inputs = 3,
                                   .max_inputs = 3,
                                   .infer = infer_elements,
                                   .grad = grad_scatter<Elements>,
                                   .cpu = prepare_elements,
                                   .gpu = prepare_elements,
                                   .samples = elements_samples,
                                   .inplace_input = 0,
                                   .roles = kIndicesSecond};
const OpDef scatter_op = {.name = "Scatter",
                          .since = 9,
                          .until = 10,
                          .summary = "Elements written to places chosen by indices along an axis",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .infer = infer_elements,
                          .grad = grad_scatter<Elements>,
                          .cpu = prepare_elements,
                          .gpu = prepare_elements,
                          .samples = scatter_samples,
                          .inplace_input = 0,
                          .roles = kIndicesSecond};
const OpDef scatter_nd_op = {.name = "ScatterND",
                             .since = 11,
                             .summary = "Parts written to places chosen by index tuples",
                             .min_inputs = 3,
                             .max_inputs = 3,
                             .infer = infer_nd,
                             .grad = grad_scatter<Tuples>,
                             .cpu = prepare_nd,
                             .gpu = prepare_nd,
                             .samples = nd_samples,
                             .inplace_input = 0,
                             .roles = kPlacesSecond};

}  // namespace gradloom
