// NonMaxSuppression(boxes [n, b, 4], scores [n, classes, b], most per class, IoU threshold, score threshold)
// of known tensors: how many boxes are left depends on their contents. Per image and class, from the highest
// score down (equal ones by index): a box is taken when its score is above the threshold and its intersection
// over union with none of those taken before is above the other. Result: i64 [taken, 3], image, class and
// box. center_point_box 0: two opposite corners y, x, y, x in any order; 1: center x, y, width, height.
// Source: ONNX NonMaxSuppression-11 and its reference implementation.
#include <algorithm>
#include <optional>

#include "engine/ops/known_bytes.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

struct Box {
  double left, right, top, bottom;
  double area() const { return (right - left) * (bottom - top); }
};

Box box_at(const Tensor& boxes, std::int64_t at, bool centered) {
  const double a = boxes.at(4 * at), b = boxes.at(4 * at + 1), c = boxes.at(4 * at + 2),
               d = boxes.at(4 * at + 3);
  if (centered) return {a - c / 2, a + c / 2, b - d / 2, b + d / 2};
  return {std::min(b, d), std::max(b, d), std::min(a, c), std::max(a, c)};
}

double intersection_over_union(const Box& a, const Box& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left),
               height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (!(width > 0) || !(height > 0) || !(a.area() > 0) || !(b.area() > 0)) return 0;
  return width * height / (a.area() + b.area() - width * height);
}

struct Arguments {
  const Tensor *boxes = nullptr, *scores = nullptr;
  std::int64_t most = 0;
  double overlap = 0;
  std::optional<double> score;
  bool centered = false;
};

// constant(i): the contents of input i, or null; has(i): it is given. No value: something is not known.
template <class Constant, class Has>
Result<std::optional<Arguments>> arguments_of(const Constant& constant, const Has& has, const Attrs& attrs) {
  Arguments a;
  a.centered = attrs.integer("center_point_box") != 0;
  for (std::size_t i = 0; i < 5; ++i) {
    if (!has(i)) continue;
    const Tensor* tensor = constant(i);
    if (tensor == nullptr) return std::optional<Arguments>();
    if (i > 1 && tensor->count() == 0) continue;
    if (i > 1 && tensor->count() != 1)
      return infer_error("input " + std::to_string(i) + " must be one number");
    if (i == 0) a.boxes = tensor;
    if (i == 1) a.scores = tensor;
    if (i == 2) a.most = std::max<std::int64_t>(tensor->int_at(0), 0);
    if (i == 3) a.overlap = tensor->at(0);
    if (i == 4) a.score = tensor->at(0);
  }
  return std::optional<Arguments>(a);
}

// Indices of the boxes taken of one image and class, best first; `work`: comparisons that are left.
Result<Ints> taken(const Arguments& a, std::int64_t image, std::int64_t row, std::int64_t count,
                   std::int64_t* work) {
  Ints order;
  for (std::int64_t i = 0; i < count; ++i)
    if (!a.score || a.scores->at(row * count + i) > *a.score) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    const double left = a.scores->at(row * count + i), right = a.scores->at(row * count + j);
    return left > right || (right != right && left == left);  // NaN last
  });
  Ints result;
  std::vector<Box> boxes;
  for (const std::int64_t i : order) {
    if (static_cast<std::int64_t>(result.size()) >= a.most) break;
    const Box box = box_at(*a.boxes, image * count + i, a.centered);
    *work -= static_cast<std::int64_t>(boxes.size()) + 1;
    if (*work < 0) return infer_error("compares too many boxes");
    const bool hidden = std::any_of(boxes.begin(), boxes.end(), [&](const Box& other) {
      return intersection_over_union(box, other) > a.overlap;
    });
    if (hidden) continue;
    result.push_back(i);
    boxes.push_back(box);
  }
  return result;
}

Result<Tensor> suppressed(const Arguments& a) {
  constexpr std::int64_t kMostWork = 50'000'000;
  const Shape &boxes = a.boxes->shape(), &scores = a.scores->shape();
  std::int64_t work = kMostWork;
  Ints rows;
  for (std::int64_t image = 0; image < scores[0]; ++image)
    for (std::int64_t c = 0; c < scores[1]; ++c)
      for (const std::int64_t box : TRY(taken(a, image, image * scores[1] + c, boxes[1], &work)))
        rows.insert(rows.end(), {image, c, box});
  return Tensor::from_i64(rows).reshaped({static_cast<std::int64_t>(rows.size()) / 3, 3});
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape &boxes = ctx.shape(0), &scores = ctx.shape(1);
  for (std::size_t i = 0; i < 5; ++i) {
    if (!ctx.has(i)) continue;
    if (i == 2 ? ctx.dtype(i) != DType::i64 : !is_float(ctx.dtype(i)))
      return infer_error("input " + std::to_string(i) + " is " + dtype_name(ctx.dtype(i)));
  }
  if (boxes.size() != 3 || scores.size() != 3 || dims_differ(boxes[2], 4) ||
      dims_differ(boxes[0], scores[0]) || dims_differ(boxes[1], scores[2]))
    return infer_error("boxes " + to_string(boxes) + " and scores " + to_string(scores) +
                       " must be [n, boxes, 4] and [n, classes, boxes]");
  const std::int64_t layout = ctx.attrs.integer("center_point_box");
  if (layout != 0 && layout != 1) return infer_error("center_point_box is " + std::to_string(layout));
  const auto a = TRY(arguments_of([&](std::size_t i) { return ctx.constant(i); },
                                  [&](std::size_t i) { return ctx.has(i); }, ctx.attrs));
  const std::int64_t count = a ? TRY(suppressed(*a)).shape()[0] : unknown_dim(ctx, 1, 0);
  return set_outputs(ctx, {{DType::i64, {count, 3}}});
}

Result<Kernel> prepare(const NodeTypes& types) {
  const auto a = TRY(arguments_of([&](std::size_t i) { return types.constants[i]; },
                                  [&](std::size_t i) { return types.has(i); }, types.attrs));
  if (!a) return no_kernel("NonMaxSuppression: its inputs must be known when planning");
  return known_outputs(types, "non max suppression", {TRY(suppressed(*a))});
}

SampleInput known(DType dtype, Shape shape, std::vector<double> values) {
  SampleInput input = exact(dtype, std::move(shape), std::move(values));
  input.constant = true;
  return input;
}

std::vector<Sample> samples() {
  const auto number = [](double v) { return known(DType::f32, {1}, {v}); };
  const auto most = [](double v) { return known(DType::i64, {1}, {v}); };
  const SampleInput boxes = known(DType::f32, {1, 4, 4},
                                  {0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, -0.1, 1, 0.9, 0, 10, 1, 11}),
                    scores = known(DType::f32, {1, 2, 4}, {0.9, 0.75, 0.6, 0.95, 0.1, 0.7, 0.2, 0.3});
  return {sample_of("overlap and score", {}, {boxes, scores, most(3), number(0.5), number(0.25)}),
          sample_of("limit", {}, {boxes, scores, most(1), number(0.5)}),
          sample_of("centers", {{"center_point_box", std::int64_t{1}}},
                    {known(DType::f32, {1, 3, 4}, {0.5, 0.5, 1, 1, 0.5, 0.6, 1, 1, 5, 5, 1, 1}),
                     known(DType::f32, {1, 1, 3}, {0.9, 0.95, 0.3}), most(9), number(0.5)}),
          sample_of("none by default", {}, {boxes, scores})};
}

// Everything decides how many boxes there are; the boxes are looked at where their scores say so.
constexpr InputRole kRoles[] = {{.input = 0, .use = InputUse::sizes},
                                {.input = 1, .use = InputUse::sizes, .examined = true},
                                {.input = 2, .use = InputUse::sizes},
                                {.input = 3, .use = InputUse::sizes},
                                {.input = 4, .use = InputUse::sizes}};

}  // namespace

const OpDef non_max_suppression_op = {.name = "NonMaxSuppression",
                                      .since = 10,
                                      .summary = "The best boxes that overlap little, of known tensors",
                                      .traits = kNoGradient,
                                      .min_inputs = 2,
                                      .max_inputs = 5,
                                      .infer = infer,
                                      .cpu = prepare,
                                      .gpu = prepare,
                                      .samples = samples,
                                      .roles = kRoles};

}  // namespace gradloom
