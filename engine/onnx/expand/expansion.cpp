#include "engine/onnx/expand/expansion.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/ops/inference.h"
#include "engine/ops/samples.h"

namespace gradloom {

const Tensor* Expander::known(ValueId id) const {
  if (id == kNone || !is_constant(builder_.graph(), id)) return nullptr;
  const Tensor& data = builder_.graph().value(id).data;
  return data.defined() ? &data : nullptr;
}

Result<ValueId> Expander::op(const char* name, std::vector<ValueId> inputs, Attrs attributes) {
  return TRY(ops(name, std::move(inputs), std::move(attributes), 1))[0];
}

Result<std::vector<ValueId>> Expander::ops(const char* name, std::vector<ValueId> inputs, Attrs attributes,
                                           int count) {
  return add_(op_by_name(name), std::move(inputs), std::move(attributes), count);
}

Result<ValueId> Expander::reshape(ValueId x, const std::vector<std::int64_t>& to) {
  return op("Reshape", {x, ints(to)});
}

Result<ValueId> Expander::transpose(ValueId x, const std::vector<std::int64_t>& permutation) {
  return op("Transpose", {x}, {{"perm", permutation}});
}

Result<ValueId> Expander::channels_first(ValueId x) {
  std::vector<std::int64_t> order(rank(x));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return transpose(x, order);
}

Result<ValueId> Expander::channels_last(ValueId x) {
  std::vector<std::int64_t> order(rank(x));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return transpose(x, order);
}

Result<ValueId> Expander::cast(ValueId x, DType to) {
  if (dtype(x) == to) return x;
  return op("Cast", {x}, {{"to", onnx_from_dtype(to)}});
}

Result<ValueId> Expander::slice(ValueId x, std::int64_t begin, std::int64_t end, std::int64_t axis) {
  return op("Slice", {x, ints({begin}), ints({end}), ints({axis})});
}

ValueId Expander::causal_mask(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  const std::string key =
      "causal " + std::to_string(rows) + " " + std::to_string(columns) + " " + std::to_string(offset);
  const auto [it, fresh] = shared_.try_emplace(key, kNone);
  if (!fresh) return it->second;
  Tensor mask(DType::boolean, {rows, columns});
  auto* allowed = static_cast<std::uint8_t*>(mask.mutable_data());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) *allowed++ = j <= i + offset ? 1 : 0;
  return it->second = builder_.constant(std::move(mask));
}

Error Expander::unsupported(const std::string& why) {
  unsupported_ = why;
  return Error{Errc::bad_input, why};
}

namespace {

std::array<std::span<const Expansion>, 12> tables() {
  return {microsoft_attention_expansions(),
          fused_expansions(),
          normalization_expansions(),
          attention_expansions(),
          activation_expansions(),
          training_expansions(),
          legacy_expansions(),
          signal_expansions(),
          image_expansions(),
          integer_expansions(),
          gating_expansions(),
          text_expansions()};
}

}  // namespace

std::vector<const Expansion*> all_expansions() {
  std::vector<const Expansion*> all;
  for (const auto table : tables())
    for (const Expansion& expansion : table) all.push_back(&expansion);
  return all;
}

const Expansion* find_expansion(const std::string& name, const std::string& domain, int opset) {
  for (const auto table : tables()) {
    for (const Expansion& e : table) {
      if (name == e.name && domain == e.domain && e.since <= opset && opset <= e.until) return &e;
    }
  }
  return nullptr;
}

}  // namespace gradloom
