#include "passes/rules.h"

#include <memory>
#include <optional>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/fusion.h"
#include "passes/rule_template.h"

namespace gradloom {
namespace {

struct Condition {
  RuleCondition condition;
  std::string text;
};

// A rule that was read: what runs, and the declaration that other code knows it by.
struct UserRule {
  std::string name, summary, doc;
  std::string key_op;
  std::optional<Pattern> pattern;
  std::optional<RuleTemplate> replacement, gradient;
  std::vector<Condition> conditions;
  PassDef def;
};

// The replacement, and the gradients that the rule gives: values by their names in the rule.
Result<RuleTemplate::Values> build_rule(const UserRule& rule, GraphBuilder& b, const Rewriter& rw,
                                        const Match& match, RuleTemplate::Values values) {
  values = TRY(rule.replacement->build(b, rw, match, std::move(values)));
  if (!rule.gradient) return values;
  ValueId& result = values.at(rule.pattern->root_name());
  std::vector<ValueId> inputs{b.op("StopGradient", {result})};
  inputs.push_back(b.op("GradientSeed", {inputs[0]}));
  RuleTemplate::Values known = values;
  known["d" + rule.pattern->root_name()] = inputs[1];
  const RuleTemplate::Values gradients = TRY(rule.gradient->build(b, rw, match, std::move(known)));
  for (const std::string& name : rule.replacement->used()) {
    const ValueId value = values.at(name);
    if (!is_float(b.type(value).dtype) || is_constant(b.graph(), value)) continue;
    const auto given = gradients.find("d" + name);
    if (given == gradients.end()) return Error{Errc::usage, "the rule gives no gradient of '" + name + "'"};
    if (b.type(given->second) != b.type(value))
      return Error{Errc::usage, "the gradient of '" + name + "' is " + to_string(b.type(given->second)) +
                                    ", the value is " + to_string(b.type(value))};
    inputs.push_back(value);
    inputs.push_back(b.op("StopGradient", {given->second}));
  }
  if (inputs.size() > 2) result = TRY(b.add(op_by_name("GivenGradient"), inputs, {}))[0];
  return values;
}

// The same beside the match, in a graph of its own: whether it may be, and of which type the result is.
Result<Type> type_of_replacement(const UserRule& rule, const Rewriter& rw, const Match& match) {
  Graph trial;
  GraphBuilder b(trial);
  RuleTemplate::Values values;
  for (const std::string& name : rule.replacement->used()) {
    const auto found = match.values.find(name);
    if (found == match.values.end()) return Error{Errc::usage, "the form that matched has no '" + name + "'"};
    const Value& value = rw.graph().values[found->second];
    values[name] = is_constant(rw.graph(), found->second) && value.data.defined()
                       ? b.constant(value.data, b.unique_name("in"))
                       : b.input(b.unique_name("in"), value.type);
  }
  return b.type(TRY(build_rule(rule, b, rw, match, std::move(values))).at(rule.pattern->root_name()));
}

std::string apply_rule(const UserRule& rule, Rewriter& rw, const Match& match) {
  const ValueId old_value = rw.graph().nodes[match.root].outputs[0];
  for (const Condition& condition : rule.conditions)
    if (!condition.condition.holds(rw, match)) return "the rule wants " + condition.text;
  const auto type = type_of_replacement(rule, rw, match);
  if (!type.ok()) return "the replacement cannot be: " + type.error().message;
  if (*type != rw.graph().type(old_value))
    return "the replacement is " + to_string(*type) + ", what it would replace is " +
           to_string(rw.graph().type(old_value));
  if (rw.graph().values[old_value].data.defined())
    return "its contents are known before running, and shapes may depend on them";
  if (!rule.replacement->existing().empty() && rw.is_output(old_value))
    return "its result " + rw.graph().values[old_value].name + " is an output of the graph";
  GraphBuilder& b = rw.begin(rule.name, match.root, match.nodes);
  const auto made = build_rule(rule, b, rw, match, match.values);
  CHECK(made.ok(), made.ok() ? "" : made.error().message.c_str());
  rw.replace(old_value, made->at(rule.pattern->root_name()));
  rw.commit();
  return "";
}

class RulePass final : public Pass {
 public:
  explicit RulePass(const UserRule& rule) : rule_(rule) {}
  Status run(Rewriter& rw) const override {
    const FusionRule fusion{
        rule_.name.c_str(), *rule_.pattern, rule_.key_op.c_str(),
        [&](Rewriter& rewriter, const Match& match) { return apply_rule(rule_, rewriter, match); }};
    return run_fusion(rw, {&fusion, 1});
  }

 private:
  const UserRule& rule_;  // which the pass's configuration keeps
};

bool is_keyword(const Scanner& scanner, const char* word) {
  return scanner.token().kind == Scanner::Kind::word && scanner.token().text == word;
}

Status read_conditions(Scanner& scanner, UserRule& rule) {
  if (!is_keyword(scanner, "where")) return {};
  scanner.take();
  do {
    if (rule.conditions.size() == Pattern::kMostStatements) return scanner.error("too many conditions");
    const Scanner::Token at = scanner.token();
    auto condition = TRY(RuleCondition::parse(scanner, *rule.pattern));
    rule.conditions.push_back({std::move(condition), scanner.between(at)});
  } while (scanner.take_if(","));
  return {};
}

Status check_name(const Scanner& scanner, const Scanner::Token& at, const std::string& name,
                  const Rules& rules) {
  if (find_pass(name) != nullptr || name == "default" || name == "none")
    return scanner.error_at(at, "a pass is called '" + name + "' already");
  for (const auto& other : rules)
    if (name == other->name) return scanner.error_at(at, "rule '" + name + "' stands here twice");
  return {};
}

Result<std::shared_ptr<const PassDef>> read_rule(Scanner& scanner, const Rules& rules) {
  const Scanner::Token start = scanner.token();
  if (!is_keyword(scanner, "rule")) return scanner.error("expected 'rule'");
  scanner.take();
  const Scanner::Token at = scanner.token();
  if (at.kind != Scanner::Kind::word) return scanner.error("expected the name of a rule");
  const auto rule = std::make_shared<UserRule>();
  rule->name = scanner.dashed_word();
  TRY(check_name(scanner, at, rule->name, rules));
  const bool after = is_keyword(scanner, "after");
  if (after || is_keyword(scanner, "before")) scanner.take();
  TRY(scanner.expect("{"));
  const Scanner::Token body = scanner.token();
  rule->pattern = TRY(Pattern::parse(scanner, "->"));
  rule->replacement = TRY(RuleTemplate::parse(scanner, *rule->pattern));
  if (is_keyword(scanner, "gradient")) {
    if (after) return scanner.error("rules that run after autodiff have no gradient");
    scanner.take();
    rule->gradient = TRY(RuleTemplate::parse_gradient(scanner, *rule->pattern, *rule->replacement));
  }
  rule->summary = scanner.between(body);
  TRY(read_conditions(scanner, *rule));
  TRY(scanner.expect("}"));
  rule->doc = scanner.between(start);
  rule->key_op = rule->pattern->key_op();
  rule->def = {.name = rule->name.c_str(),
               .summary = rule->summary.c_str(),
               .doc = rule->doc.c_str(),
               .phase = after ? PassPhase::post_gradient : PassPhase::pre_gradient,
               .bit_exact = false,
               .make = [made = rule.get()] { return std::unique_ptr<Pass>(new RulePass(*made)); },
               .example = nullptr};
  return std::shared_ptr<const PassDef>(rule, &rule->def);
}

}  // namespace

Result<Rules> parse_rules(const std::string& text, const std::string& source) {
  if (text.size() > kMostRulesBytes)
    return Error{Errc::limit, escaped(source) + ": more than " + bytes_text(kMostRulesBytes) + " of rules"};
  Scanner scanner(text, source);
  Rules rules;
  while (!scanner.at_end()) {
    if (rules.size() == kMostRules)
      return scanner.error("more than " + std::to_string(kMostRules) + " rules");
    rules.push_back(TRY(read_rule(scanner, rules)));
  }
  return rules;
}

}  // namespace gradloom
