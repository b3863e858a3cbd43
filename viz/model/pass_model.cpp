#include "viz/model/pass_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {
namespace {

bool same_pass(const PassConfig& config, const PassDef& def) {
  return std::string_view(config.def->name) == def.name;
}

PassConfig* config_of(Pipeline& pipeline, const PassDef& def) {
  for (PassConfig& config : pipeline.passes) {
    if (same_pass(config, def)) return &config;
  }
  return nullptr;
}

std::vector<FieldRow> options_of(const PassDef& def, const PassConfig* config) {
  const std::shared_ptr<Pass> pass = config != nullptr ? config->pass : def.make();
  return list_fields([&](FieldVisitor& v) { pass->fields(v); });
}

void add_report(PassView& view, const PassReport& report) {
  view.reported = true;
  view.matched += report.matched;
  view.rejected += report.rejected;
  view.node_change += static_cast<int64_t>(report.nodes_after) - static_cast<int64_t>(report.nodes_before);
  view.ms += report.ms;
  for (const RewriteRecord& record : report.log) {
    if (record.matched) {
      view.matches.push_back(record);
      continue;
    }
    auto known = std::find_if(view.why_nots.begin(), view.why_nots.end(),
                              [&](const WhyNot& w) { return w.reason == record.why; });
    if (known == view.why_nots.end()) {
      view.why_nots.push_back({record.why, {}});
      known = view.why_nots.end() - 1;
    }
    known->sites.push_back(record.site);
  }
}

}  // namespace

std::string saved_text(const SavedWork& saved) {
  std::vector<std::string> less, more;
  const auto tell = [&](double amount, const std::string& text) {
    if (amount != 0) (amount > 0 ? less : more).push_back(text);
  };
  tell(saved.kernels, plural_text(std::abs(saved.kernels), "kernel"));
  tell(saved.flops, count_text(std::abs(saved.flops), "FLOP"));
  tell(saved.bytes, bytes_text(std::abs(saved.bytes)));
  std::string text;
  for (const auto& [amounts, how] : {std::pair(&less, " less"), std::pair(&more, " more")}) {
    if (amounts->empty()) continue;
    if (!text.empty()) text += ", ";
    for (std::size_t i = 0; i < amounts->size(); ++i)
      text += (i == 0 ? "" : i + 1 == amounts->size() ? " and " : ", ") + (*amounts)[i];
    text += how;
  }
  return text;
}

PassModel build_pass_model(const Pipeline& pipeline, const std::vector<PassReport>& reports,
                           const Rules& rules) {
  PassModel model{{}, rules};
  std::vector<const PassDef*> defs;
  for (const auto& rule : rules) defs.push_back(rule.get());
  defs.insert(defs.end(), all_passes().begin(), all_passes().end());
  for (const PassDef* def : defs) {
    PassView view;
    view.def = def;
    view.rule = model.passes.size() < rules.size();
    const auto config = std::find_if(pipeline.passes.begin(), pipeline.passes.end(),
                                     [&](const PassConfig& c) { return same_pass(c, *def); });
    view.enabled = config != pipeline.passes.end();
    // What the precision switches it also sets up.
    if (!def->by_precision) view.options = options_of(*def, view.enabled ? &*config : nullptr);
    if (view.enabled) view.excluded_sites.assign(config->sites.except.begin(), config->sites.except.end());
    for (const PassReport& report : reports) {
      if (report.name == def->name) add_report(view, report);
    }
    if (def->by_precision && view.reported) view.enabled = true;
    std::stable_sort(view.why_nots.begin(), view.why_nots.end(),
                     [](const WhyNot& a, const WhyNot& b) { return a.sites.size() > b.sites.size(); });
    model.passes.push_back(std::move(view));
  }
  return model;
}

void apply_recorded(PassModel& model, std::int64_t run, const std::vector<PassRow>& passes) {
  model.run = run;
  for (PassView& view : model.passes) {
    view.recorded.clear();
    for (const PassRow& row : passes)
      if (row.name == view.def->name)
        for (const RewriteRecord& record : row.log)
          if (!record.fingerprint.empty()) view.recorded[record.fingerprint] |= record.matched;
  }
}

Pipeline with_pass(Pipeline pipeline, const PassDef& def, bool enabled, const Rules& rules) {
  if (!enabled) {
    std::erase_if(pipeline.passes, [&](const PassConfig& c) { return same_pass(c, def); });
    return pipeline;
  }
  if (config_of(pipeline, def)) return pipeline;
  const auto rule = find_rule(rules, def.name);
  const PassDef& added = rule ? *rule : def;
  pipeline.passes.insert(place_of(pipeline, added, rules), {&added, {}, {}, added.make(), rule});
  return pipeline;
}

Result<Pipeline> with_option(Pipeline pipeline, const PassDef& def, const std::string& option,
                             const std::string& value) {
  PassConfig* config = config_of(pipeline, def);
  if (!config) return Error{Errc::usage, std::string(def.name) + " is switched off"};
  auto options = config->options;
  auto known = std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.first == option; });
  if (known == options.end()) {
    options.emplace_back(option, value);
  } else {
    known->second = value;
  }
  *config = TRY(configure_pass(def, std::move(options), config->sites));
  return pipeline;
}

Pipeline with_site(Pipeline pipeline, const PassDef& def, const std::string& site, bool enabled) {
  if (def.by_precision) pipeline = with_pass(std::move(pipeline), def, true);  // on without being named
  if (PassConfig* config = config_of(pipeline, def)) {
    if (enabled) {
      config->sites.except.erase(site);
    } else {
      config->sites.except.insert(site);
    }
  }
  return pipeline;
}

}  // namespace gradloom
