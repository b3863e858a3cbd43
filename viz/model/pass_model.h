// The pass panel's data: one row per declared pass with its switch, options,
// what it did and what it refused, and why.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/fields.h"
#include "passes/pass.h"
#include "sessions/store.h"

namespace gradloom {

struct WhyNot {
  std::string reason;
  std::vector<std::string> sites;  // all of them
};

// What verify said of a pass that was on.
struct PassProof {
  enum class State : std::uint8_t { equal, strays };
  State state = State::equal;
  bool other = false;  // with other settings than those that stand
  std::string site;    // where it strays; empty: with no instance alone to blame
  std::string detail;  // tensor and bound, steps, when
};

struct PassView {
  const PassDef* def = nullptr;
  bool rule = false;  // of the user's
  bool enabled = false;
  std::vector<FieldRow> options;  // with the values of the pipeline
  std::vector<std::string> excluded_sites;
  bool reported = false;  // ran in the last compile
  int matched = 0, rejected = 0;
  int64_t node_change = 0;  // nodes after minus before
  double ms = 0;
  std::vector<RewriteRecord> matches;
  std::map<std::string, bool> recorded;  // of the run: instances by fingerprint, and whether they matched
  std::vector<WhyNot> why_nots;          // most frequent reason first
};

struct PassModel {
  std::vector<PassView> passes;  // the rules, then all declared ones, in the order of the default pipeline
  Rules rules;
  std::int64_t run = 0;  // whose instances are in `recorded`; 0: none
};

// "2 kernels, 1.2 MFLOP and 4.5 MiB less", "3.1 MFLOP more, 2 kernels less"; empty: it changes none of them.
std::string saved_text(const SavedWork& saved);

PassModel build_pass_model(const Pipeline& pipeline, const std::vector<PassReport>& reports,
                           const Rules& rules = {});

// What a recorded run says of the same instances; 0 and no passes: there is none.
void apply_recorded(PassModel& model, std::int64_t run, const std::vector<PassRow>& passes);

// The pipeline with one change; the order of the default pipeline is kept for passes that are switched on. Rules, and
// what was made of the same text again, are told by their names.
Pipeline with_pass(Pipeline pipeline, const PassDef& def, bool enabled, const Rules& rules = {});
Result<Pipeline> with_option(Pipeline pipeline, const PassDef& def, const std::string& option,
                             const std::string& value);
Pipeline with_site(Pipeline pipeline, const PassDef& def, const std::string& site, bool enabled);

}  // namespace gradloom
