// Pass: one file, one declaration. The switch in the window, the command line text
// `fuse-layernorm,fuse-elementwise{max_nodes=16}`, recipe JSON, options hash, documentation and the generic
// tests all derive from PassDef.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/fields.h"
#include "engine/ir/rewriter.h"
#include "kernels/target.h"

namespace gradloom {

enum class PassPhase : std::uint8_t { pre_gradient, post_gradient, both };

class Pass {
 public:
  virtual ~Pass() = default;
  virtual void fields(FieldVisitor&) {}        // options with help and range
  virtual Status run(Rewriter& rw) const = 0;  // a pure function of graph and options: a plan for the CPU
  // The same for a plan of this target, where that matters.
  virtual Status run_for(kernels::Target, Rewriter& rw) const { return run(rw); }
  // The same for a pass of both phases that does something else in each.
  virtual Status run_in(PassPhase, kernels::Target target, Rewriter& rw) const { return run_for(target, rw); }
};

struct PassExample {
  Graph before, after;
};

struct PassDef {
  const char* name;     // "fuse-gelu"
  const char* summary;  // one line
  const char* doc;      // what it matches, what it gains, what it keeps
  PassPhase phase;
  bool by_precision = false;  // switched by the recipe's precision: in no default pipeline
  bool by_default = true;     // false: who switches it on knows more of the data than the graph does
  bool bit_exact = true;      // loss and gradients stay bit-equal (structural), else within tolerance
  std::optional<kernels::Target> target{};  // the only processor it is for (empty: any); elsewhere it says so
  // Another pass before autodiff that is worth more: where that one is on and matches nothing while this one matches, the passes
  // run again without this one. Null: none.
  const char* gives_way_to = nullptr;
  std::function<std::unique_ptr<Pass>()> make;
  Result<PassExample> (*example)();  // before -> after; tested, documented, previewed
};

// Passes that a user wrote (rules.h). They run before the others.
using Rules = std::vector<std::shared_ptr<const PassDef>>;

// In the order in which they run; the default pipeline has those that are on by default.
std::span<const PassDef* const> all_passes();
bool is_default(const PassDef& def);  // neither by the precision nor by the user alone
const PassDef* find_pass(const std::string& name);
// What is wrong with the name of a pass that does not exist, with the nearest: of the passes alone, with the memory
// planners, or of all words of a pipeline.
enum class PassWords : std::uint8_t { passes, with_planners, pipeline };
std::string unknown_pass(const std::string& name, PassWords words = PassWords::passes,
                         const Rules& rules = {});
std::shared_ptr<const PassDef> find_rule(const Rules& rules, const std::string& name);  // null: none

// One switched-on pass with its options and the instances that the user switched off, or wants alone.
struct PassConfig {
  const PassDef* def = nullptr;
  std::vector<std::pair<std::string, std::string>> options;
  InstanceChoice sites;
  std::shared_ptr<Pass> pass;  // made with the options
  // `def`, where that is a rule: kept as long as what was made from it
  std::shared_ptr<const PassDef> rule{};
};
// The one reader of options' texts. Unknown options, wrong types and values out of range are usage errors.
Result<PassConfig> configure_pass(const PassDef& def,
                                  std::vector<std::pair<std::string, std::string>> options = {},
                                  InstanceChoice sites = {});
Result<PassConfig> configure_rule(std::shared_ptr<const PassDef> rule, InstanceChoice sites = {});

struct Pipeline {
  std::vector<PassConfig> passes;
  std::string text() const;                             // round-trips through parse_pipeline
  const PassConfig* find(std::string_view name) const;  // null: the pass or rule is off
};
Pipeline default_pipeline(const Rules& rules = {});
// Where a pass or rule goes that is switched on among others: before the first that comes later in the order of all.
std::vector<PassConfig>::iterator place_of(Pipeline& pipeline, const PassDef& def, const Rules& rules = {});
// "default" | "none" | "a,b{x=1}" | "default,-fuse-gelu" (default without one) | "default,fuse-gelu{except=/a/Mul|/b/*}"
// (or only=, of instances: instances.h). Unknown pass or option: usage error with the nearest name.
// Rules are named as passes are.
Result<Pipeline> parse_pipeline(const std::string& text, const Rules& rules = {});

struct PassReport {
  std::string name;
  PassPhase at = PassPhase::pre_gradient;
  int matched = 0, rejected = 0;
  std::size_t nodes_before = 0, nodes_after = 0;
  double ms = 0;
  std::vector<RewriteRecord> log;
};

// Looks on while a graph becomes what runs: told after each rewrite of a pass, and after what is no rewrite of one
// (`record` null), of which `what` is the name then.
using GraphWatch = std::function<void(const Graph& graph, const std::string& what, PassPhase at,
                                      const RewriteRecord* record)>;

// What rewrites a graph under a name, as a pass does.
struct RewriteRun {
  std::string name;
  PassPhase at = PassPhase::post_gradient;
  InstanceChoice sites{};
  bool infer_again = true;  // when verifying a graph that was changed
  GraphWatch watch{};
};
// Runs `body` and verifies what it leaves; its report is appended, told from the rewriter's log.
Status run_rewrites(Graph& graph, const RewriteRun& run, const std::function<Status(Rewriter&)>& body,
                    std::vector<PassReport>& reports);

// Runs the passes of `phase`, in order, verifying after each; reports are appended. Error names the pass; Errc::interrupted where
// `stop` was requested meanwhile.
Status run_passes(Graph& graph, const Pipeline& pipeline, PassPhase phase, std::vector<PassReport>& reports,
                  kernels::Target target = kernels::Target::cpu, const GraphWatch& watch = {},
                  const std::stop_token& stop = {});

}  // namespace gradloom
