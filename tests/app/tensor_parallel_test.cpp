// Trainings whose ranks share parameters (pass tensor-parallel) are those of one rank with the batches of their groups.
#include <cmath>

#include "engine/base/safetensors.h"
#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class TensorParallel : public RanksFixture {
 protected:
  // A model of tests/modules, whose dims are fixed, for three steps.
  static Words module_training(const std::string& name, const Words& more) {
    return with({"train", GRADLOOM_SOURCE_DIR "/tests/modules/" + name + "/model.onnx", "--steps", "3",
                 "--precision", "f64", "--threads", "1", "--json"},
                more);
  }
  static Words shared(const std::string& ranks, const std::string& size) {
    return {"--ranks", ranks, "--passes", "default,tensor-parallel{size=" + size + "}"};
  }
  static double largest_of(const Tensor& a, const Tensor& b) {
    double largest = 0;
    for (std::int64_t i = 0; i < a.count(); ++i)
      largest = std::max(largest, std::abs(a.at(i) - b.at(i)) / std::max(1.0, std::abs(a.at(i))));
    return largest;
  }
  void expect_close(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b,
                    double largest) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, x] : a) {
      ASSERT_EQ(b.count(name), 1u) << name;
      ASSERT_EQ(x.type(), b.at(name).type()) << name;
      EXPECT_LE(largest_of(x, b.at(name)), largest) << name;
    }
  }
  // `words`: of one rank; the other training has `ranks` in groups of `size`, and one rank as many micro-batches as there are groups.
  void expect_equal(const Words& words, int ranks, int size, double largest, int accumulate = 1) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(size) + " share: " + words[1]);
    const auto micro = [&](int count) { return Words{"--accumulate", std::to_string(count)}; };
    const Outcome alone = run(with(with(words, micro(accumulate * ranks / size)),
                                   {"--save-params", path("a.npz"), "--passes", "default"}));
    ASSERT_EQ(alone.code, 0) << alone.err;
    const Outcome together =
        run(with(with(words, micro(accumulate)), with(shared(std::to_string(ranks), std::to_string(size)),
                                                      {"--save-params", path("b.npz")})));
    ASSERT_EQ(together.code, 0) << together.err;
    const Words one = losses(alone), all = losses(together);
    ASSERT_EQ(one.size(), 3u);
    ASSERT_EQ(all.size(), 3u);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(std::stod(all[i]), std::stod(one[i]), largest * std::abs(std::stod(one[i]))) << i;
    expect_close(parameters("a.npz"), parameters("b.npz"), largest);
  }
};

TEST_F(TensorParallel, TrainsAsOneRank) {
  const Words adamw{"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5"},
      sgd{"--optimizer", "sgd{lr=0.05,momentum=0.9}"};
  for (const Words& how : {adamw, sgd}) {
    expect_equal(training("mlp", how), 2, 2, 1e-10);
    expect_equal(training("mlp", how), 4, 4, 1e-10);
    expect_equal(module_training("bert", how), 2, 2, 1e-10);
    expect_equal(module_training("llama", how), 2, 2, 1e-10);
  }
  expect_equal(training("gpt-char", adamw), 2, 2, 1e-10);
  expect_equal(module_training("gpt-untied", adamw), 2, 2, 1e-10);
}

TEST_F(TensorParallel, GroupsTrainAsRanksWithTheirBatches) {
  const Words adamw{"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5", "--ema", "0.9"};
  expect_equal(training("mlp", adamw), 4, 2, 1e-10);
  expect_equal(training("gpt-char", adamw), 4, 2, 1e-10, 2);
}

// Ranks with the same parts add their means in any form; what a group adds up has the order of its ranks.
TEST_F(TensorParallel, TrainsWithEveryFormOfReduction) {
  for (const char* form : {"tree", "ring"})
    expect_equal(training("gpt-char", {"--optimizer", "sgd{lr=0.05}", "--reduce", form}), 4, 2, 1e-10);
}

TEST_F(TensorParallel, TrainsInEveryPrecision) {
  const Words sgd{"--optimizer", "sgd{lr=0.05}"};
  expect_equal(training("mlp", with(sgd, {"--precision", "f32", "--accumulate", "2"})), 2, 2, 1e-5, 2);
  expect_equal(training("gpt-char", with(sgd, {"--precision", "f32"})), 2, 2, 1e-5);
  expect_equal(training("gpt-char", with(sgd, {"--precision", "bf16"})), 2, 2, 3e-2);
  expect_equal(training("gpt-char", with(sgd, {"--precision", "f16"})), 2, 2, 1e-2);
}

// Dropout outside of what is split draws the numbers of one rank; attention with Dropout inside is whole.
TEST_F(TensorParallel, DrawsTheRandomNumbersOfOneRank) {
  expect_equal(training("bert-tiny", {"--optimizer", "adamw{lr=1e-3}"}), 2, 2, 1e-10);
  expect_equal(training("bert-tiny", {"--optimizer", "adamw{lr=1e-3}"}), 4, 2, 1e-10);
}

TEST_F(TensorParallel, TakesLessOnEachRank) {
  const Words adamw{"--optimizer", "adamw{lr=1e-3}"};
  const auto peaks = [&](const Words& more) {
    const Outcome o = run(training("gpt-char", with(adamw, more)));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.lines().back()["summary"]["rank_peak_bytes"];
  };
  const json apart = peaks({"--ranks", "2", "--passes", "default"}), together = peaks(shared("2", "2"));
  ASSERT_EQ(together.size(), 2u);
  EXPECT_EQ(together[0], together[1]);
  EXPECT_LT(static_cast<double>(together[0]), 0.7 * static_cast<double>(apart[0]));
  const Outcome plan = run(with({"plan", model("gpt-char") + "/model.onnx", "--dim", "batch=4", "--precision",
                                 "f64", "--threads", "1", "--json"},
                                with(adamw, shared("2", "2"))));
  ASSERT_EQ(plan.code, 0) << plan.err;
  const json scaling = plan.lines().back()["scaling"];
  EXPECT_EQ(scaling["sharing_ranks"], 2);
  ASSERT_EQ(scaling["rows"].size(), 1u) << "it exchanges no gradients, from which more ranks were predicted";
  EXPECT_EQ(scaling["rows"][0]["ranks"], 2);
  EXPECT_NEAR(static_cast<double>(scaling["rows"][0]["peak_bytes"]), static_cast<double>(together[0]),
              0.01 * static_cast<double>(together[0]));
  EXPECT_GT(scaling["sent_bytes"], 0);
}

// Files of one rank, whole, from which trainings of any size go on.
TEST_F(TensorParallel, WritesCheckpointsFromWhichAnySizeGoesOn) {
  const Words how{"--optimizer", "adamw{lr=1e-3}", "--ema", "0.9", "--clip-norm", "0.5"};
  const auto begin = [&](const char* folder, const Words& ranks) {
    return run(training("gpt-char", with(with(how, ranks), {"--steps", "2", "--checkpoint", path(folder)})));
  };
  const Outcome one = begin("a", {"--ranks", "1"}), two = begin("b", shared("2", "2"));
  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto whole = read_safetensors(path(std::string("a/step-00000002/") + file)),
               joined = read_safetensors(path(std::string("b/step-00000002/") + file));
    ASSERT_TRUE(whole.ok() && joined.ok());
    expect_close(whole->tensors, joined->tensors, 1e-10);
  }
  const auto go_on = [&](const char* folder, const Words& ranks) {
    const Outcome o = run(with({"train", "--resume", path(folder), "--steps", "4", "--json"}, ranks));
    EXPECT_EQ(o.code, 0) << o.err;
    return losses(o);
  };
  const Words same = go_on("a", {"--ranks", "1"});
  ASSERT_EQ(same.size(), 2u);
  const std::vector<std::pair<const char*, Words>> others{{"a", shared("2", "2")},
                                                          {"b", {"--ranks", "1", "--passes", "default"}},
                                                          {"b", shared("2", "2")},
                                                          {"b", shared("4", "4")}};
  for (const auto& [folder, ranks] : others) {
    const Words losses = go_on(folder, ranks);
    ASSERT_EQ(losses.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(std::stod(losses[i]), std::stod(same[i]), 1e-10 * std::abs(std::stod(same[i])));
  }
}

TEST_F(TensorParallel, EvaluatesAsOneRank) {
  const Words how{"--optimizer",  "adamw{lr=1e-3}",
                  "--eval-data",  "npz:" + model("bert-tiny") + "/batches.npz",
                  "--eval-every", "1",
                  "--dim",        "batch=8"};
  const auto evaluations = [&](const Words& ranks) {
    const Outcome o = run(training("bert-tiny", with(how, ranks)));
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<double> all;
    for (const json& line : o.lines())
      if (line.contains("eval")) all.push_back(line["eval"]["loss"]);
    return all;
  };
  const std::vector<double> one = evaluations({"--ranks", "1"}), two = evaluations(shared("2", "2"));
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(two.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(two[i], one[i], 1e-10 * std::abs(one[i]));
}

TEST_F(TensorParallel, KeepsTheLastFiniteParametersWhole) {
  const Words wild{"--optimizer", "sgd{lr=1e18}", "--precision", "f32", "--steps", "30"};
  const Outcome one = run(training("gpt-char", with(wild, {"--ranks", "1", "--save-params", path("a.npz")}))),
                two = run(training("gpt-char",
                                   with(wild, with(shared("2", "2"), {"--save-params", path("b.npz")}))));
  EXPECT_EQ(one.code, 7) << one.err;
  EXPECT_EQ(two.code, 7) << two.err;
  const auto a = parameters("a.npz"), b = parameters("b.npz");
  ASSERT_GT(a.size(), 0u);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, x] : a) EXPECT_EQ(x.type(), b.at(name).type()) << name;
}

TEST_F(TensorParallel, SaysThatPartsOfADeadRankAreGone) {
  std::set<pid_t> ranks;
  const Outcome o =
      signalled(SIGKILL, ranks, {"--passes", "default,tensor-parallel", "--save-params", path("k.npz")});
  EXPECT_EQ(o.code, 6) << o.err;
  EXPECT_NE(o.err.find("not all ranks are there any more"), std::string::npos) << o.err;
  EXPECT_FALSE(fs::exists(path("k.npz")));
}

TEST_F(TensorParallel, GoesOverTcpToo) {
  const EnvironmentVariable tcp("GRADLOOM_TRANSPORT", "tcp");
  expect_equal(training("mlp", {"--optimizer", "adamw{lr=1e-3}"}), 4, 2, 1e-10);
}

TEST_F(TensorParallel, IsRefusedInOneLine) {
  const auto refused = [&](const std::string& ranks, const Words& more, const std::string& part) {
    const Outcome o = run(training("mlp", with({"--ranks", ranks}, more)));
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
  };
  refused("3", {"--passes", "tensor-parallel{size=2}"}, "3 ranks are no groups of 2");
  refused("2", {"--passes", "default,tensor-parallel,zero", "--optimizer", "adamw"},
          "switch one of the two off");
  refused("2", {"--passes", "default,tensor-parallel", "--optimizer", "lamb"}, "needs norms and means");
}

TEST_F(TensorParallel, PlansSayWhatIsSplitAndWhatNot) {
  const Outcome o = run({"plan", model("bert-tiny") + "/model.onnx", "--dim", "batch=4", "--ranks", "2",
                         "--passes", "default,tensor-parallel", "--log"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("of which each of 2 ranks keeps"), std::string::npos);
  EXPECT_NE(o.out.find("its random numbers would not be those of one rank"), std::string::npos);
  EXPECT_NE(o.out.find("each 2 share parameters"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
