// Passes that are off and would pay, that are on and cost, and what they left alone.
#include <algorithm>
#include <optional>

#include "app/advice/subject.h"
#include "engine/base/glob.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom::advice {
namespace {

// Of a step: what a single pass must gain to be switched on with others.
constexpr double kLeastPart = 0.002;

kernels::Target target_of(const Subject& subject) { return subject.prepared().options.target; }

bool has(const Pipeline& pipeline, const PassDef& def) {
  return std::any_of(pipeline.passes.begin(), pipeline.passes.end(),
                     [&](const PassConfig& p) { return p.def == &def; });
}

Result<Pipeline> with_passes(const Subject& subject, const std::vector<const PassDef*>& more) {
  Pipeline pipeline = TRY(recipe_pipeline(subject.recipe()));
  const Rules rules = TRY(recipe_rules(subject.recipe()));
  for (const PassDef* def : more)
    pipeline.passes.insert(place_of(pipeline, *def, rules), TRY(configure_pass(*def)));
  return pipeline;
}

std::string names_of(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text + (names.size() > kNamed ? " and " + std::to_string(names.size() - kNamed) + " more" : "");
}

int matches_of(const Candidate& candidate, const std::string& pass) {
  int matched = 0;
  for (const PassReport& report : candidate.reports)
    if (report.name == pass) matched += report.matched;
  return matched;
}

}  // namespace

Status find_passes_off(Subject& subject, Findings& found) {
  const Pipeline own = TRY(recipe_pipeline(subject.recipe()));
  std::vector<const PassDef*> off, paying;
  std::vector<std::pair<double, std::string>> alone;  // what each gains by itself
  for (const PassDef* def : all_passes()) {
    if (!is_default(*def) || has(own, *def) || (def->target && *def->target != target_of(subject))) continue;
    off.push_back(def);
    const ChangedJob* const with = TRY(subject.with_pipeline(TRY(with_passes(subject, {def}))));
    if (with == nullptr || with->gain.ns < kLeastPart * subject.step_ns()) continue;
    paying.push_back(def);
    alone.emplace_back(with->gain.ns, def->name);
  }
  std::sort(alone.rbegin(), alone.rend());
  // All, as some only make room for others, unless those that pay by themselves gain more.
  const ChangedJob* best = nullptr;
  for (const auto& more : {off, paying}) {
    if (more.empty()) continue;
    const ChangedJob* const with = TRY(subject.with_pipeline(TRY(with_passes(subject, more))));
    if (with != nullptr && (best == nullptr || with->gain.ns > best->gain.ns * 1.01)) best = with;
  }
  if (best == nullptr) return {};
  std::vector<std::string> names;
  for (const auto& [_, name] : alone) names.push_back(name);
  if (names.empty())
    for (const PassDef* def : off)
      if (matches_of(best->candidate, def->name) > 0) names.emplace_back(def->name);
  Finding finding = subject.of_change(*best, names_of(names) + (names.size() == 1 ? " is off" : " are off"));
  for (const auto& [ns, name] : alone) {
    if (alone.size() == 1 || finding.numbers.size() > 5) break;
    finding.numbers.push_back(name + " by itself: " + subject.of_a_step(ns));
  }
  found.push_back(std::move(finding));
  return {};
}

// Passes are there because they pay: one is called costly only where the whole range says so.
Status find_passes_on(Subject& subject, Findings& found) {
  const Pipeline own = TRY(recipe_pipeline(subject.recipe()));
  for (const PassConfig& pass : own.passes) {
    const int matched = matches_of(subject.job(), pass.def->name);
    if (pass.def->by_precision || matched == 0) continue;
    Pipeline without = own;
    std::erase_if(without.passes, [&](const PassConfig& p) { return p.def == pass.def; });
    const ChangedJob* const changed = TRY(subject.with_pipeline(without));
    if (changed == nullptr || changed->gain.low_ns <= 0) continue;
    found.push_back(subject.of_change(
        *changed, std::string(pass.def->name) + " costs: what its " + std::to_string(matched) +
                      (matched > 1 ? " matches" : " match") + " made takes longer than what was there"));
  }
  return {};
}

Status find_kept_out(Subject& subject, Findings& found) {
  const Pipeline own = TRY(recipe_pipeline(subject.recipe()));
  for (const PassConfig& pass : own.passes) {
    if (pass.sites.empty()) continue;
    Pipeline everywhere = own;
    for (PassConfig& p : everywhere.passes)
      if (p.def == pass.def) p.sites = {};
    const ChangedJob* const changed = TRY(subject.with_pipeline(everywhere));
    if (changed == nullptr) continue;
    const int more =
        matches_of(changed->candidate, pass.def->name) - matches_of(subject.job(), pass.def->name);
    const std::size_t named = pass.sites.except.size() + pass.sites.only.size();
    Finding finding = subject.of_change(
        *changed, std::string(pass.def->name) + " is " +
                      (pass.sites.except.empty() ? "left on for few places" : "switched off at places") +
                      " (" +
                      names_of({(pass.sites.except.empty() ? pass.sites.only : pass.sites.except).begin(),
                                (pass.sites.except.empty() ? pass.sites.only : pass.sites.except).end()}) +
                      ")");
    finding.numbers.push_back(plural_text(static_cast<std::int64_t>(named), "name") + " given; " +
                              plural_text(more, "place") + " more without");
    found.push_back(std::move(finding));
  }
  return {};
}

namespace {

// Time of the kernels at nodes that a pass met and left alone, by reason.
struct LeftAlone {
  std::string pass, why;
  std::vector<std::string> sites;
  double ns = 0;
};
std::string left_text(const std::string& pass, const std::vector<std::string>& sites,
                      const std::string& why) {
  return pass + " left " + plural_text(static_cast<std::int64_t>(sites.size()), "place") + " alone (" +
         escaped(sites.front()) + "): " + escaped(why);
}

std::vector<LeftAlone> left_alone(const Subject& subject) {
  std::map<std::string, double> ns_of;
  for (const NodeTime& time : subject.node_times()) {
    ns_of[time.kernel->node] += time.ns;
    for (const std::string& source : time.kernel->onnx_nodes) ns_of.emplace(source, time.ns);
  }
  std::map<std::pair<std::string, std::string>, LeftAlone> all;
  for (const PassReport& report : subject.job().reports) {
    const PassDef* const def = find_pass(report.name);
    if (def == nullptr || (def->target && *def->target != target_of(subject))) continue;
    for (const RewriteRecord& record : report.log) {
      if (record.matched || record.why.empty()) continue;
      LeftAlone& reason = all[{report.name, record.why}];
      reason.pass = report.name;
      reason.why = record.why;
      reason.sites.push_back(record.site);
      if (const auto ns = ns_of.find(record.site); ns != ns_of.end()) reason.ns += ns->second;
    }
  }
  std::vector<LeftAlone> list;
  for (auto& [_, reason] : all) list.push_back(std::move(reason));
  return list;
}

// An option of the pass that its reason names in brackets or at its end: "less than 16 MiB (min_mib)".
std::optional<FieldRow> named_option(const std::string& pass, const std::string& why) {
  const PassDef* const def = find_pass(pass);
  for (const FieldRow& row : list_fields([&](FieldVisitor& v) { def->make()->fields(v); }))
    if (why.find("(" + row.name + ")") != std::string::npos || why.ends_with("above " + row.name)) return row;
  return std::nullopt;
}

Result<std::string> with_option(const Subject& subject, const std::string& pass, const FieldRow& option) {
  Pipeline pipeline = TRY(recipe_pipeline(subject.recipe()));
  const bool most = option.name.rfind("max_", 0) == 0;
  // A least value that is the default leaves the choice to the pass.
  const double least = option.value == "0" && option.min == 0 ? 1 : option.min;
  const std::string value =
      option.type == "bool" ? "true" : std::to_string(static_cast<std::int64_t>(most ? option.max : least));
  for (PassConfig& p : pipeline.passes) {
    if (p.def->name != pass) continue;
    auto options = p.options;
    std::erase_if(options, [&](const auto& o) { return o.first == option.name; });
    options.emplace_back(option.name, value);
    p = TRY(configure_pass(*p.def, options, p.sites));
  }
  return pipeline_change(subject.recipe(), pipeline);
}

// Trained parameters that the attention of this softmax adds to its scores: behind elementwise operators and views.
std::vector<std::string> trained_masks(const Graph& graph, const std::string& softmax) {
  std::vector<std::string> masks;
  std::vector<ValueId> open;
  for (const Node& node : graph.nodes)
    if (node.alive() && node.name == softmax) open.push_back(node.inputs[0]);
  std::set<ValueId> seen;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == kNone || !seen.insert(id).second) continue;
    if (is_trained(graph, id) && graph.value(id).role == Role::parameter)
      masks.push_back(graph.value(id).name);
    const NodeId producer = graph.value(id).producer;
    if (producer == kNone) continue;
    const Node& node = graph.nodes[producer];
    if (node.op->has(kElementwise) || node.op->has(kView) || node.op->has(kPermutes) ||
        is_op(node, "Gather") || is_op(node, "Unsqueeze"))
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return masks;
}

// The setting that takes the reason away; empty: none does.
Result<std::string> remedy_for(const Subject& subject, const LeftAlone& reason) {
  if (const auto option = named_option(reason.pass, reason.why))
    return with_option(subject, reason.pass, *option);
  if (reason.pass == "fuse-attention" && reason.why == "the mask is trained") {
    std::vector<std::string> frozen = subject.recipe().freeze, trained = subject.recipe().train;
    Graph forward = subject.prepared().compiled.forward;
    freeze_parameters(forward, subject.prepared().options.train);
    const std::vector<std::string> masks = trained_masks(forward, reason.sites.front());
    if (masks.empty()) return std::string();
    const auto list = [](const std::vector<std::string>& names) {
      std::string text;
      for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
      return text;
    };
    for (const std::string& mask : masks) frozen.push_back(glob_of(mask));
    std::erase_if(trained, [&](const std::string& glob) {
      return std::any_of(masks.begin(), masks.end(),
                         [&](const std::string& mask) { return glob == mask || glob == glob_of(mask); });
    });
    const bool asked_for = trained.size() < subject.recipe().train.size();
    return "freeze=" + list(frozen) + (asked_for ? ";train=" + list(trained) : "");
  }
  return std::string();
}

// Whether the model writes an attention in a form that fuse-attention does not take, where another form computes the same. What other
// passes meet and leave is often another operator than theirs: a norm without a mean, a product of two tensors with one gate.
bool is_of_form(const LeftAlone& reason) {
  return reason.pass == "fuse-attention" && (reason.why.starts_with("the probabilities are read by") ||
                                             reason.why.find("is also read by node") != std::string::npos);
}

// Whether values that are no parameter are multiplied with what elementwise operators make of these probabilities.
bool weighs_values(const Graph& graph, const std::vector<std::vector<Use>>& uses, const Node& softmax) {
  std::vector<ValueId> open = {softmax.outputs[0]};
  std::set<ValueId> seen;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (!seen.insert(id).second) continue;
    for (const Use& use : uses[id]) {
      const Node& reader = graph.nodes[use.node];
      if (!reader.alive() || reader.origin.phase != Phase::forward) continue;
      if (is_product(reader))
        for (const ValueId in : reader.inputs)
          if (in != kNone && in != id && graph.value(in).role != Role::parameter) return true;
      if (reader.op->has(kElementwise) || reader.op->has(kPointwise) || is_op(reader, "ReduceSum"))
        open.insert(open.end(), reader.outputs.begin(), reader.outputs.end());
    }
  }
  return false;
}

// Of what fusing attention at these softmaxes would take in: all kernels but products that read or write tensors as large as their
// probabilities. Of several attentions of one size each takes a like part. A softmax that another pass took has no kernel.
double unfused_ns(const Subject& subject, const std::vector<std::string>& sites) {
  const Graph& graph = subject.graph();
  const auto uses = uses_of(graph);
  const std::vector<NodeTime> times = subject.node_times();
  const std::set<std::string> left(sites.begin(), sites.end());
  struct OfSize {
    double left = 0, all = 0;
  };
  std::map<Shape, OfSize> softmaxes;  // by the dims of their probabilities
  for (const NodeTime& time : times) {
    if (!is_op(*time.node, "Softmax") || !weighs_values(graph, uses, *time.node)) continue;
    OfSize& of_size = softmaxes[graph.type(time.node->outputs[0]).shape];
    of_size.all += 1;
    of_size.left += left.count(time.node->name) != 0 ? 1 : 0;
  }
  double ns = 0;
  for (const NodeTime& time : times) {
    if (is_product(*time.node)) continue;
    double part = 0;
    for (const auto* const values : {&time.node->inputs, &time.node->outputs})
      for (const ValueId id : *values)
        if (const auto at = id == kNone ? softmaxes.end() : softmaxes.find(graph.type(id).shape);
            at != softmaxes.end())
          part = std::max(part, at->second.left / at->second.all);
    ns += part * time.ns;
  }
  return ns;
}

// What no setting changes, where those kernels are worth it: one finding, as one change of the model mends all layers.
void add_form(const Subject& subject, const std::vector<LeftAlone>& reasons, Findings& found) {
  if (reasons.empty()) return;
  std::vector<std::string> sites;
  for (const LeftAlone& reason : reasons) sites.insert(sites.end(), reason.sites.begin(), reason.sites.end());
  const double ns = unfused_ns(subject, sites);
  if (!subject.matters(0.6 * ns)) return;
  const LeftAlone& first = reasons.front();
  Finding finding = subject.of_model(
      {0.6 * ns, 0, 0.98 * ns, 0}, left_text(first.pass, sites, first.why),
      "write it as softmax(q @ k.transpose(-2, -1) * scale + mask) @ v with nothing between");
  finding.node = sites.front();
  finding.numbers.push_back("kernels there, forward and backward, take " + subject.of_a_step(ns));
  found.push_back(std::move(finding));
}

}  // namespace

Status find_left_alone(Subject& subject, Findings& found) {
  std::set<std::string> proposed;
  std::vector<LeftAlone> of_form;
  for (const LeftAlone& reason : left_alone(subject)) {
    const std::string change = TRY(remedy_for(subject, reason));
    if (change.empty() && is_of_form(reason)) of_form.push_back(reason);
    if (change.empty() || !proposed.insert(change).second) continue;
    const ChangedJob* const changed = TRY(subject.changed(change));
    if (changed == nullptr) continue;
    Finding finding = subject.of_change(*changed, left_text(reason.pass, reason.sites, reason.why));
    finding.node = reason.sites.front();
    if (reason.ns > 0) finding.numbers.push_back("kernels there take " + subject.of_a_step(reason.ns));
    if (change.rfind("freeze=", 0) == 0) finding.remedy = "if the mask need not be trained";
    found.push_back(std::move(finding));
  }
  add_form(subject, of_form, found);
  return {};
}

}  // namespace gradloom::advice
