// Comparisons as JSON (stored, and `compare --json`) and as text for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "sessions/compare.h"
#include "sessions/comparison_noise.h"
#include "sessions/json_schema.h"

namespace gradloom {
namespace {

using json = nlohmann::json;
using ordered = nlohmann::ordered_json;

ordered number(double value) { return std::isfinite(value) ? ordered(value) : ordered(nullptr); }

ordered rows_json(const std::vector<ComparedRow>& rows) {
  ordered out = ordered::array();
  for (const ComparedRow& row : rows) {
    out.push_back({{"name", row.name},
                   {"phase", row.phase},
                   {"a_kernels", row.a_kernels},
                   {"b_kernels", row.b_kernels},
                   {"a_ns", number(row.a_ns)},
                   {"b_ns", number(row.b_ns)},
                   {"p", number(row.p)}});
    if (!row.nodes.empty()) out.back()["nodes"] = row.nodes;
  }
  return out;
}

constexpr std::size_t kMostGroups = 20'000;  // that are read: two hours of blocks

ordered groups_json(const std::vector<ComparedGroup>& groups) {
  ordered out = ordered::array();
  for (const ComparedGroup& g : groups)
    out.push_back(
        {number(g.at_s), number(g.a_ns[0]), number(g.a_ns[1]), number(g.b_ns[0]), number(g.b_ns[1])});
  return out;
}

ordered noise_json(const Comparison& c) {
  const ComparisonNoise noise = explain_noise(c);
  return {{"why", noise.why},
          {"spread", number(noise.spread)},
          {"drift", number(noise.drift)},
          {"neighbours_alike", number(noise.lasting)},
          {"disturbed_groups", noise.disturbed_groups},
          {"groups_needed", noise.groups_needed},
          {"seconds_needed", number(noise.seconds_needed)}};
}

double real(const json& from, const char* key) {
  const auto at = from.find(key);
  return at != from.end() && at->is_number() ? at->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t integer(const json& from, const char* key) {
  const auto at = from.find(key);
  return at != from.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
}

std::string text(const json& from, const char* key) {
  const auto at = from.find(key);
  return at != from.end() && at->is_string() ? at->get<std::string>() : "";
}

// Of a row that was stored before rows named their nodes: those that its label has room for.
std::vector<std::string> nodes_of_label(const ComparedRow& row) {
  std::vector<std::string> nodes;
  if (row.name == row.phase || row.name.starts_with('(')) return nodes;
  constexpr std::string_view kJoin = " + ", kMore = " more";
  for (std::size_t from = 0; from <= row.name.size();) {
    const std::size_t end = std::min(row.name.find(kJoin, from), row.name.size());
    const std::string part = row.name.substr(from, end - from);
    const bool more =
        part.size() > kMore.size() && part.compare(part.size() - kMore.size(), kMore.size(), kMore) == 0;
    if (!more && !part.empty()) nodes.push_back(part);
    from = end + kJoin.size();
  }
  return nodes;
}

// Rows of five numbers, as groups are written; others are left out.
std::vector<std::vector<double>> read_numbers(const json& from, const char* key) {
  std::vector<std::vector<double>> rows;
  const auto at = from.find(key);
  if (at == from.end() || !at->is_array()) return rows;
  for (const json& row : *at) {
    const bool numbers = row.is_array() && row.size() == 5 &&
                         std::all_of(row.begin(), row.end(), [](const json& v) { return v.is_number(); });
    if (rows.size() >= kMostGroups) break;
    if (numbers) rows.push_back(row.get<std::vector<double>>());
  }
  return rows;
}

std::vector<ComparedRow> read_rows(const json& from, const char* key) {
  std::vector<ComparedRow> rows;
  const auto at = from.find(key);
  if (at == from.end() || !at->is_array()) return rows;
  for (const json& row : *at) {
    if (!row.is_object()) continue;
    rows.push_back({text(row, "name"),
                    text(row, "phase"),
                    integer(row, "a_kernels"),
                    integer(row, "b_kernels"),
                    real(row, "a_ns"),
                    real(row, "b_ns"),
                    real(row, "p"),
                    {}});
    const auto nodes = row.find("nodes");
    if (nodes == row.end() || !nodes->is_array()) {
      if (std::string_view(key) == "kernels") rows.back().nodes = nodes_of_label(rows.back());
      continue;
    }
    for (const json& node : *nodes)
      if (node.is_string()) rows.back().nodes.push_back(node.get<std::string>());
  }
  return rows;
}

std::string table_text(const char* title, const std::vector<ComparedRow>& rows, std::size_t limit) {
  if (rows.empty()) return "";
  std::string out = fmt::format("\n{:<56} {:>10} {:>10} {:>10} {:>8} {:>7}\n", title, "A", "B", "B - A",
                                "A / B", "kernels");
  for (std::size_t i = 0; i < rows.size() && i < limit; ++i) {
    const ComparedRow& row = rows[i];
    std::string name = escaped(row.name);
    if (!row.phase.empty() && row.phase != row.name) name += " (" + escaped(row.phase) + ")";
    if (name.size() > 56) {
      std::size_t kept = 53;
      while (kept > 0 && (name[kept] & 0xc0) == 0x80) --kept;  // a character is kept whole or not at all
      name = name.substr(0, kept) + "...";
    }
    const double difference = row.b_ns - row.a_ns;
    const std::string ratio =
        row.a_ns > 0 && row.b_ns > 0 ? fmt::format("{:.2f}x", row.a_ns / row.b_ns) : "-";
    const auto time = [](double ns) { return ns > 0 ? duration_text(ns) : "-"; };
    out +=
        fmt::format("{:<56} {:>10} {:>10} {:>10} {:>8} {:>3}/{:<3}{}\n", name, time(row.a_ns), time(row.b_ns),
                    row.measured() ? (difference < 0 ? "-" : "+") + duration_text(std::abs(difference)) : "-",
                    ratio, row.a_kernels, row.b_kernels, row.p < 0.05 ? " *" : "");
  }
  if (rows.size() > limit) out += fmt::format("... {} more rows\n", rows.size() - limit);
  return out;
}

}  // namespace

std::string comparison_json(const Comparison& c) {
  const ordered out = {{"a", c.a},
                       {"b", c.b},
                       {"interleaved", c.interleaved},
                       {"verdict", verdict_name(c.verdict)},
                       {"ratio", number(c.ratio.value)},
                       {"ratio_low", number(c.ratio.low)},
                       {"ratio_high", number(c.ratio.high)},
                       {"noise", number(c.noise)},
                       {"a_step_ns", number(c.a_step_ns)},
                       {"b_step_ns", number(c.b_step_ns)},
                       {"groups", c.groups},
                       {"block_steps", c.block_steps},
                       {"steps", c.steps},
                       {"seconds", number(c.seconds)},
                       {"max_loss_difference", number(c.max_loss_difference)},
                       {"max_relative_loss_difference", number(c.max_relative_loss_difference)},
                       {"first_different_step", c.first_different_step},
                       {"note", c.note},
                       {"certainty", noise_json(c)},
                       {"measured", groups_json(c.measured)},
                       {"phases", rows_json(c.phases)},
                       {"scopes", rows_json(c.scopes)},
                       {"streams", rows_json(c.streams)},
                       {"kernels_by", c.by_scope ? "scope" : "node"},
                       {"kernels", rows_json(c.kernels)}};
  return out.dump(-1, ' ', false, ordered::error_handler_t::replace);
}

Result<Comparison> parse_comparison(const std::string& from) {
  const json parsed = TRY(parse_json_strict(from, 64 << 20));
  if (!parsed.is_object()) return Error{Errc::bad_input, "a comparison must be a JSON object"};
  Comparison c;
  c.a = text(parsed, "a");
  c.b = text(parsed, "b");
  c.interleaved = parsed.value("interleaved", json(true)) == json(true);
  const std::string verdict = text(parsed, "verdict");
  for (const Verdict v : {Verdict::faster, Verdict::slower, Verdict::same, Verdict::unsure}) {
    if (verdict == verdict_name(v)) c.verdict = v;
  }
  c.ratio = {real(parsed, "ratio"), real(parsed, "ratio_low"), real(parsed, "ratio_high")};
  c.noise = real(parsed, "noise");
  c.a_step_ns = real(parsed, "a_step_ns");
  c.b_step_ns = real(parsed, "b_step_ns");
  c.groups = integer(parsed, "groups");
  c.block_steps = integer(parsed, "block_steps");
  c.steps = integer(parsed, "steps");
  c.seconds = real(parsed, "seconds");
  c.max_loss_difference = real(parsed, "max_loss_difference");
  c.max_relative_loss_difference = real(parsed, "max_relative_loss_difference");
  c.first_different_step = integer(parsed, "first_different_step");
  c.note = text(parsed, "note");
  c.by_scope = text(parsed, "kernels_by") == "scope";
  // Of stored runs there are none; and no block takes less than a part of a nanosecond, or a week.
  const auto possible = [](const std::vector<double>& row) {
    return row[0] >= 0 && row[0] < 1e9 &&
           std::all_of(row.begin() + 1, row.end(), [](double ns) { return ns >= 1e-3 && ns < 1e15; });
  };
  if (c.interleaved)
    for (const auto& row : read_numbers(parsed, "measured"))
      if (possible(row)) c.measured.push_back({row[0], {row[1], row[2]}, {row[3], row[4]}});
  c.phases = read_rows(parsed, "phases");
  c.scopes = read_rows(parsed, "scopes");
  c.streams = read_rows(parsed, "streams");
  c.kernels = read_rows(parsed, "kernels");
  return c;
}

std::string comparison_text(const Comparison& c) {
  const char* meaning = "";
  switch (c.verdict) {
    case Verdict::faster: meaning = "B is faster than A"; break;
    case Verdict::slower: meaning = "B is slower than A"; break;
    case Verdict::same: meaning = "no difference larger than 2 %"; break;
    case Verdict::unsure: meaning = "the data do not decide"; break;
  }
  std::string out = fmt::format("{}  {:.3f}x [{:.3f}, {:.3f}]  {}\n", verdict_name(c.verdict), c.ratio.value,
                                c.ratio.low, c.ratio.high, meaning);
  out += fmt::format("A: {}  {} per step\nB: {}  {} per step\n", escaped(c.a), duration_text(c.a_step_ns),
                     escaped(c.b), duration_text(c.b_step_ns));
  out += c.interleaved ? fmt::format("{} groups of ABBA blocks of {}, noise {:.2f} %, {:.1f} s\n", c.groups,
                                     plural_text(c.block_steps, "step"), 100 * c.noise, c.seconds)
                       : fmt::format("stored runs, noise {:.2f} %\n", 100 * c.noise);
  const ComparisonNoise noise = explain_noise(c);
  out += "why: " + noise.why + "\n";
  for (const std::string& line : noise_lines(noise, c)) out += "noise: " + line + "\n";
  if (!c.has_losses()) {
    out += "losses are not compared: no step has one in both\n";
  } else if (c.first_different_step == 0) {
    out += fmt::format("losses equal bit for bit over {}\n", plural_text(c.steps, "step"));
  } else {
    out += fmt::format("losses differ by at most {:.3g} (relative {:.3g}) over {}, first at step {}\n",
                       c.max_loss_difference, c.max_relative_loss_difference, plural_text(c.steps, "step"),
                       c.first_different_step);
  }
  if (!c.note.empty()) out += "note: " + escaped(c.note) + "\n";
  out += table_text("stream", c.streams, 10);
  out += table_text("phase", c.phases, 10);
  if (!c.by_scope) out += table_text("scope", c.scopes, 15);
  out += table_text(c.by_scope ? "module" : "ONNX nodes", c.kernels, 25);
  return out;
}

}  // namespace gradloom
