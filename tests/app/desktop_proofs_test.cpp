#include "app/desktop/proofs.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

using State = PassProof::State;

Proof proof(const char* job, bool equal, std::vector<std::string> passes, const char* culprit = "") {
  Proof p;
  p.job = job;
  p.created_utc = "2026-11-28T10:05:00Z";
  p.equal = equal;
  p.passes = std::move(passes);
  p.kind = "gradient";
  p.tensor = "fc.weight";
  p.error = equal ? 1e-8 : 1e-3;
  p.bound = 1e-7;
  p.tensors = 34;
  p.steps = 3;
  p.culprit = culprit;
  p.site = equal ? "" : "/fc/Gemm";
  return p;
}

TEST(Proofs, OfTheRecipeThatStandsComeBeforeThoseOfOthers) {
  const std::vector<Proof> proofs = {proof("now", true, {"cse", "fuse-gelu"}),
                                     proof("other", false, {"cse", "fuse-gelu", "memory-order"}, "fuse-gelu"),
                                     proof("third", true, {"memory-order"})};
  const auto of_now = pass_proofs(proofs, "now");
  EXPECT_EQ(of_now.at("fuse-gelu").state, State::equal);
  EXPECT_FALSE(of_now.at("fuse-gelu").other);
  EXPECT_TRUE(of_now.at("memory-order").other) << "it was proved with other settings";
  const auto of_other = pass_proofs(proofs, "other");
  EXPECT_EQ(of_other.at("fuse-gelu").state, State::strays);
  EXPECT_EQ(of_other.at("fuse-gelu").site, "/fc/Gemm");
  EXPECT_FALSE(of_other.at("fuse-gelu").other);
  EXPECT_TRUE(of_other.at("cse").other) << "where a pass strays nothing is said of the others";
  const auto unknown = pass_proofs(proofs, "never proved");
  EXPECT_EQ(unknown.at("fuse-gelu").state, State::strays) << "the newest";
  for (const auto& [pass, p] : unknown) EXPECT_TRUE(p.other) << pass;
  EXPECT_EQ(proof_of(proofs, "never proved"), nullptr);
  EXPECT_TRUE(pass_proofs({}, "now").empty());
}

TEST(Proofs, TellTensorBoundStepsAndTime) {
  const std::string text = proof_text(proof("now", true, {"cse"}));
  for (const char* part : {"fc.weight", "1.0e-08", "1.0e-07", "34 tensors", "3 steps", "2026-11-28 10:05"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NE(proof_text(proof("now", false, {}, "a")).find("Beyond"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
