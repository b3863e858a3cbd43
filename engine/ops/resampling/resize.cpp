// Resize(x, roi, scales, sizes) and its forebears Resize-10(x, scales) and Upsample(x, scales):
// interpolation, separately along every axis, so each axis is a sparse matrix (resample.h) that is made here,
// for any number of axes.
//   out = floor(in * scale), or sizes; then position j of the result reads x at c(j):
//     half_pixel              (j + 0.5) / scale - 0.5
//     half_pixel_symmetric    in / 2 * (1 - out / (scale * in)) + half_pixel
//     pytorch_half_pixel      half_pixel, 0 when out is 1
//     align_corners           j * (in - 1) / (scale * in - 1), 0 when out is 1
//     asymmetric              j / scale
//     tf_half_pixel_for_nn    (j + 0.5) / scale
//     tf_crop_and_resize      start * (in - 1) + j * (end - start) * (in - 1) / (out - 1); c(j) outside x gives extrapolation_value
//   nearest    one element: c rounded by nearest_mode; Upsample and Resize-10 down, as PyTorch does, whose models these are
//              (Resize-10 leaves it open: for scales < 1 ONNX 1.5's node test and ONNX Runtime round up)
//   linear     w(i) = max(0, 1 - |i - c|); cubic: Keys's kernel with coefficient cubic_coeff_a. antialias widens both by 1 / scale when
//              scale < 1 and makes the weights' sum 1. Elements outside are those of the edge, or with exclude_outside left out.
// Source: ONNX Resize-19, Upsample-9 and their reference implementation.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "engine/ops/input_roles.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/resampling/resample.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

using resampling::AxisTable;
using resampling::Outside;
using resampling::Tables;
using Ints = std::vector<std::int64_t>;

enum class Version { upsample, resize_10, resize };

struct Axis {
  std::int64_t in, out;
  double scale, roi_begin = 0, roi_end = 1;
};

// What the attributes and the arguments ask for.
struct Plan {
  std::string mode, transformation, nearest;
  double cubic = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  std::vector<Axis> axes;  // one per dimension
};

Result<std::string> one_of(const Attrs& attrs, const char* name, const char* fallback,
                           std::initializer_list<const char*> known) {
  const std::string text = attrs.text(name, fallback);
  for (const char* k : known)
    if (text == k) return text;
  return infer_error(std::string(name) + " '" + text + "' is not supported");
}

Result<Plan> read_attributes(const Attrs& attrs, Version version) {
  Plan plan;
  plan.mode = TRY(one_of(attrs, "mode", "nearest", {"nearest", "linear", "bilinear", "cubic"}));
  if (plan.mode == "bilinear") plan.mode = "linear";
  plan.transformation = "asymmetric";
  plan.nearest = "floor";
  if (version != Version::resize) return plan;
  plan.transformation =
      TRY(one_of(attrs, "coordinate_transformation_mode", "half_pixel",
                 {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                  "tf_half_pixel_for_nn", "tf_crop_and_resize"}));
  plan.nearest = TRY(one_of(attrs, "nearest_mode", "round_prefer_floor",
                            {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  TRY(one_of(attrs, "keep_aspect_ratio_policy", "stretch", {"stretch", "not_larger", "not_smaller"}));
  plan.cubic = attrs.real("cubic_coeff_a", -0.75);
  plan.extrapolation = attrs.real("extrapolation_value", 0);
  plan.exclude_outside = attrs.integer("exclude_outside") != 0;
  plan.antialias = attrs.integer("antialias") != 0;
  return plan;
}

// ---- arguments --------------------------------------------------------------------------------------------

const Tensor* known(const InferContext& ctx, std::size_t i) { return ctx.constant(i); }
const Tensor* known(const NodeTypes& types, std::size_t i) {
  return types.has(i) ? types.constants[i] : nullptr;
}
const Tensor* known(const GradContext& ctx, std::size_t i) {
  if (ctx.in(i) == kNone || !is_constant(ctx.b.graph(), ctx.in(i))) return nullptr;
  const Tensor& data = ctx.b.graph().values[ctx.in(i)].data;
  return data.defined() ? &data : nullptr;
}
bool given(const InferContext& ctx, std::size_t i) { return ctx.has(i) && ctx.shape(i) != Shape{0}; }
bool given(const NodeTypes& types, std::size_t i) {
  return types.has(i) && types.inputs[i].shape != Shape{0};
}
bool given(const GradContext& ctx, std::size_t i) {
  return ctx.in(i) != kNone && ctx.shape(ctx.in(i)) != Shape{0};
}

struct Arguments {
  std::vector<double> scales, roi;
  Ints sizes;
};

// No value: something is not known before running.
template <class Context>
std::optional<Arguments> read_arguments(const Context& ctx, const Attrs& attrs, Version version) {
  Arguments a;
  if (version == Version::upsample && attrs.has("scales")) {
    a.scales = attrs.reals("scales");
    return a;
  }
  const std::size_t scales = version == Version::resize ? 2 : 1;
  if (given(ctx, scales)) {
    const Tensor* tensor = known(ctx, scales);
    if (tensor == nullptr) return {};
    a.scales = tensor->to_f64();
  }
  if (version != Version::resize) return a;
  if (given(ctx, 3)) {
    const Tensor* tensor = known(ctx, 3);
    if (tensor == nullptr) return {};
    a.sizes = tensor->to_i64();
  }
  if (given(ctx, 1) && attrs.text("coordinate_transformation_mode") == "tf_crop_and_resize") {
    const Tensor* tensor = known(ctx, 1);
    if (tensor == nullptr) return {};
    a.roi = tensor->to_f64();
  }
  return a;
}

// ---- sizes ------------------------------------------------------------------------------------------------

// Of an axis that changes: it has a table of weights, made when planning.
constexpr std::int64_t kMostOut = std::int64_t{1} << 20, kMostIn = std::int64_t{1} << 24;
constexpr double kMostWeights = 4.0 * kMostOut;  // as many as a cubic axis of kMostOut has without antialias

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

Status set_scale(Axis& axis, double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) return infer_error("a scale is " + number_text(scale));
  axis.scale = scale;
  const double out = std::floor(static_cast<double>(axis.in) * scale);
  if (out >= static_cast<double>(kMostOut))
    return infer_error("a scale of " + number_text(scale) + " gives too many elements");
  if (axis.in > 0 && out < 1)
    return infer_error("a scale of " + number_text(scale) + " leaves nothing of an axis of " +
                       std::to_string(axis.in));
  if (axis.in >= 0) axis.out = static_cast<std::int64_t>(out);
  return {};
}

// The sizes asked for, or those of one common scale.
Status set_sizes(std::vector<Axis*> axes, const Ints& sizes, const std::string& policy) {
  double common = policy == "not_larger" ? INFINITY : 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& axis = *axes[i];
    if (sizes[i] <= 0 || sizes[i] >= kMostOut) return infer_error("a size is " + std::to_string(sizes[i]));
    axis.out = sizes[i];
    if (axis.in == 0) return infer_error("an empty axis has no other size");
    axis.scale = static_cast<double>(sizes[i]) / static_cast<double>(axis.in);
    common = policy == "not_larger" ? std::min(common, axis.scale) : std::max(common, axis.scale);
    if (axis.in < 0 && policy != "stretch")
      return infer_error("keep_aspect_ratio_policy needs known dimensions");
  }
  if (policy == "stretch") return {};
  for (Axis* axis : axes) {
    axis->scale = common;
    axis->out = static_cast<std::int64_t>(std::floor(common * static_cast<double>(axis->in) + 0.5));
  }
  return {};
}

Status set_axes(Plan& plan, const Attrs& attrs, const Arguments& a, const Shape& x) {
  for (std::int64_t d : x) plan.axes.push_back({d, d, 1});
  Ints which(x.size());
  std::iota(which.begin(), which.end(), 0);
  if (attrs.has("axes")) {
    which = attrs.integers("axes");
    TRY(normalized_axes(which, x.size()));  // distinct and in range
  }
  std::vector<Axis*> axes;
  for (std::int64_t axis : which)
    axes.push_back(&plan.axes[static_cast<std::size_t>(TRY(normalized_axis(axis, x.size())))]);
  if (a.scales.empty() == a.sizes.empty()) return infer_error("either scales or sizes must be given");
  if (a.scales.size() + a.sizes.size() != axes.size())
    return infer_error(std::to_string(a.scales.size() + a.sizes.size()) + " scales or sizes for " +
                       std::to_string(axes.size()) + " axes");
  for (std::size_t i = 0; i < a.scales.size(); ++i) TRY(set_scale(*axes[i], a.scales[i]));
  if (!a.sizes.empty()) TRY(set_sizes(axes, a.sizes, attrs.text("keep_aspect_ratio_policy", "stretch")));
  if (plan.transformation != "tf_crop_and_resize") return {};
  if (a.roi.size() != 2 * axes.size()) return infer_error("roi must have a start and an end per axis");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i]->roi_begin = a.roi[i];
    axes[i]->roi_end = a.roi[axes.size() + i];
    if (!std::isfinite(a.roi[i]) || !std::isfinite(axes[i]->roi_end))
      return infer_error("roi must be finite");
  }
  return {};
}

// ---- tables -----------------------------------------------------------------------------------------------

double coordinate(const Plan& plan, const Axis& axis, std::int64_t j) {
  const std::string& t = plan.transformation;
  const double at = static_cast<double>(j), in = static_cast<double>(axis.in),
               out = static_cast<double>(axis.out);
  // Exact where sizes were given: 18 * 14 / 36 is 7, 18 / (36 / 14.0) is below.
  const auto unscaled = [&](double x) { return axis.scale == out / in ? x * in / out : x / axis.scale; };
  const double half_pixel = unscaled(at + 0.5) - 0.5, width = axis.scale * in;
  if (t == "half_pixel") return half_pixel;
  if (t == "half_pixel_symmetric") return in / 2 * (1 - out / width) + half_pixel;
  if (t == "pytorch_half_pixel") return axis.out > 1 ? half_pixel : 0;
  if (t == "align_corners") return axis.out > 1 ? at * (in - 1) / (width - 1) : 0;
  if (t == "asymmetric") {
    if (plan.mode != "nearest" || plan.nearest != "floor") return unscaled(at);
    // What PyTorch and TensorFlow write, with their arithmetic: f32 decides on which side of a pixel's edge it is.
    const float ratio = axis.scale == out / in ? static_cast<float>(in) / static_cast<float>(out)
                                               : static_cast<float>(1 / axis.scale);
    return static_cast<float>(at) * ratio;
  }
  if (t == "tf_half_pixel_for_nn") return unscaled(at + 0.5);
  if (axis.out == 1) return (axis.roi_begin + axis.roi_end) * (in - 1) / 2;
  return axis.roi_begin * (in - 1) + at * (axis.roi_end - axis.roi_begin) * (in - 1) / (width - 1);
}

double rounded(const std::string& mode, double c) {
  if (mode == "round_prefer_floor") return std::ceil(c - 0.5);
  if (mode == "round_prefer_ceil") return std::floor(c + 0.5);
  return mode == "floor" ? std::floor(c) : std::ceil(c);
}

double linear_weight(double x) { return std::max(0.0, 1 - std::fabs(x)); }
double cubic_weight(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

std::int64_t edge(double at, std::int64_t size) {
  return static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(size - 1)));
}

// How much the kernel is widened, and the elements on either side of a coordinate that have a weight.
double narrowing(const Plan& plan, const Axis& axis) {
  return plan.antialias ? std::min(axis.scale, 1.0) : 1;
}
double support_of(const Plan& plan, const Axis& axis) {
  return plan.mode == "nearest" ? 1 : (plan.mode == "cubic" ? 2 : 1) / narrowing(plan, axis);
}

Status check_table(const Plan& plan, const Axis& axis) {
  if (axis.in > kMostIn)
    return infer_error("an axis of " + std::to_string(axis.in) + " elements is over the limit of " +
                       std::to_string(kMostIn) + " of those that change");
  if (const double weights = 2 * support_of(plan, axis) * static_cast<double>(axis.out);
      weights > kMostWeights + 8)
    return infer_error("antialias of " + std::to_string(axis.in) + " elements to " +
                       std::to_string(axis.out) + " needs more than the limit of " +
                       std::to_string(static_cast<std::int64_t>(kMostWeights)) + " weights");
  return {};
}

// The row of the table for coordinate c: one entry per element of x, ascending.
void add_weights(const Plan& plan, const Axis& axis, double c, AxisTable& table) {
  const bool cubic = plan.mode == "cubic";
  const double narrow = narrowing(plan, axis), support = support_of(plan, axis);
  std::vector<std::pair<std::int64_t, double>> taps;
  double sum = 0;
  // Counted: far outside, i + 1 is i.
  const double first = std::floor(c - support) + 1;
  for (double k = 0; k <= 2 * support && first + k < c + support; ++k) {
    const double i = first + k;
    const double w = cubic ? cubic_weight((i - c) * narrow, plan.cubic) : linear_weight((i - c) * narrow);
    const std::int64_t at = edge(i, axis.in);
    if (w == 0 || (plan.exclude_outside && static_cast<double>(at) != i)) continue;
    sum += w;
    if (!taps.empty() && taps.back().first == at)
      taps.back().second += w;
    else
      taps.push_back({at, w});
  }
  const bool whole = plan.antialias || plan.exclude_outside;
  for (const auto& [at, w] : taps) table.add(at, whole && sum != 0 ? w / sum : w);
}

struct Interpolation {
  Tables tables;
  Outside outside;
};

Result<Interpolation> interpolation_of(const Plan& plan) {
  Interpolation result;
  result.tables.resize(plan.axes.size());
  const bool crops = plan.transformation == "tf_crop_and_resize";
  result.outside.value = plan.extrapolation;
  if (crops) result.outside.rows.resize(plan.axes.size());
  for (std::size_t d = 0; d < plan.axes.size(); ++d) {
    const Axis& axis = plan.axes[d];
    if (axis.in == axis.out && axis.scale == 1 && !crops) continue;
    if (axis.in == 0 && axis.out > 0) return infer_error("an empty axis cannot be interpolated");
    TRY(check_table(plan, axis));
    AxisTable table;
    table.in = axis.in;
    for (std::int64_t j = 0; j < axis.out; ++j) {
      const double c = coordinate(plan, axis, j);
      if (!std::isfinite(c)) return infer_error("position " + std::to_string(j) + " has no coordinate");
      const bool outside = crops && (c < 0 || c > static_cast<double>(axis.in - 1));
      if (crops) result.outside.rows[d].push_back(outside);
      if (!outside && plan.mode == "nearest") table.add(edge(rounded(plan.nearest, c), axis.in), 1);
      if (!outside && plan.mode != "nearest") add_weights(plan, axis, c, table);
      table.end_row();
    }
    result.tables[d] = std::move(table);
  }
  return result;
}

// ---- the rows ---------------------------------------------------------------------------------------------

template <class Context>
Result<Interpolation> interpolation(const Context& ctx, const Attrs& attrs, const Shape& x, Version version) {
  Plan plan = TRY(read_attributes(attrs, version));
  const auto arguments = read_arguments(ctx, attrs, version);
  if (!arguments) return no_kernel("roi, scales and sizes must be known before running");
  TRY(set_axes(plan, attrs, *arguments, x));
  return interpolation_of(plan);
}

template <Version version>
Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (is_small(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  const Shape& x = ctx.shape(0);
  Plan plan = TRY(read_attributes(ctx.attrs, version));
  Shape y = x;
  if (const auto arguments = read_arguments(ctx, ctx.attrs, version)) {
    TRY(set_axes(plan, ctx.attrs, *arguments, x));
    for (std::size_t d = 0; d < x.size(); ++d) {
      const Axis& axis = plan.axes[d];
      const bool unknown = x[d] < 0 && axis.out < 0 && axis.scale != 1;
      y[d] = unknown ? derived_dim("resize " + std::to_string(x[d]) + " " + std::to_string(axis.scale))
                     : axis.out;
    }
  } else {
    for (std::size_t d = 0; d < x.size(); ++d)
      y[d] = unknown_dim(ctx, version == Version::resize ? 2 : 1, static_cast<std::int64_t>(d));
  }
  ctx.outputs[0] = {ctx.dtype(0), y};
  return {};
}

template <Version version>
Result<Kernel> prepare(const NodeTypes& types) {
  Interpolation i = TRY(interpolation(types, types.attrs, types.inputs[0].shape, version));
  return resampling::prepare("resize", types, std::move(i.tables), i.outside);
}

template <Version version>
Status grad(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  TRY(require_static(ctx, ctx.in(0)));
  const Interpolation i = TRY(interpolation(ctx, ctx.node.attrs, ctx.shape(ctx.in(0)), version));
  ctx.set(0, resampling::gradient(ctx.b, ctx.grad(), i.tables));
  return {};
}

template <Version version>
Cost cost(const NodeTypes& types) {
  const auto i = interpolation(types, types.attrs, types.inputs[0].shape, version);
  return cost_of(types, i ? resampling::flops(types.inputs[0].shape, i->tables) : 0);
}

// ---- samples ----------------------------------------------------------------------------------------------

SampleInput known_floats(const std::vector<double>& values) {
  SampleInput input = exact(DType::f32, {static_cast<std::int64_t>(values.size())}, values);
  input.constant = true;
  return input;
}

std::vector<Sample> upsample_samples() {
  return {sample_of("nearest", {}, {floats({1, 2, 3, 2}), known_floats({1, 1, 2, 3})}),
          sample_of("attribute, linear",
                    {{"mode", std::string("linear")}, {"scales", std::vector<double>{1, 1, 2, 1.5}}},
                    {floats({1, 2, 3, 4})})};
}

std::vector<Sample> resize_10_samples() {
  return {sample_of("nearest, integers", {}, {ints({1, 1, 4, 5}, -9, 9), known_floats({1, 1, 0.5, 2})}),
          sample_of("linear", {{"mode", std::string("linear")}},
                    {floats({1, 2, 3, 4}), known_floats({1, 1, 2, 0.75})})};
}

std::vector<Sample> resize_samples() {
  std::vector<Sample> list;
  const auto add = [&](const char* name, Attrs attrs, Shape x, const std::vector<double>& scales) {
    list.push_back(
        sample_of(name, std::move(attrs), {floats(std::move(x)), omitted(), known_floats(scales)}));
  };
  const auto text = [](const char* t) { return std::string(t); };
  for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
    add(nearest, {{"nearest_mode", text(nearest)}}, {1, 2, 4, 5}, {1, 1, 1.5, 0.7});
  for (const char* mode : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                           "asymmetric", "tf_half_pixel_for_nn"})
    add(mode, {{"mode", text("linear")}, {"coordinate_transformation_mode", text(mode)}}, {1, 2, 4, 6},
        {1, 1, 1.7, 0.6});
  add("cubic", {{"mode", text("cubic")}}, {1, 2, 4, 5}, {1, 1, 2, 0.8});
  add("cubic without outside",
      {{"mode", text("cubic")}, {"cubic_coeff_a", -0.5}, {"exclude_outside", std::int64_t{1}}}, {1, 1, 4, 4},
      {1, 1, 2, 0.8});
  add("linear, antialias", {{"mode", text("linear")}, {"antialias", std::int64_t{1}}}, {1, 2, 8, 5},
      {1, 1, 0.4, 1.5});
  add("cubic, antialias", {{"mode", text("cubic")}, {"antialias", std::int64_t{1}}}, {1, 1, 8, 6},
      {1, 1, 0.5, 0.6});
  add("one spatial dim", {{"mode", text("linear")}}, {2, 3, 7}, {1, 1, 1.6});
  add("three spatial dims", {{"mode", text("linear")}}, {1, 2, 3, 4, 3}, {1, 1, 2, 0.5, 1.4});
  add("nothing", {}, {2, 3}, {1, 1});
  const SampleInput roi = known_floats({0, 0, 0.4, -0.2, 1, 1, 1.3, 0.8});
  list.push_back(sample_of("crop",
                           {{"mode", text("linear")},
                            {"coordinate_transformation_mode", text("tf_crop_and_resize")},
                            {"extrapolation_value", 0.5}},
                           {floats({1, 2, 4, 4}), roi, omitted(), known_ints({1, 2, 3, 4})}));
  list.push_back(sample_of(
      "crop, nearest",
      {{"coordinate_transformation_mode", text("tf_crop_and_resize")}, {"extrapolation_value", 2.0}},
      {floats({1, 2, 4, 4}), roi, omitted(), known_ints({1, 2, 5, 3})}));
  for (const char* policy : {"not_larger", "not_smaller"})
    list.push_back(sample_of(policy, {{"axes", Ints{3, 2}}, {"keep_aspect_ratio_policy", text(policy)}},
                             {floats({1, 2, 4, 6}), omitted(), omitted(), known_ints({9, 8})}));
  list.push_back(sample_of(
      "integers", {}, {ints({1, 3, 4}, 0, 200, DType::u8), omitted(), omitted(), known_ints({1, 6, 4})}));
  list.push_back(sample_of("double", {{"mode", text("linear")}},
                           {floats({8, 64, 56, 56}), omitted(), known_floats({1, 1, 2, 2})}));
  list.back().bench = true;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    add("decoder", {{"mode", text(mode)}}, {8, 64, 64, 64}, {1, 1, 2, 2});
    list.back().name += std::string(", ") + mode;
    list.back().bench = true;
  }
  add("halves", {{"mode", text("linear")}}, {8, 64, 128, 128}, {1, 1, 0.5, 0.5});
  list.back().bench = true;
  return list;
}

constexpr InputRole kResizeRoles[] = {{.input = 1, .use = InputUse::sizes},
                                      {.input = 2, .use = InputUse::sizes},
                                      {.input = 3, .use = InputUse::sizes}};

}  // namespace

const OpDef upsample_op = {.name = "Upsample",
                           .since = 7,
                           .until = 9,
                           .summary = "Enlarges by interpolation",
                           .min_inputs = 1,
                           .max_inputs = 2,
                           .infer = infer<Version::upsample>,
                           .grad = grad<Version::upsample>,
                           .cost = cost<Version::upsample>,
                           .cpu = prepare<Version::upsample>,
                           .gpu = prepare<Version::upsample>,
                           .samples = upsample_samples,
                           .roles = kSizesSecond};
const OpDef resize_10_op = {.name = "Resize",
                            .since = 10,
                            .until = 10,
                            .summary = "Another size by interpolation",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .infer = infer<Version::resize_10>,
                            .grad = grad<Version::resize_10>,
                            .cost = cost<Version::resize_10>,
                            .cpu = prepare<Version::resize_10>,
                            .gpu = prepare<Version::resize_10>,
                            .samples = resize_10_samples,
                            .roles = kSizesSecond};
const OpDef resize_op = {.name = "Resize",
                         .since = 11,
                         .summary = "Another size by interpolation",
                         .min_inputs = 1,
                         .max_inputs = 4,
                         .infer = infer<Version::resize>,
                         .grad = grad<Version::resize>,
                         .cost = cost<Version::resize>,
                         .cpu = prepare<Version::resize>,
                         .gpu = prepare<Version::resize>,
                         .samples = resize_samples,
                         .roles = kResizeRoles};

}  // namespace gradloom
