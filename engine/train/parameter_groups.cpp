#include "engine/train/parameter_groups.h"

#include <algorithm>

#include "engine/base/fields.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct NumberOption {
  const char* name;
  std::optional<double> ParameterGroup::*member;
};
constexpr NumberOption kNumbers[] = {{"lr", &ParameterGroup::lr},
                                     {"lr_factor", &ParameterGroup::lr_factor},
                                     {"weight_decay", &ParameterGroup::weight_decay}};
constexpr const char *kNumber = "number", *kFreeze = "freeze";

Status set_option(ParameterGroup& group, const std::string& name, const std::string& value) {
  const std::string owner = "group '" + escaped(group.glob) + "'";
  if (name == kFreeze) {
    if (value != "on" && value != "off")
      return Error{Errc::usage, owner + ": freeze expects on or off, got '" + escaped(value) + "'"};
    group.freeze = value == "on";
    return {};
  }
  if (name == kNumber) {
    const auto number = parse_number<std::int64_t>(value);
    if (!number || *number < 0 || *number >= kMostNumbers)
      return Error{Errc::usage, owner + ": number expects 0 to " + std::to_string(kMostNumbers - 1) +
                                    ", got '" + escaped(value) + "'"};
    group.number = number;
    return {};
  }
  std::vector<std::string> known;
  for (const NumberOption& option : kNumbers) {
    known.emplace_back(option.name);
    if (name != option.name) continue;
    const std::optional<double> number = parse_number<double>(value);
    if (!number || !(*number >= 0 && *number <= 1e308))
      return Error{Errc::usage,
                   owner + ": " + name + " expects a number of at least 0, got '" + escaped(value) + "'"};
    group.*option.member = number;
    return {};
  }
  known.insert(known.end(), {kNumber, kFreeze});
  return Error{Errc::usage, unknown_name("option of " + owner, name, known)};
}

}  // namespace

std::string group_syntax() {
  std::string text = "GLOB{";
  for (const NumberOption& option : kNumbers) text += std::string(option.name) + "=N,";
  return text + kNumber + "=N," + kFreeze + "=on}";
}

Result<ParameterGroup> parse_group(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text));
  ParameterGroup group;
  group.glob = named.name;
  for (const auto& [name, value] : named.values) TRY(set_option(group, name, value));
  const std::string owner = "group '" + escaped(group.glob) + "'";
  if (named.values.empty()) return Error{Errc::usage, owner + " has no option: " + group_syntax()};
  if (group.lr && group.lr_factor) return Error{Errc::usage, owner + " has both lr and lr_factor"};
  if (group.number && (group.lr || group.lr_factor))
    return Error{Errc::usage, owner + " has a number: its rate is set by the program that trains"};
  if (group.freeze.value_or(false) && (group.lr || group.lr_factor || group.weight_decay || group.number))
    return Error{Errc::usage, owner + " is frozen: its other options would do nothing"};
  return group;
}

ParameterOptions options_of(std::span<const ParameterGroup> groups, const std::string& parameter,
                            double optimizer_lr) {
  ParameterOptions options;
  for (const ParameterGroup& group : groups) {
    if (!glob_match(group.glob, parameter)) continue;
    if (group.lr) options.lr_factor = *group.lr / optimizer_lr;
    if (group.lr_factor) options.lr_factor = *group.lr_factor;
    if (group.number) options.number = *group.number;
    if (group.number) options.lr_factor = 1;
    if (group.weight_decay) options.weight_decay = group.weight_decay;
    if (group.freeze) options.frozen = *group.freeze;
  }
  return options;
}

std::int64_t group_numbers(std::span<const ParameterGroup> groups) {
  std::int64_t numbers = 0;
  for (const ParameterGroup& group : groups)
    if (group.number) numbers = std::max(numbers, *group.number + 1);
  return numbers;
}

Status check_groups(std::span<const ParameterGroup> groups, double optimizer_lr) {
  for (const ParameterGroup& group : groups)
    if (group.lr && !(optimizer_lr > 0))
      return Error{Errc::usage, "group '" + escaped(group.glob) +
                                    "' has an lr, which the optimizer's lr=0 cannot be scaled to"};
  return {};
}

}  // namespace gradloom
