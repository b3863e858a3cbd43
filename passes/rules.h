// Rules of users: a pattern and what to put in its place, each a pass with its own switch, log and reasons.
//   rule quick-gelu {
//     y = Mul(x, s); s = Sigmoid(k); k = Mul(x, #1.702)
//     -> y = Swish(x){alpha=1.702}
//   }
//   rule divide-by-constant after {          // after autodiff; without `after` before it, and gradients are derived
//     y = Div(x, #c) -> y = Mul(x, #(1 / c))
//     where c != 0, dtype(x) == f32 | dtype(x) == f64, rank(x) >= 1
//   }
// Left of the arrow stands a pattern (pattern.h). Right of it statements of the same form, the first one being the
// result, or the name of a matched value that takes its place. There `#(..)` is a constant that is computed from matched
// ones, `[1, -1]` a list of integers, and `{axis=$a}` an attribute that the pattern found. Conditions: comparisons of
// numbers, constants and rank(x), dim(x, i), size(x), uses(x), dtype(x); pow2(c); same(x, y): equal types; `|` is or.
// `-> y = Swish(x) gradient dx = Mul(dy, g); g = ..` gives the gradient of each value that the replacement reads, in place of the derived.
// Values inside of a match are read by nothing else. Both sides have one type at every match: what has not is left, with
// the reason. Errors are Errc::usage and name source, line and column.
#pragma once

#include <string>

#include "passes/pass.h"

namespace gradloom {

constexpr std::size_t kMostRules = 256, kMostRulesBytes = 256 << 10;
// `source`: what errors call the text, the name of its file. A rule has the name of no pass, and no name twice.
Result<Rules> parse_rules(const std::string& text, const std::string& source = "rules");

}  // namespace gradloom
