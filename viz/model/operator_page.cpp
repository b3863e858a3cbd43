#include "viz/model/operator_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/custom/custom_ops.h"
#include "kernels/elementwise.h"

namespace gradloom {
namespace {

std::string count_range(int least, int most, const char* what) {
  if (most > 99) return fmt::format("{} or more {}s", least, what);
  if (least == most) return fmt::format("{} {}{}", least, what, least == 1 ? "" : "s");
  return fmt::format("{} to {} {}s", least, most, what);
}

std::vector<std::string> facts_of(const OpDef& op) {
  std::vector<std::string> facts;
  facts.push_back("Takes " + count_range(op.min_inputs, op.max_inputs, "input") + ", gives " +
                  count_range(1, op.max_outputs, "output"));
  if (op.cost == default_cost)
    facts.emplace_back("Cost: reads every input and writes every output once, one operation per element");
  else
    facts.emplace_back("Cost: by a rule of its own, from types and attributes");
  const std::pair<Trait, const char*> traits[] = {
      {kElementwise, "Elementwise with broadcasting: fused with its neighbours into one kernel"},
      {kView, "Its result is its first input with another shape: no kernel, no memory"},
      {kRandom, "Random: keyed by seed, step and node, so passes change nothing"},
      {kMustAlias, "Updates its inputs in place"},
      {kShapeOnly, "Depends on shapes alone: computed while planning"}};
  for (const auto& [trait, text] : traits)
    if (op.has(trait)) facts.emplace_back(text);
  if (op.inplace_input >= 0)
    facts.push_back(
        fmt::format("Its result may overwrite input {} where that is not read again", op.inplace_input));
  return facts;
}

}  // namespace

OperatorPage operator_page(const std::string& name, const std::vector<OpTableRow>& table) {
  OperatorPage page;
  page.name = name;
  for (const OpTableRow& row : table)
    if (row.name == name) page.versions.push_back(row);
  const auto parts = [](const OpTableRow& row) { return row.cpu == "parts"; };
  std::stable_sort(page.versions.begin(), page.versions.end(), [&](const OpTableRow& a, const OpTableRow& b) {
    return parts(a) != parts(b) ? parts(b) : a.since > b.since;
  });
  if (!page.versions.empty()) page.summary = page.versions.front().summary;
  const OpDef* newest = nullptr;
  for (const OpDef* op : all_ops())
    if (op->name == std::string_view(name) && (newest == nullptr || op->since > newest->since)) newest = op;
  for (const OpDef* op : custom_ops())
    if (op->name == std::string_view(name)) newest = op;
  if (newest == nullptr) return page;
  page.facts = facts_of(*newest);
  if (newest->has(kElementwise)) page.formula = kernels::ew_row(newest->ew).formula;
  return page;
}

}  // namespace gradloom
