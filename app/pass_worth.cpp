#include "app/pass_worth.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/text.h"

namespace gradloom {
namespace {

// The measured row of these changes; null: none was made.
const Trial* trial_of(const Tuned& tuned, const std::string& changes) {
  for (const TuneRow& row : tuned.rows)
    if (row.trial.changes == changes && row.trial.round > 0) return &row.trial;
  return nullptr;
}

// `with` against `without`, both against the job of one search, which is one of them or a third.
WorthSide side_of(const Trial& with, const Trial& without) {
  const Interval &a = with.ratio, &b = without.ratio;
  return {WorthSide::State::measured,
          {a.value / b.value, a.low / b.high, a.high / b.low},
          without.peak_bytes - with.peak_bytes};
}

WorthSide side_between(const Tuned& tuned, const std::string& with, const std::string& without) {
  if (with == without) return {.state = WorthSide::State::same};
  const Trial *a = trial_of(tuned, with), *b = trial_of(tuned, without);
  return a == nullptr || b == nullptr ? WorthSide() : side_of(*a, *b);
}

constexpr const char* kNoPasses = "passes=none";

std::string peak_text(const WorthSide& side) {
  if (side.state != WorthSide::State::measured) return "";
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
  WorthTable table;
  table.all = side_between(job, "", kNoPasses);
  std::map<std::string, PassWorth> passes;
  for (const auto& [pass, changes] : job.without) passes[pass].among = side_between(job, "", changes);
  for (const auto& [pass, changes] : none != nullptr ? none->alone : job.alone)
    passes[pass].alone =
        none != nullptr ? side_between(*none, changes, "") : side_between(job, changes, kNoPasses);
  for (auto& [pass, worth] : passes) {
    worth.pass = pass;
    table.passes.push_back(std::move(worth));
  }
  std::stable_sort(table.passes.begin(), table.passes.end(), [](const PassWorth& a, const PassWorth& b) {
    return a.among.speed.value > b.among.speed.value;
  });
  return table;
}

Result<MeasuredWorth> measure_worth(const Recipe& job, double seconds, Store& store, std::stop_token stop,
                                    const std::function<void(const TuneProgress&)>& progress,
                                    const std::function<void(const Trial&)>& on_trial) {
  TuneOptions options{seconds / 2, {TuneAxis::without}, true};
  const auto half = [&](double first, const char* what) {
    return [&progress, first, what](const TuneProgress& p) {
      if (progress) progress({first + p.fraction / 2, what + (p.what.empty() ? "" : ": " + p.what)});
    };
  };
  const Tuned among = TRY(tune(job, options, store, stop, half(0, "left out"), on_trial));
  Recipe none = job;
  set_pipeline(none, {});
  options.axes = {TuneAxis::passes};
  MeasuredWorth measured{pass_worth(among), among.known, among.stopped};
  if (measured.stopped) return measured;
  const Tuned alone = TRY(tune(none, options, store, stop, half(0.5, "added"), on_trial));
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
  const auto measured = [](const WorthSide& side) { return side.state == WorthSide::State::measured; };
  if (measured(table.all)) add("all of them", table.all, table.all);
  std::string idle;
  for (const PassWorth& p : table.passes) {
    if (measured(p.among) || measured(p.alone))
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
  return {{"all", side_json(table.all)}, {"passes", passes}};
}

}  // namespace gradloom
