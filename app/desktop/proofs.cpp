#include "app/desktop/proofs.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "viz/model/axis.h"

namespace gradloom {

const Proof* proof_of(const std::vector<Proof>& proofs, const std::string& job) {
  const auto found =
      std::find_if(proofs.rbegin(), proofs.rend(), [&](const Proof& p) { return p.job == job; });
  return found == proofs.rend() ? nullptr : &*found;
}

std::string proof_text(const Proof& p) {
  std::string when = p.created_utc.substr(0, 16);  // "2026-11-23T14:05"
  std::replace(when.begin(), when.end(), 'T', ' ');
  return fmt::format("{} {} {} off by {}, allowed are {}\n{}, {}, after {}\n{} UTC",
                     p.equal ? "Nearest to its bound:" : "Beyond its bound:", p.kind, escaped(p.tensor),
                     format_error(p.error), format_error(p.bound), plural_text(p.tensors, "tensor"),
                     plural_text(p.instances, "rewrite"), plural_text(p.steps, "step"), escaped(when));
}

std::map<std::string, PassProof> pass_proofs(const std::vector<Proof>& proofs, const std::string& job) {
  std::map<std::string, PassProof> by_pass;
  const auto say = [&](const Proof& p, bool other) {
    using State = PassProof::State;
    if (!p.equal && !p.culprit.empty())
      by_pass[p.culprit] = {
          State::strays, other, p.site,
          (p.site.empty() ? std::string() : "At " + escaped(p.site) + "\n") + proof_text(p)};
    if (!p.equal) return;
    for (const std::string& pass : p.passes) by_pass[pass] = {State::equal, other, "", proof_text(p)};
  };
  for (const Proof& p : proofs) say(p, true);  // later ones replace earlier ones
  if (const Proof* const own = proof_of(proofs, job)) say(*own, false);
  return by_pass;
}

}  // namespace gradloom
