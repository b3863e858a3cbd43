#include "engine/train/optimizers.h"

#include <algorithm>

#include "engine/base/text.h"

namespace gradloom {
namespace {

#define NUMBER(field, name, fallback, least, most, help) \
  {#field, name, help, fallback, least, most, &OptimizerSpec::field, nullptr},
#define FLAG(field, name, fallback, help) \
  {#field, name, help, fallback, 0, 1, nullptr, &OptimizerSpec::field},
#define STATE(number, name, form, range, needs) \
  {name, kernels::StateForm::form, kernels::StateRange::range, needs},
#define OPTIMIZER(name, title, lr, states, reach, bare, operations, start, formula, source, options) \
  constexpr OptimizerOption name##_options[] = {options};                                            \
  constexpr OptimizerStateDef name##_states[] = {states};
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef STATE
#undef FLAG
#undef NUMBER

constexpr OptimizerDef kOptimizers[] = {
#define OPTIMIZER(name, title, lr, states, reach, bare, operations, start, formula, source, options) \
  {#name, kernels::OptimizerKind::name, title, lr, name##_states, start, formula, source, name##_options},
#include "kernels/optimizers.def"
#undef OPTIMIZER
};

double value_of(const OptimizerSpec& spec, const OptimizerOption& option) {
  return option.number != nullptr ? spec.*option.number : static_cast<double>(spec.*option.flag);
}

}  // namespace

std::span<const OptimizerDef> all_optimizers() { return kOptimizers; }

const OptimizerDef& optimizer_def(kernels::OptimizerKind kind) {
  return kOptimizers[static_cast<std::size_t>(kind)];  // both are the rows of optimizers.def
}

OptimizerSpec::OptimizerSpec(kernels::OptimizerKind kind_) : kind(kind_), lr(optimizer_def(kind_).lr) {
  for (const OptimizerOption& option : optimizer_def(kind).options) {
    if (option.number != nullptr)
      this->*option.number = option.fallback;
    else
      this->*option.flag = option.fallback != 0;
  }
}

void OptimizerSpec::fields(FieldVisitor& v) {
  v.field("lr", lr, {.help = "learning rate", .min = 0});
  for (const OptimizerOption& option : optimizer_def(kind).options) {
    if (option.number != nullptr)
      v.field(option.name, this->*option.number,
              {.help = option.help, .min = option.least, .max = option.most});
    else
      v.field(option.name, this->*option.flag, {.help = option.help});
  }
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerDef& def : kOptimizers) names.emplace_back(def.name);
  return names;
}

Result<OptimizerSpec> parse_optimizer(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text));
  const auto* def = std::find_if(std::begin(kOptimizers), std::end(kOptimizers),
                                 [&](const OptimizerDef& d) { return named.name == d.name; });
  if (def == std::end(kOptimizers))
    return Error{Errc::usage, unknown_name("optimizer", named.name, optimizer_names())};
  OptimizerSpec spec(def->kind);
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "optimizer " + named.name));
  if (spec.nesterov && (spec.momentum <= 0 || spec.dampening != 0))
    return Error{Errc::usage, "optimizer " + named.name + ": nesterov needs momentum > 0 and dampening = 0"};
  if (spec.amsgrad && spec.eight_bit_states)
    return Error{Errc::usage, "optimizer " + named.name + ": with amsgrad states are not of 8 bits"};
  const bool absolute = spec.kind == kernels::OptimizerKind::adafactor && !spec.relative_step;
  if (absolute && std::none_of(named.values.begin(), named.values.end(),
                               [](const auto& value) { return value.first == "lr"; }))
    return Error{Errc::usage, "optimizer " + named.name + ": relative_step=false needs lr"};
  return spec;
}

std::string print_optimizer(const OptimizerSpec& spec) {
  OptimizerSpec copy = spec;
  return std::string(optimizer_def(spec.kind).name) + "{" +
         print_fields([&](FieldVisitor& v) { copy.fields(v); }) + "}";
}

namespace {

bool is_factored(const OptimizerDef& def, const Shape& parameter) {
  const auto keeps_rows = [](const OptimizerStateDef& state) {
    return state.form == kernels::StateForm::rows;
  };
  return parameter.size() >= 2 && element_count(parameter) > 0 &&
         std::any_of(def.states.begin(), def.states.end(), keeps_rows);
}

}  // namespace

bool has_eight_bit_states(const OptimizerSpec& spec, const Shape& parameter) {
  return spec.eight_bit_states && element_count(parameter) >= kLeastEightBit;
}

Attrs optimizer_attrs(const OptimizerSpec& spec, const Shape& parameter) {
  const OptimizerDef& def = optimizer_def(spec.kind);
  Attrs attrs{{"kind", std::string(def.name)}, {"n", std::int64_t{1}}};
  for (const OptimizerOption& option : def.options) {
    if (option.number != nullptr)
      attrs.set(option.field, spec.*option.number);
    else
      attrs.set(option.field, std::int64_t{spec.*option.flag});
  }
  if (!has_eight_bit_states(spec, parameter)) attrs.erase("eight_bit_states");
  if (!spec.amsgrad) attrs.erase("amsgrad");  // graphs of before it keep their hash
  if (is_factored(def, parameter)) attrs.set("factored", std::int64_t{1});
  return attrs;
}

std::vector<OptimizerState> optimizer_states(const OptimizerSpec& spec, const Shape& parameter) {
  using kernels::StateForm;
  const OptimizerDef& def = optimizer_def(spec.kind);
  const bool factored = is_factored(def, parameter);
  std::vector<OptimizerState> states;
  for (const OptimizerStateDef& state : def.states) {
    const auto missing = [&](const OptimizerOption& option) {
      return std::string(state.needs) == option.name && value_of(spec, option) == 0;
    };
    if (state.form != StateForm::whole && factored == (state.form == StateForm::unfactored)) continue;
    if (std::any_of(def.options.begin(), def.options.end(), missing)) continue;
    Shape shape = parameter;
    if (state.form == StateForm::rows) shape.pop_back();
    if (state.form == StateForm::columns) shape.erase(shape.end() - 2);
    states.push_back({state.name, std::move(shape), state.range});
  }
  return states;
}

}  // namespace gradloom
