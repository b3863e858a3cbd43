#include "app/commands/show_searches.h"

#include <fmt/format.h>

#include "app/pass_worth.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "sessions/recipe.h"
#include "viz/model/tune_table.h"

namespace gradloom {
namespace {

Json row_json(const TuneTableRow& row) {
  return {{"changes", row.changes},
          {"label", row.label},
          {"round", row.round},
          {"ratio", json_number(row.ratio.value)},
          {"low", json_number(row.ratio.low)},
          {"high", json_number(row.ratio.high)},
          {"predicted_ratio", json_number(row.predicted)},
          {"step_ns", json_number(row.step_ns)},
          {"peak_bytes", row.peak_bytes},
          {"plan_hash", row.plan_hash},
          {"error", row.error < 0 ? Json(nullptr) : json_number(row.error)},
          {"on_front", row.on_front}};
}

std::vector<std::string> row_cells(const TuneTableRow& row) {
  const std::string name = row.is_job() ? "the job" : escaped(row.label.empty() ? row.changes : row.label);
  return {name,
          row.measured() ? fmt::format("{:.3f}x", row.ratio.value) : "-",
          row.measured() ? fmt::format("[{:.3f}, {:.3f}]", row.ratio.low, row.ratio.high) : "-",
          row.step_ns > 0 ? duration_text(row.step_ns) : "-",
          bytes_text(static_cast<double>(row.peak_bytes)),
          row.on_front ? "yes" : ""};
}

}  // namespace

Status show_searches(const Output& out, Store& store) {
  const std::vector<RecordedSearch> all =
      recorded_searches(TRY(store.list_trials()), TRY(store.list_configurations()));
  if (all.empty()) out.text("no searches");
  std::int64_t number = 0;
  for (const RecordedSearch& search : all) {
    const auto job = parse_recipe(search.recipe_json);
    const std::string model = job ? model_label(job->model) : std::string();
    const WorthTable worth = recorded_worth(search, all);
    Json rows = Json::array();
    std::vector<std::vector<std::string>> cells;
    for (const TuneTableRow& row : search.table.rows()) {
      rows.push_back(row_json(row));
      cells.push_back(row_cells(row));
    }
    ++number;
    out.object({{"search", number},
                {"model", model},
                {"rows", rows},
                {"worth", worth.step_ns > 0 ? worth_json(worth) : Json(nullptr)}});
    out.text((number > 1 ? "\n" : "") + std::string("search ") + std::to_string(number) +
             (model.empty() ? "" : " of " + escaped(model)));
    out.text(table_text({"configuration", "faster", "interval", "step", "peak", "on the front"}, cells));
    if (worth.step_ns > 0) out.text("\n" + worth_text(worth));
  }
  return {};
}

}  // namespace gradloom
