// Unique(x), attributes axis, sorted: the different elements or parts, where each came first, which one each is, how
// many there are.
// What comes out has a size that is in the contents of an input: these must be known when planning. Source: ONNX Unique-11.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "engine/ops/input_roles.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/known_bytes.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

struct UniqueResult {
  Tensor values, first, inverse, counts;
};

// Elements compared as integers where they are.
bool less_at(const Tensor& x, std::int64_t a, std::int64_t b) {
  return is_float(x.dtype()) || is_small_float(x.dtype()) ? x.at(a) < x.at(b) : x.int_at(a) < x.int_at(b);
}

Result<UniqueResult> unique_of(const Tensor& x, const Attrs& attrs) {
  const AxisView v = TRY(optional_axis_view(attrs, x.shape()));
  const auto place = [&](std::int64_t part, std::int64_t i) {
    return (i / v.inner * v.size + part) * v.inner + i % v.inner;
  };
  const auto before = [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t i = 0; i < v.outer * v.inner; ++i) {
      if (less_at(x, place(a, i), place(b, i))) return true;
      if (less_at(x, place(b, i), place(a, i))) return false;
    }
    return false;
  };
  // The first part of each kind -> all of them
  std::map<std::int64_t, Ints, decltype(before)> groups(before);
  for (std::int64_t part = 0; part < v.size; ++part) groups[part].push_back(part);
  std::vector<const Ints*> order;
  for (const auto& [part, group] : groups) order.push_back(&group);
  if (attrs.integer("sorted", 1) == 0)
    std::sort(order.begin(), order.end(),
              [](const Ints* a, const Ints* b) { return a->front() < b->front(); });
  const auto count = static_cast<std::int64_t>(order.size());
  Shape shape = attrs.has("axis") ? x.shape() : Shape{count};
  if (attrs.has("axis"))
    shape[static_cast<std::size_t>(TRY(normalized_axis(attrs.integer("axis"), shape.size())))] = count;
  UniqueResult r{Tensor(x.dtype(), shape), Tensor(DType::i64, {count}), Tensor(DType::i64, {v.size}),
                 Tensor(DType::i64, {count})};
  const std::size_t bytes = dtype_bytes(x.dtype());
  char* const to = static_cast<char*>(r.values.mutable_data());
  const char* const from = static_cast<const char*>(x.data());
  for (std::int64_t n = 0; n < count; ++n) {
    const Ints& members = *order[static_cast<std::size_t>(n)];
    r.first.mutable_as<std::int64_t>()[n] = members.front();
    r.counts.mutable_as<std::int64_t>()[n] = static_cast<std::int64_t>(members.size());
    for (std::int64_t part : members) r.inverse.mutable_as<std::int64_t>()[part] = n;
    for (std::int64_t i = 0; i < v.outer * v.inner; ++i)
      std::memcpy(to + static_cast<std::size_t>((i / v.inner * count + n) * v.inner + i % v.inner) * bytes,
                  from + static_cast<std::size_t>(place(members.front(), i)) * bytes, bytes);
  }
  return r;
}

Status infer_unique(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& x = ctx.shape(0);
  const bool along = ctx.attrs.has("axis");
  const auto axis =
      along ? static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), x.size()))) : 0;
  std::int64_t count = unknown_dim(ctx, 0, 0);
  if (const Tensor* known = ctx.constant(0)) count = TRY(unique_of(*known, ctx.attrs)).first.count();
  Shape y = along ? x : Shape{count};
  if (along) y[axis] = count;
  const std::int64_t parts = along ? x[axis] : TRY(multiply_dims(x));
  return set_outputs(
      ctx, {{ctx.dtype(0), y}, {DType::i64, {count}}, {DType::i64, {parts}}, {DType::i64, {count}}});
}

Result<Kernel> prepare_unique(const NodeTypes& types) {
  if (types.constants[0] == nullptr) return no_kernel("Unique: the input must be known when planning");
  UniqueResult r = TRY(unique_of(*types.constants[0], types.attrs));
  return known_outputs(types, "unique",
                       {std::move(r.values), std::move(r.first), std::move(r.inverse), std::move(r.counts)});
}

std::vector<Sample> unique_samples() {
  const SampleInput numbers = known_exact(DType::f32, {6}, {2, 1, 1, 3, 4, 3});
  return {sample_of("sorted", {}, {numbers}, 4),
          sample_of("as they come", {{"sorted", std::int64_t{0}}}, {numbers}, 4),
          sample_of("columns", {{"axis", std::int64_t{1}}},
                    {known_exact(DType::i64, {2, 4}, {1, 0, 1, 0, 2, 3, 2, 1})}, 4)};
}

}  // namespace

const OpDef unique_op = {.name = "Unique",
                         .since = 11,
                         .summary = "Different elements of a known tensor",
                         .traits = kNoGradient,
                         .max_outputs = 4,
                         .infer = infer_unique,
                         .cpu = prepare_unique,
                         .gpu = prepare_unique,
                         .samples = unique_samples,
                         .roles = kExaminedFirst};

}  // namespace gradloom
