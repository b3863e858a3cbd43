// Groups of parameters by name: the meaning of `*bias{weight_decay=0}`. A parameter may be in several: of each
// option the last group that names it holds. Errors: Errc::usage for a text that says nothing or too much.
// A numbered group's options are changed by the program that trains (Job::set_option): its rate is the optimizer's until then.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

struct ParameterGroup {
  std::string glob;                     // over parameter names
  std::optional<double> lr, lr_factor;  // instead of the optimizer's, times the optimizer's; one of them
  std::optional<double> weight_decay;   // instead of the optimizer's
  std::optional<std::int64_t> number;   // instead of a rate
  std::optional<bool> freeze;           // on: not trained
};
constexpr std::int64_t kMostNumbers = 4096;

Result<ParameterGroup> parse_group(const std::string& text);  // "GLOB{lr=1e-4,weight_decay=0,freeze=on}"
std::string group_syntax();                                   // what a text may say

// What the groups say of one parameter.
struct ParameterOptions {
  double lr_factor = 1;  // of the optimizer's rate
  std::optional<double> weight_decay;
  std::int64_t number = 0;  // of those that no numbered group names
  bool frozen = false;
};
// optimizer_lr: not 0 where a group has an lr (check_groups).
ParameterOptions options_of(std::span<const ParameterGroup> groups, const std::string& parameter,
                            double optimizer_lr);
// How many numbers there are: one more than the largest; 0 without any.
std::int64_t group_numbers(std::span<const ParameterGroup> groups);
// Rates of groups are factors of the optimizer's, which the schedule changes: it must not be 0.
Status check_groups(std::span<const ParameterGroup> groups, double optimizer_lr);

}  // namespace gradloom
