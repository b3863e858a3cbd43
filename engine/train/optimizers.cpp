#include "engine/train/optimizers.h"

#include <algorithm>

#include "engine/base/text.h"

namespace gradloom {
namespace {

#define NUMBER(field, name, fallback, least, most, help) \
  {#field, name, help, fallback, least, most, &OptimizerSpec::field, nullptr},
#define FLAG(field, name, fallback, help) \
  {#field, name, help, fallback, 0, 1, nullptr, &OptimizerSpec::field},
#define OPTIMIZER(name, title, lr, states, needs, bare, operations, start, formula, source, options) \
  constexpr OptimizerOption name##_options[] = {options};
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef FLAG
#undef NUMBER

constexpr OptimizerDef kOptimizers[] = {
#define OPTIMIZER(name, title, lr, states, needs, bare, operations, start, formula, source, options) \
  {#name, kernels::OptimizerKind::name, title, lr, states, needs, start, formula, source, name##_options},
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
  return spec;
}

std::string print_optimizer(const OptimizerSpec& spec) {
  OptimizerSpec copy = spec;
  return std::string(optimizer_def(spec.kind).name) + "{" +
         print_fields([&](FieldVisitor& v) { copy.fields(v); }) + "}";
}

Attrs optimizer_attrs(const OptimizerSpec& spec) {
  const OptimizerDef& def = optimizer_def(spec.kind);
  Attrs attrs{{"kind", std::string(def.name)}, {"n", std::int64_t{1}}};
  for (const OptimizerOption& option : def.options) {
    if (option.number != nullptr)
      attrs.set(option.field, spec.*option.number);
    else
      attrs.set(option.field, std::int64_t{spec.*option.flag});
  }
  return attrs;
}

std::vector<std::string> optimizer_states(const OptimizerSpec& spec) {
  const OptimizerDef& def = optimizer_def(spec.kind);
  for (const OptimizerOption& option : def.options)
    if (std::string(def.needs) == option.name && value_of(spec, option) == 0) return {};
  return split_top_level(def.states, ' ');
}

}  // namespace gradloom
