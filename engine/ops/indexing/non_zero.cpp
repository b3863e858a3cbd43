// NonZero(x): i64 [rank, count], the indices of what is not 0, row-major.
// What comes out has a size that is in the contents of an input: these must be known when planning. Source: ONNX NonZero-13.
#include "engine/ops/input_roles.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/known_bytes.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

// Calls f(test), where test(i) tells whether element i is not 0: whole-width types are read as they lie.
template <class T, class F>
auto tested_as(const Tensor& x, const F& f) {
  return f([data = x.as<T>()](std::int64_t i) { return data[i] != T{0}; });
}

template <class F>
auto with_test(const Tensor& x, const F& f) {
  switch (x.dtype()) {
    case DType::f32: return tested_as<float>(x, f);
    case DType::f64: return tested_as<double>(x, f);
    case DType::i64: return tested_as<std::int64_t>(x, f);
    case DType::i32: return tested_as<std::int32_t>(x, f);
    case DType::boolean: return tested_as<std::uint8_t>(x, f);
    default: return f([&](std::int64_t i) { return x.at(i) != 0; });
  }
}

std::int64_t nonzero_count(const Tensor& x) {
  return with_test(x, [n = x.count()](const auto& test) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < n; ++i) count += test(i) ? 1 : 0;
    return count;
  });
}

Tensor nonzero_of(const Tensor& x) {
  const Shape& shape = x.shape();
  const std::int64_t count = nonzero_count(x);
  Tensor y(DType::i64, {static_cast<std::int64_t>(shape.size()), count});
  std::int64_t* to = y.mutable_as<std::int64_t>();
  Shape place(shape.size(), 0);
  with_test(x, [&](const auto& test) {
    for (std::int64_t i = 0, n = x.count(); i < n; ++i) {
      if (test(i)) {
        for (std::size_t d = 0; d < place.size(); ++d) to[static_cast<std::int64_t>(d) * count] = place[d];
        ++to;
      }
      for (std::size_t d = place.size(); d-- > 0 && ++place[d] == shape[d];) place[d] = 0;
    }
  });
  return y;
}

Status infer_nonzero(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Tensor* x = ctx.constant(0);
  const std::int64_t rank = static_cast<std::int64_t>(ctx.shape(0).size());
  std::int64_t count = unknown_dim(ctx, 0, 0);
  if (x != nullptr) count = nonzero_count(*x);
  return set_outputs(ctx, {{DType::i64, {rank, count}}});
}

Result<Kernel> prepare_nonzero(const NodeTypes& types) {
  if (types.constants[0] == nullptr) return no_kernel("NonZero: the input must be known when planning");
  return known_outputs(types, "nonzero", {nonzero_of(*types.constants[0])});
}

std::vector<Sample> nonzero_samples() {
  return {sample_of("matrix", {}, {known_exact(DType::f32, {2, 3}, {0, 1, 0, -2, 0, 3})}),
          sample_of("truths", {}, {known_truths({1, 1, 0, 1})})};
}

}  // namespace

const OpDef nonzero_op = {.name = "NonZero",
                          .since = 9,
                          .summary = "Indices of what is not 0, of a known tensor",
                          .traits = kNoGradient,
                          .infer = infer_nonzero,
                          .cpu = prepare_nonzero,
                          .gpu = prepare_nonzero,
                          .samples = nonzero_samples,
                          .roles = kExaminedFirst};

}  // namespace gradloom
