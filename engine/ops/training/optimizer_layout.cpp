#include "engine/ops/training/optimizer_layout.h"

#include <set>
#include <string>
#include <string_view>

#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "kernels/block_quantization.h"

namespace gradloom {
namespace {

using kernels::OptimizerKind, kernels::StateForm, kernels::StateRange;
using namespace kernels::portable;  // block_quantization.h
using namespace optimizer_inputs;

#define NUMBER(...)
#define FLAG(...)
#define STATE(number, name, form, range, needs) {number, StateForm::form, StateRange::range, needs},
#define OPTIMIZER(name, title, lr, states, ...) constexpr OptimizerRowState name##_states[] = {states};
#include "kernels/optimizers.def"
#undef OPTIMIZER

#undef FLAG
#define FLAG(field, ...) || std::string_view(#field) == "eight_bit_states"
constexpr OptimizerRow kRows[] = {
#define OPTIMIZER(name, title, lr, states, reach, bare_operations, operations, start, formula, source, \
                  options)                                                                             \
  {#name, OptimizerKind::name, name##_states, UpdateReach::reach, bare_operations, operations, false options},
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef STATE
#undef FLAG
#undef NUMBER
};

Status check_copies(const std::vector<std::int64_t>& copies, std::int64_t n) {
  const std::set<std::int64_t> places(copies.begin(), copies.end());
  if (places.size() != copies.size() || (!places.empty() && (*places.begin() < 0 || *places.rbegin() >= n)))
    return infer_error("copies must be different parameters");
  return {};
}

Status check_ranges(const OptimizerLayout& l) {
  if (l.begins.empty() && l.counts.empty()) return {};
  if (l.begins.size() != l.n || l.counts.size() != l.n)
    return infer_error("begins and counts must be one per parameter");
  if (l.row->reach != UpdateReach::element)
    return infer_error(std::string(l.row->name) + " updates whole parameters");
  if (!l.keys.empty()) return infer_error("what is rounded at random is a whole parameter");
  for (std::size_t i = 0; i < l.n; ++i)
    if (l.begins[i] < 0 || l.counts[i] < 0 || l.begins[i] % kRangeUnit != 0)
      return infer_error("a range begins at " + std::to_string(l.begins[i]) + " and has " +
                         std::to_string(l.counts[i]) + " elements");
  return {};
}

}  // namespace

Result<OptimizerLayout> optimizer_layout(const Attrs& attrs) {
  const std::string kind = attrs.text("kind", kRows[0].name);
  const std::int64_t n = attrs.integer("n", 1);
  if (n < 1 || n > (1 << 20)) return infer_error("n is " + std::to_string(n));
  for (const OptimizerRow& row : kRows) {
    if (kind != row.name) continue;
    OptimizerLayout layout{&row,
                           static_cast<std::size_t>(n),
                           attrs.integer("factored", 0) != 0,
                           attrs.integer("eight_bit_states", 0) != 0,
                           {},
                           attrs.integers("copies"),
                           attrs.integers("keys"),
                           attrs.integers("begins"),
                           attrs.integers("counts")};
    TRY(check_copies(layout.copies, n));
    if (!layout.copies.empty()) layout.copy_of.assign(layout.n, -1);
    for (std::size_t i = 0; i < layout.copies.size(); ++i)
      layout.copy_of[static_cast<std::size_t>(layout.copies[i])] = as_dim(i);
    TRY(check_ranges(layout));
    if (layout.eight_bit && !row.eight_bit) return infer_error("states of " + kind + " are not of 8 bits");
    if (!layout.keys.empty() && (as_dim(layout.keys.size()) != n || !layout.copies.empty()))
      return infer_error("keys must be one per parameter, without copies");
    for (const OptimizerRowState& state : row.states) {
      if (*state.needs != 0 && attrs.real(state.needs) == 0) continue;
      if (state.form == StateForm::whole || layout.factored == (state.form != StateForm::unfactored))
        layout.states.push_back(state);
      if (layout.eight_bit && state.number == 3) return infer_error("a third state is not of 8 bits");
    }
    return layout;
  }
  return infer_error("kind '" + kind + "' is unknown");
}

Result<Type> optimizer_state_type(const OptimizerLayout& l, const Type& parameter, StateForm form) {
  Type type = parameter;
  if (l.eight_bit && !is_static(parameter.shape)) return infer_error("states of 8 bits need every dim bound");
  if (l.eight_bit) return Type{DType::u8, {encoded_bytes(element_count(parameter.shape))}};
  if (form == StateForm::whole || form == StateForm::unfactored) return type;
  if (type.shape.size() < 2 || element_count(type.shape) == 0)
    return infer_error("a parameter " + to_string(parameter) + " cannot be factored");
  if (form == StateForm::rows)
    type.shape.pop_back();
  else
    type.shape.erase(type.shape.end() - 2);
  return type;
}

UpdateReach update_reach(std::string_view kind) {
  for (const OptimizerRow& row : kRows)
    if (kind == row.name) return row.reach;
  return UpdateReach::tensor;
}

}  // namespace gradloom
