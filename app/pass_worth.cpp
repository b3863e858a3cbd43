#include "app/pass_worth.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/text.h"

namespace gradloom {
namespace {

WorthTrials trials_of(const Tuned& tuned) {
  WorthTrials found{{}, tuned.without, tuned.alone};
  for (const TuneRow& row : tuned.rows) found.trials.push_back(row.trial);
  if (found.trials.empty()) return found;
  found.step_ns = found.trials[0].step_ns;
  found.peak_bytes = found.trials[0].peak_bytes;
  return found;
}

std::string peak_text(const WorthSide& side) {
  if (!side.measured()) return "";
  const std::int64_t saved = side.peak_saved_bytes;
  return saved == 0 ? "=" : (saved > 0 ? "-" : "+") + bytes_text(std::abs(static_cast<double>(saved)));
}

std::string speed_text(const WorthSide& side) {
  switch (side.state) {
    case WorthSide::State::unknown: return "-";
    case WorthSide::State::same: return "the same";
    case WorthSide::State::measured: return ratio_text(side.speed);
  }
  return "";
}

Json side_json(const WorthSide& side) {
  if (side.state == WorthSide::State::unknown) return nullptr;
  return {{"same_work", side.state == WorthSide::State::same},
          {"ratio", json_number(side.speed.value)},
          {"low", json_number(side.speed.low)},
          {"high", json_number(side.speed.high)},
          {"peak_saved_bytes", side.peak_saved_bytes}};
}

}  // namespace

WorthTable pass_worth(const Tuned& job, const Tuned* none) {
  if (none == nullptr) return worth_of(trials_of(job));
  const WorthTrials of_none = trials_of(*none);
  return worth_of(trials_of(job), &of_none);
}

Result<MeasuredWorth> measure_worth(const Recipe& job, double seconds, Store& store, std::stop_token stop,
                                    const std::function<void(const TuneProgress&)>& progress,
                                    const TuneListener& on_row) {
  TuneOptions options{seconds / 2, {TuneAxis::without}, true};
  const auto half = [&](double first, const char* what) {
    return [&progress, first, what, seconds](const TuneProgress& p) {
      if (progress)
        progress({first + p.fraction / 2, what + (p.what.empty() ? "" : ": " + p.what),
                  p.seconds_left + (first > 0 ? 0 : seconds / 2)});
    };
  };
  const Tuned among = TRY(tune(job, options, store, stop, half(0, "left out"), on_row));
  Recipe none = job;
  set_pipeline(none, {});
  options.axes = {TuneAxis::passes};
  MeasuredWorth measured{pass_worth(among), among.known, among.stopped};
  if (measured.stopped) return measured;
  const Tuned alone = TRY(tune(none, options, store, stop, half(0.5, "added"), on_row));
  return MeasuredWorth{pass_worth(among, &alone), among.known + alone.known, alone.stopped};
}

std::string ratio_text(const Interval& ratio) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3fx [%.3f, %.3f]", ratio.value, ratio.low, ratio.high);
  return text;
}

std::string worth_text(const WorthTable& table) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const WorthSide& among, const WorthSide& alone) {
    rows.push_back({name, speed_text(among), peak_text(among), speed_text(alone), peak_text(alone)});
  };
  if (table.all.measured()) add("all of them", table.all, table.all);
  std::string idle;
  for (const PassWorth& p : table.passes) {
    if (p.among.measured() || p.alone.measured())
      add(p.pass, p.among, p.alone);
    else if (p.among.state == WorthSide::State::same)
      idle += (idle.empty() ? "" : ", ") + p.pass;
  }
  if (rows.empty()) return "";
  return table_text({"what a pass is worth", "among the others", "peak", "alone against none", "peak"},
                    rows) +
         (idle.empty() ? "" : "\nthe same work with and without: " + idle);
}

Json worth_json(const WorthTable& table) {
  Json passes = Json::array();
  for (const PassWorth& p : table.passes)
    passes.push_back({{"pass", p.pass}, {"among", side_json(p.among)}, {"alone", side_json(p.alone)}});
  return {{"step_ns", json_number(table.step_ns)},
          {"peak_bytes", table.peak_bytes},
          {"all", side_json(table.all)},
          {"passes", passes}};
}

}  // namespace gradloom
