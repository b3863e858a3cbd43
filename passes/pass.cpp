// The registry of passes, the text form of a pipeline, and running one.
#include "passes/given_gradients.h"
#include "passes/pass.h"

#include <algorithm>
#include <array>
#include <set>

#include "engine/base/text.h"
#include "passes/planners.h"
#include "passes/precision.h"

namespace gradloom {

#define PASS(symbol) extern const PassDef symbol##_pass;
#include "passes/passes.def"
#undef PASS

namespace {

constexpr std::array kPasses = {
#define PASS(symbol) &symbol##_pass,
#include "passes/passes.def"
#undef PASS
};

// The options that carry PassConfig's sites in text form: only=SITE|SITE, with %XX for characters that the syntax
// uses.
constexpr std::pair<const char*, std::set<std::string> InstanceChoice::*> kSiteOptions[] = {
    {"except", &InstanceChoice::except}, {"only", &InstanceChoice::only}};

std::string encode_site(const std::string& site) {
  static const char digits[] = "0123456789ABCDEF";
  std::string text;
  for (unsigned char c : site) {
    if (c <= ' ' || c == ',' || c == ';' || c == '|' || c == '=' || c == '{' || c == '}' || c == '%') {
      text += {'%', digits[c >> 4], digits[c & 15]};
    } else {
      text += static_cast<char>(c);
    }
  }
  return text;
}

Result<std::string> decode_site(const std::string& text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string site;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      site += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      return Error{Errc::usage, "bad site '" + escaped(text) + "': % needs two hex digits"};
    site += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return site;
}

Result<PassConfig> parse_config(const std::string& text, const Rules& rules) {
  const NamedOptions parsed = TRY(parse_named_options(text));
  const auto rule = find_rule(rules, parsed.name);
  const PassDef* const def = rule != nullptr ? rule.get() : find_pass(parsed.name);
  if (def == nullptr) return Error{Errc::usage, unknown_pass(parsed.name, PassWords::pipeline, rules)};
  std::vector<std::pair<std::string, std::string>> options;
  InstanceChoice sites;
  for (const auto& [name, value] : parsed.values) {
    const auto listed = std::find_if(std::begin(kSiteOptions), std::end(kSiteOptions),
                                     [&name = name](const auto& option) { return name == option.first; });
    if (listed == std::end(kSiteOptions)) {
      options.emplace_back(name, value);
      continue;
    }
    for (const std::string& site : split_top_level(value, '|')) {
      if (site.empty())
        return Error{Errc::usage,
                     "pass " + parsed.name + ": an empty site in " + name + "=" + escaped(value)};
      (sites.*listed->second).insert(TRY(decode_site(site)));
    }
  }
  PassConfig config = TRY(configure_pass(*def, std::move(options), std::move(sites)));
  config.rule = rule;
  return config;
}

// The log is the history of the graph: it accounts for every node that came and went.
Status check_log(const PassReport& report) {
  std::size_t added = 0, removed = 0;
  for (const RewriteRecord& record : report.log) {
    added += record.added.size();
    removed += record.removed.size();
  }
  if (report.nodes_before + added == report.nodes_after + removed) return {};
  return Error{Errc::bug, "pass " + report.name + ": its log tells of " + std::to_string(added) +
                              " nodes added and " + std::to_string(removed) +
                              " removed, the graph went from " + std::to_string(report.nodes_before) +
                              " to " + std::to_string(report.nodes_after)};
}

// The passes that clean up: what one leaves lets another find more.
bool cleans(const PassDef& def) {
  return &def == &fold_constants_pass || &def == &eliminate_noops_pass || &def == &simplify_slices_pass ||
         &def == &cse_pass || &def == &dead_code_pass;
}

constexpr int kMostCleanings = 4;

// The passes that have just run, in turn, until each has run behind the last match without a match of its own; no pass
// more than kMostCleanings times in all. One alone stays as it is: it finds nothing more in its own result. Runs without
// a match leave no report.
Status clean_again(const std::vector<const PassConfig*>& passes,
                   const std::function<Status(const PassConfig&, std::vector<PassReport>&)>& run,
                   std::vector<PassReport>& reports) {
  const std::size_t n = passes.size();
  if (n < 2) return {};
  std::size_t without = 0;  // runs behind the last match
  while (without < n && reports[reports.size() - 1 - without].matched == 0) ++without;
  std::vector<PassReport> own;
  for (std::size_t i = 0; without < n - 1 && i < n * (kMostCleanings - 1); ++i) {
    TRY(run(*passes[i % n], own));
    without = own.back().matched > 0 ? 0 : without + 1;
    if (own.back().matched > 0) reports.push_back(std::move(own.back()));
  }
  return {};
}

}  // namespace

std::span<const PassDef* const> all_passes() { return kPasses; }

bool changes_precision(const PassDef& def) { return def.by_precision || &def == &fp8_pass; }

bool is_default(const PassDef& def) { return !def.by_precision && def.by_default; }

const PassDef* find_pass(const std::string& name) {
  for (const PassDef* def : kPasses) {
    if (name == def->name) return def;
  }
  return nullptr;
}

std::shared_ptr<const PassDef> find_rule(const Rules& rules, const std::string& name) {
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return name == rule->name; });
  return found == rules.end() ? nullptr : *found;
}

// The words of a pipeline are the passes and its two short forms.
std::string unknown_pass(const std::string& name, PassWords words, const Rules& rules) {
  std::vector<std::string> known;
  if (words == PassWords::pipeline) known = {"default", "none"};
  for (const auto& rule : rules) known.emplace_back(rule->name);
  for (const PassDef* def : kPasses) known.emplace_back(def->name);
  if (words == PassWords::with_planners)
    for (const PlannerDef& def : all_planners()) known.emplace_back(def.name);
  return "unknown pass '" + escaped(name) + "'; did you mean " + nearest_name(name, known) + "?";
}

Result<PassConfig> configure_pass(const PassDef& def,
                                  std::vector<std::pair<std::string, std::string>> options,
                                  InstanceChoice sites) {
  PassConfig config{&def, std::move(options), std::move(sites), def.make()};
  TRY(set_fields([&](FieldVisitor& v) { config.pass->fields(v); }, config.options,
                 std::string("pass ") + def.name));
  return config;
}

Result<PassConfig> configure_rule(std::shared_ptr<const PassDef> rule, InstanceChoice sites) {
  PassConfig config = TRY(configure_pass(*rule, {}, std::move(sites)));
  config.rule = std::move(rule);
  return config;
}

const PassConfig* Pipeline::find(std::string_view name) const {
  const auto found = std::find_if(passes.begin(), passes.end(),
                                  [&](const PassConfig& config) { return name == config.def->name; });
  return found == passes.end() ? nullptr : &*found;
}

std::string Pipeline::text() const {
  std::string text;
  for (const PassConfig& config : passes) {
    std::string options;
    for (const auto& [name, value] : config.options)
      options += (options.empty() ? "" : ",") + name + "=" + value;
    for (const auto& [option, listed] : kSiteOptions) {
      std::string sites;
      for (const std::string& site : config.sites.*listed)
        sites += (sites.empty() ? "" : "|") + encode_site(site);
      if (!sites.empty()) options += (options.empty() ? "" : ",") + std::string(option) + "=" + sites;
    }
    text += (text.empty() ? "" : ",") + std::string(config.def->name) +
            (options.empty() ? "" : "{" + options + "}");
  }
  return text.empty() ? "none" : text;
}

Pipeline default_pipeline(const Rules& rules) {
  Pipeline pipeline;
  for (const auto& rule : rules) pipeline.passes.push_back({rule.get(), {}, {}, rule->make(), rule});
  for (const PassDef* def : kPasses) {
    if (is_default(*def)) pipeline.passes.push_back({def, {}, {}, def->make()});
  }
  return pipeline;
}

std::vector<PassConfig>::iterator place_of(Pipeline& pipeline, const PassDef& def, const Rules& rules) {
  const auto place = [&](std::string_view name) {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const auto& r) { return name == r->name; });
    const auto pass =
        std::find_if(kPasses.begin(), kPasses.end(), [&](const PassDef* p) { return name == p->name; });
    return rule != rules.end() ? rule - rules.begin() : std::ssize(rules) + (pass - kPasses.begin());
  };
  return std::find_if(pipeline.passes.begin(), pipeline.passes.end(),
                      [&](const PassConfig& other) { return place(other.def->name) > place(def.name); });
}

Result<Pipeline> parse_pipeline(const std::string& text, const Rules& rules) {
  Pipeline pipeline;
  bool in_order = false;  // of the default, among which others take their place
  for (const std::string& part : split_top_level(text)) {
    if (part.empty()) {
      if (text.find_first_not_of(" \t") == std::string::npos) break;
      return Error{Errc::usage, "empty pass name in '" + escaped(text) + "'"};
    }
    if (part == "none" || part == "default") {
      pipeline = part == "none" ? Pipeline{} : default_pipeline(rules);
      in_order = part != "none";
      continue;
    }
    const bool off = part[0] == '-';
    const PassConfig config = TRY(parse_config(off ? part.substr(1) : part, rules));
    auto same = std::find_if(pipeline.passes.begin(), pipeline.passes.end(),
                             [&](const PassConfig& c) { return c.def == config.def; });
    if (!off) {
      if (same != pipeline.passes.end())
        *same = config;
      else
        pipeline.passes.insert(in_order && !config.def->by_precision ? place_of(pipeline, *config.def, rules)
                                                                     : pipeline.passes.end(),
                               config);
    } else if (same != pipeline.passes.end()) {
      pipeline.passes.erase(same);
    }
  }
  return pipeline;
}

Status run_rewrites(Graph& graph, const RewriteRun& run, const std::function<Status(Rewriter&)>& body,
                    std::vector<PassReport>& reports) {
  PassReport report;
  report.name = run.name;
  report.at = run.at;
  report.nodes_before = live_node_count(graph);
  const std::int64_t start_ns = monotonic_ns();
  RewriteWatch watch;
  if (run.watch)
    watch = [&run](const Graph& now, const RewriteRecord& record) {
      run.watch(now, run.name, run.at, &record);
    };
  Rewriter rw(graph, run.name, run.sites, std::move(watch));
  if (Status status = body(rw); !status) return with_context(status.error(), "pass " + run.name);
  report.matched = rw.matched_count();
  report.log = rw.take_log();
  report.rejected = static_cast<int>(report.log.size()) - report.matched;
  // A pass that matched nothing changed nothing: the graph is the one that the run before it was verified with.
  const bool verified = report.matched == 0 && !reports.empty() && reports.back().at == run.at;
  if (!verified)
    if (Status status = verify(graph, run.infer_again && report.matched > 0); !status)
      return with_context(status.error(), "after pass " + run.name);
  report.nodes_after = report.matched == 0 ? report.nodes_before : live_node_count(graph);
  TRY(check_log(report));
  report.ms = static_cast<double>(monotonic_ns() - start_ns) / 1e6;
  reports.push_back(std::move(report));
  return {};
}

Status run_passes(Graph& graph, const Pipeline& pipeline, PassPhase phase, std::vector<PassReport>& reports,
                  kernels::Target target, const GraphWatch& watch, const std::stop_token& stop) {
  if (phase == PassPhase::post_gradient) TRY(remove_given_gradients(graph));
  const auto go_on = [&]() -> Status {
    if (stop.stop_requested()) return Error{Errc::interrupted, "compilation was cancelled"};
    return {};
  };
  const auto run = [&](const PassConfig& config, std::vector<PassReport>& into) -> Status {
    TRY(go_on());
    return run_rewrites(
        graph, {config.def->name, phase, config.sites, true, watch},
        [&](Rewriter& rw) { return config.pass->run_in(phase, target, rw); }, into);
  };
  std::vector<const PassConfig*> cleaning;  // the passes of the group that stand next to each other
  for (const PassConfig& config : pipeline.passes) {
    if (config.def->phase != phase && config.def->phase != PassPhase::both) continue;
    if (!cleans(*config.def)) {
      TRY(clean_again(cleaning, run, reports));
      cleaning.clear();
    } else {
      cleaning.push_back(&config);
    }
    TRY(run(config, reports));
  }
  TRY(clean_again(cleaning, run, reports));
  return go_on();
}

}  // namespace gradloom
