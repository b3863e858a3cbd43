// Gradients that ranks exchange in bf16 (pass data-parallel).
#include <cmath>

#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class RankBf16 : public RanksFixture {
 protected:
  struct Trained {
    Words losses;
    std::map<std::string, Tensor> parameters;
    double sent_bytes = 0;
  };
  Trained trained(const std::string& name, const std::string& passes, const Words& more) {
    const Outcome o = run(training(name, with({"--passes", passes, "--save-params", path("p.npz")}, more)));
    EXPECT_EQ(o.code, 0) << o.err;
    if (o.code != 0) return {};
    return {losses(o), parameters("p.npz"), o.lines().back()["summary"]["sent_bytes"].get<double>()};
  }
  static void expect_same(const Trained& a, const Trained& b) {
    EXPECT_EQ(a.losses, b.losses);
    expect_same_parameters(a.parameters, b.parameters);
  }
  static constexpr const char* kBf16 = "default,data-parallel{dtype=bf16}";
};

// Weights that are rounded at random are rounded alike on all ranks: with zero one of them does it for all.
TEST_F(RankBf16, WeightsOfSixteenBitsStayTheSameOnAllRanks) {
  const Words how{"--ranks", "2", "--precision", "bf16{weights=low}", "--optimizer", "adamw{lr=1e-3}"};
  for (const char* accumulate : {"1", "2"}) {
    const Words more = with(how, {"--accumulate", accumulate});
    expect_same(trained("bert-tiny", "default", more), trained("bert-tiny", "default,zero", more));
  }
}

// With zero the ranks update parameters of their own and give them to all: equal bits mean that each had the same gradients.
TEST_F(RankBf16, AllRanksHaveTheSameBitsWhateverTheyKeepApart) {
  for (const std::string reduce : {"order", "tree"})
    for (const std::string ranks : {"2", "3", "4"}) {
      const Words how{"--ranks", ranks,         "--reduce",       reduce,        "--precision",
                      "f32",     "--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.2"};
      const Trained whole = trained("bert-tiny", kBf16, how);
      ASSERT_EQ(whole.losses.size(), 3u);
      for (const char* passes :
           {"default,zero,data-parallel{dtype=bf16}", "default,zero{stage=2},data-parallel{dtype=bf16}",
            "default,data-parallel{dtype=bf16,overlap=false}",
            "default,data-parallel{dtype=bf16,bucket_mb=0}"}) {
        SCOPED_TRACE(reduce + " " + ranks + " " + passes);
        expect_same(trained("bert-tiny", passes, how), whole);
      }
    }
}

// Sums of ranks that go round have an order for each place in a bucket: zero that keeps states alone leaves it.
TEST_F(RankBf16, ARingHasTheSameBitsEveryTime) {
  const Words how{"--ranks", "3", "--reduce", "ring", "--precision", "f32", "--optimizer", "adamw{lr=1e-3}"};
  const Trained whole = trained("bert-tiny", kBf16, how);
  for (const char* passes : {kBf16, "default,zero,data-parallel{dtype=bf16}"}) {
    expect_same(trained("bert-tiny", passes, how), whole);
    const EnvironmentVariable over("GRADLOOM_TRANSPORT", "tcp");
    expect_same(trained("bert-tiny", passes, how), whole);
  }
}

TEST_F(RankBf16, HalfTheBytesAndNearlyTheSameLosses) {
  for (const Words& more : {Words(), Words{"--accumulate", "2"}, Words{"--clip-norm", "0.2"}}) {
    const Words how = with(more, {"--ranks", "2", "--precision", "f32", "--optimizer", "sgd{lr=0.05}"});
    const Trained full = trained("gpt-char", "default", how), half = trained("gpt-char", kBf16, how);
    EXPECT_NEAR(half.sent_bytes / full.sent_bytes, 0.5, 0.01);
    ASSERT_EQ(full.losses.size(), 3u);
    EXPECT_EQ(half.losses[0], full.losses[0]);
    bool rounded = false;
    expect_near_losses(half.losses, full.losses, 2e-3);
    // A step moves a parameter by lr times the mean of gradients that are each rounded to 8 bits, and rounded again.
    for (const auto& [key, x] : full.parameters) {
      double most = 0, moved = 0;
      const Tensor& y = half.parameters.at(key);
      for (std::int64_t i = 0; i < x.count(); ++i) {
        rounded |= x.at(i) != y.at(i);
        most = std::max(most, std::fabs(x.at(i) - y.at(i)));
        moved = std::max(moved, std::fabs(x.at(i)));
      }
      EXPECT_LT(most, 1e-2 * std::max(moved, 1.0)) << key;
    }
    EXPECT_TRUE(rounded);
  }
}

// What is said of it, and what it leaves as it is.
TEST_F(RankBf16, IsPlannedAndIsASettingOfTheRecipe) {
  const auto plan = [&](const Words& more) {
    const Outcome o =
        run(with({"plan", model("gpt-char") + "/model.onnx", "--dim", "batch=4", "--json"}, more));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.lines().back();
  };
  const json full = plan({"--ranks", "4"}), half = plan({"--ranks", "4", "--passes", kBf16});
  const double ratio =
      half["scaling"]["exchanged_bytes"].get<double>() / full["scaling"]["exchanged_bytes"].get<double>();
  EXPECT_NEAR(ratio, 0.5, 1e-3) << "all but the loss";
  EXPECT_EQ(plan({"--ranks", "4", "--passes", "default,data-parallel{dtype=f32}"})["plan_hash"],
            full["plan_hash"]);
  EXPECT_EQ(plan({"--passes", kBf16})["plan_hash"], plan({})["plan_hash"]) << "one rank exchanges nothing";
  expect_error(training("mlp", {"--ranks", "2", "--passes", "default,data-parallel{dtype=f16}"}), 2, "dtype");

  const Words how{"--ranks", "2", "--precision", "f32", "--session", path("s.db")};
  const Trained first = trained("bert-tiny", kBf16, how);
  ASSERT_EQ(run({"export", path("s.db"), "-o", path("r.json")}).code, 0);
  EXPECT_NE(read_file(path("r.json")).find("\"dtype\": \"bf16\""), std::string::npos);
  const Outcome replay = run({"train", "--recipe", path("r.json"), "--json"});
  ASSERT_EQ(replay.code, 0) << replay.err;
  EXPECT_EQ(losses(replay), first.losses);
  EXPECT_EQ(run({"verify", "--recipe", path("r.json"), "--ranks", "1"}).code, 0);
}

}  // namespace
}  // namespace gradloom
