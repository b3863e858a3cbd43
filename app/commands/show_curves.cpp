#include "app/commands/show_curves.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "app/job_source.h"
#include "engine/base/text.h"
#include "viz/model/curves.h"

namespace gradloom {
namespace {

struct AskedRun {
  std::string session;
  RunCurves curves;
};

Json numbers_json(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

Result<AskedRun> asked_curves(Store& store, const std::string& text) {
  const CostsRun named = named_run(text);
  if (named.run.empty()) {
    const std::int64_t id = TRY(store.find_run(text));
    return AskedRun{store.path(), run_curves(TRY(store.load_run(id)))};
  }
  const auto other = TRY(Store::open(named.session, StoreMode::read));
  const std::int64_t id = TRY(other->find_run(named.run));
  return AskedRun{named.session, run_curves(TRY(other->load_run(id)))};
}

std::vector<std::string> curve_cells(CurveOf of, const Curve& curve) {
  if (curve.empty()) return {escaped(curve.name), "0", "-", "-", "-", "-"};
  const std::vector<double>& values = curve.shown();
  std::size_t lowest = 0, highest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[lowest]) || values[i] < values[lowest]) lowest = i;
    if (std::isnan(values[highest]) || values[i] > values[highest]) highest = i;
  }
  const auto at = [&](std::size_t i) {
    return curve_value_text(of, values[i]) + " in " +
           std::to_string(static_cast<std::int64_t>(curve.steps[i]));
  };
  return {escaped(curve.name),
          std::to_string(curve.steps.size()),
          curve_value_text(of, values.front()),
          curve_value_text(of, values.back()),
          at(lowest),
          at(highest)};
}

}  // namespace

void declare_curves(CLI::App& app, CurveOptions& options) {
  std::vector<std::string> names;
  for (const CurveKind& kind : kCurveKinds) names.emplace_back(kind.name);
  CLI::Option* const curves =
      app.add_option("--curves", options.of,
                     "a curve over the steps: loss | held-out | grad-norm | lr | throughput | step-time")
          ->check(CLI::IsMember(names));
  app.add_option("--with", options.with,
                 "with --curves: the same of other runs (number, name, or SESSION#RUN of another session)")
      ->needs(curves)
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--smooth", options.smooth,
                 "with --curves: weight of the exponential mean of what was before, 0 to 0.9999; 0: none")
      ->check(CLI::Range(0.0, 0.9999))
      ->needs(curves);
}

Status show_curves(const Output& out, const RunRecord& run, Store& store, const CurveOptions& options,
                   std::int64_t limit) {
  const auto kind = std::find_if(kCurveKinds.begin(), kCurveKinds.end(),
                                 [&](const CurveKind& k) { return options.of == k.name; });
  const auto of = static_cast<CurveOf>(kind - kCurveKinds.begin());
  std::vector<AskedRun> asked{{store.path(), run_curves(run)}};
  for (const std::string& text : options.with) asked.push_back(TRY(asked_curves(store, text)));
  std::vector<const RunCurves*> all;
  for (const AskedRun& one : asked) all.push_back(&one.curves);
  const bool by_samples = know_samples(all);
  Json runs = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const AskedRun& one : asked) {
    const Curve curve = curve_of(one.curves, of, options.smooth, by_samples);
    Json json = {{"run_id", curve.run},
                 {"session", one.session},
                 {"name", curve.name},
                 {"steps", curve.steps},
                 {"values", numbers_json(curve.values)}};
    if (options.smooth > 0) json["smooth"] = numbers_json(curve.smooth);
    runs.push_back(std::move(json));
    if (static_cast<std::int64_t>(rows.size()) < limit) rows.push_back(curve_cells(of, curve));
  }
  const char* const unit = of == CurveOf::kStepTime     ? "ns"
                           : of != CurveOf::kThroughput ? ""
                           : by_samples                 ? "samples/s"
                                                        : "steps/s";
  out.object({{"curves", options.of}, {"unit", unit}, {"smooth_weight", options.smooth}, {"runs", runs}});
  if (out.json()) return {};
  std::string title = kind->title;
  if (of == CurveOf::kThroughput) title += std::string(" in ") + unit;
  if (options.smooth > 0) title += ", smoothed " + short_text(options.smooth);
  out.text(title + "\n\n" +
           table_text({"run", "steps", "first", "last", "lowest in step", "highest in step"}, rows));
  if (asked.size() > rows.size())
    out.text("  and " + std::to_string(asked.size() - rows.size()) + " more (--limit N shows them)");
  return {};
}

}  // namespace gradloom
