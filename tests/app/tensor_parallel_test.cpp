// Trainings whose ranks share parameters (pass tensor-parallel) are those of one rank with the batches of their groups.
#include <cmath>

#include "engine/base/safetensors.h"
#include "tests/app/ranks_fixture.h"
#include "tests/engine/onnx/support.h"

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
  static Words shared(const std::string& ranks, const std::string& size,
                      const std::string& passes = "default") {
    return {"--ranks", ranks, "--passes", passes + ",tensor-parallel{size=" + size + "}"};
  }
  // A model in ONNX's text syntax with float weights of these dims, for three steps on synthetic data.
  Words own_training(const std::string& text, const std::map<std::string, std::vector<std::int64_t>>& weights,
                     const Words& more) {
    onnx::ModelProto model = test::model_from_text(text);
    for (const auto& [name, dims] : weights) {
      std::vector<float> numbers(static_cast<std::size_t>(element_count(dims)));
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>((i * i * 7919 + i) % 201) / 400 - 0.25f;
      test::add_floats(model, name, dims, numbers);
    }
    const std::string file = path("own.onnx");
    test::write_bytes(file, model.SerializeAsString());
    return with({"train", file, "--steps", "3", "--precision", "f64", "--threads", "1", "--json"}, more);
  }
  // `words`: of one rank; the other training has `ranks` in groups of `size`, and one rank as many micro-batches as there are groups.
  void expect_equal(const Words& words, int ranks, int size, double largest, int accumulate = 1,
                    const std::string& passes = "default") {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(size) + " share: " + words[1]);
    const auto micro = [&](int count) { return Words{"--accumulate", std::to_string(count)}; };
    const Outcome alone = run(with(with(words, micro(accumulate * ranks / size)),
                                   {"--save-params", path("a.npz"), "--passes", passes}));
    ASSERT_EQ(alone.code, 0) << alone.err;
    const Outcome together = run(with(
        with(words, micro(accumulate)),
        with(shared(std::to_string(ranks), std::to_string(size), passes), {"--save-params", path("b.npz")})));
    ASSERT_EQ(together.code, 0) << together.err;
    const Words one = losses(alone), all = losses(together);
    ASSERT_EQ(one.size(), 3u);
    ASSERT_EQ(all.size(), 3u);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(std::stod(all[i]), std::stod(one[i]), largest * std::abs(std::stod(one[i]))) << i;
    expect_near_parameters(parameters("a.npz"), parameters("b.npz"), largest, Distance::of_size);
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

// Dropout outside of what is split and of the probabilities of attention, as nodes and in one kernel with it.
TEST_F(TensorParallel, DrawsTheRandomNumbersOfOneRank) {
  const Words adamw{"--optimizer", "adamw{lr=1e-3}"};
  expect_equal(training("bert-tiny", adamw), 2, 2, 1e-10);
  expect_equal(training("bert-tiny", adamw), 4, 2, 1e-10);
  expect_equal(training("bert-tiny", adamw), 2, 2, 1e-10, 2, "default,fuse-attention{min_keys=1}");
  expect_equal(training("bert-tiny", with(adamw, {"--precision", "bf16"})), 2, 2, 3e-2);
}

// Columns that are dropped, behind a sum over three of them at a time, whose parts are groups.
TEST_F(TensorParallel, DropsColumnsThatOneRankWouldDrop) {
  const char* const text =
      "g (float[6, 5] x, float[6, 4] wanted) => (float loss) {"
      " ratio = Constant<value = float {0.4}>() on = Constant<value = bool {1}>()"
      " h = MatMul(x, first) r = Relu(h) d = Dropout(r, ratio, on) a, c = Split<axis = 1>(d)"
      " e = Mul(a, c) f = Dropout(e, ratio, on) y = MatMul(f, second)"
      " off = Sub(y, wanted) square = Mul(off, off) loss = ReduceMean<keepdims = 0>(square) }";
  const Words words = own_training(text, {{"first", {5, 24}}, {"second", {12, 4}}},
                                   {"--optimizer", "sgd{lr=0.1}", "--accumulate", "2"});
  expect_equal(words, 2, 2, 1e-10, 2);
  expect_equal(words, 4, 4, 1e-10);
  expect_equal(words, 4, 2, 1e-10);
}

constexpr const char* kWords =
    "g (int64[2, 4] ids, int64[2, 4] labels) => (float loss) {"
    " scale = Constant<value = float {0.5}>() rows = Constant<value = int64[2] {8, 64}>() flat = Constant<value = int64[1] {-1}>()"
    " h = Gather(table, ids) r = Tanh(h)";

// Words of a tied vocabulary, whose head multiplies with the transposed table, and of two tables.
const std::string kTied = std::string(kWords) + " head = Transpose(table) all = MatMul(r, head)",
                  kUntied = std::string(kWords) + " raw = MatMul(r, own) all = Add(raw, bias)",
                  kRows = " logits = Reshape(all, rows) of = Reshape(labels, flat)";

// 67 words: of two ranks 34 and 33, of four 17, 17, 17 and 16.
TEST_F(TensorParallel, SharesVocabulariesThatRanksDoNotDivide) {
  const auto odd = [](std::string text) {
    const std::size_t at = text.find("{8, 64}");
    return text.replace(at, 7, "{8, 67}");
  };
  const std::string ignored = kRows + " loss = SoftmaxCrossEntropyLoss<ignore_index = 3>(logits, of) }",
                    logs = kRows + " p = LogSoftmax(logits) loss = NegativeLogLikelihoodLoss(p, of) }",
                    rows = "default,fuse-linear-cross-entropy{min_mib=0}";
  const std::map<std::string, std::vector<std::int64_t>> tied{{"table", {67, 6}}},
      untied{{"table", {67, 6}}, {"own", {6, 67}}, {"bias", {67}}};
  for (const Words& how : {Words{"--optimizer", "adamw{lr=0.01}", "--clip-norm", "0.5"},
                           Words{"--optimizer", "lamb{lr=0.01}"}, Words{"--optimizer", "lion{lr=0.01}"}}) {
    expect_equal(own_training(odd(kTied + ignored), tied, how), 2, 2, 1e-10);
    expect_equal(own_training(odd(kUntied + logs), untied, how), 4, 4, 1e-10);
    expect_equal(own_training(odd(kUntied + ignored), untied, how), 2, 2, 1e-10, 1, rows);
    expect_equal(own_training(odd(kTied + ignored), tied, how), 4, 2, 1e-10, 2, rows);
    expect_equal(own_training(odd(kTied + ignored), tied, how), 4, 4, 1e-10, 1, "none");
  }
}

// Zeros behind the words would become 0 / 0: nothing is filled up there, and two ranks train as one does.
TEST_F(TensorParallel, FillsNothingUpWhereTheOptimizerDividesByZero) {
  std::string text = kTied + kRows + " loss = SoftmaxCrossEntropyLoss(logits, of) }";
  text.replace(text.find("{8, 64}"), 7, "{8, 67}");
  const Words words = own_training(text, {{"table", {67, 6}}}, {"--optimizer", "adamw{lr=0.01,eps=0}"});
  const Outcome alone = run(with(words, {"--accumulate", "2", "--save-params", path("a.npz")}));
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Outcome shares = run(with(words, with(shared("2", "2"), {"--save-params", path("b.npz")})));
  ASSERT_EQ(shares.code, 0) << shares.err;
  EXPECT_NE(shares.err.find("leaves the vocabulary whole"), std::string::npos) << shares.err;
  expect_near_losses(losses(alone), losses(shares), 1e-10);
  expect_near_parameters(parameters("a.npz"), parameters("b.npz"), 1e-10);
}

// Every form of loss.
TEST_F(TensorParallel, SharesTheVocabulary) {
  const std::vector<std::string> losses{
      kRows + " loss = SoftmaxCrossEntropyLoss<ignore_index = 3>(logits, of) }",
      kRows + " loss = SoftmaxCrossEntropyLoss<reduction = \"sum\">(logits, of, weight) }",
      kRows + " p = LogSoftmax(logits) loss = NegativeLogLikelihoodLoss<ignore_index = 3>(p, of, weight) }",
      " logits = Transpose<perm = [0, 2, 1]>(all)"
      " each = SoftmaxCrossEntropyLoss<reduction = \"none\">(logits, labels) loss = ReduceMean<keepdims = 0>(each) }"};
  for (const std::string& loss : losses)
    for (const std::string& begin : {kTied, kUntied}) {
      std::map<std::string, std::vector<std::int64_t>> weights{{"table", {64, 6}}};
      Words how{"--optimizer", "adamw{lr=0.01}"};
      if (begin == kUntied) weights.insert({{"own", {6, 64}}, {"bias", {64}}});
      if (loss.find("weight") != std::string::npos) {
        weights.insert({"weight", {64}});
        how = with(how, {"--freeze", "weight"});
      }
      expect_equal(own_training(begin + loss, weights, how), 2, 2, 1e-10);
    }
  expect_equal(own_training(kTied + losses[0], {{"table", {64, 6}}}, {"--optimizer", "sgd{lr=0.1}"}), 4, 2,
               1e-10, 2);
}

// Rows of the logits at a time: both kinds of head, in every precision.
TEST_F(TensorParallel, TakesTheVocabularyHeadInRows) {
  const std::string passes = "default,fuse-linear-cross-entropy{min_mib=0}",
                    loss = kRows + " loss = SoftmaxCrossEntropyLoss<ignore_index = 3>(logits, of) }";
  const Words adamw{"--optimizer", "adamw{lr=1e-3}"}, sgd{"--optimizer", "sgd{lr=0.05}"};
  expect_equal(training("gpt-char", adamw), 2, 2, 1e-10, 1, passes);
  expect_equal(own_training(kTied + loss, {{"table", {64, 6}}}, adamw), 2, 2, 1e-10, 1, passes);
  expect_equal(own_training(kUntied + loss, {{"table", {64, 6}}, {"own", {6, 64}}, {"bias", {64}}}, adamw), 4,
               4, 1e-10, 1, passes);
  expect_equal(training("gpt-char", with(sgd, {"--precision", "f32"})), 2, 2, 1e-5, 1, passes);
  expect_equal(training("gpt-char", with(sgd, {"--precision", "bf16"})), 2, 2, 3e-2, 1, passes);
  expect_equal(training("gpt-char", with(sgd, {"--precision", "f16"})), 2, 2, 1e-2, 1, passes);
}

// A vocabulary of 16,384 words, 64 tokens: the table and its states are nearly all that a rank keeps.
TEST_F(TensorParallel, AVocabularyTakesHalfOnEachOfTwoRanks) {
  const char* const text =
      "g (int64[64] ids, int64[64] labels) => (float loss) {"
      " h = Gather(table, ids) r = Tanh(h) head = Transpose(table) logits = MatMul(r, head)"
      " loss = SoftmaxCrossEntropyLoss(logits, labels) }";
  const auto peak = [&](const Words& more) {
    const Outcome o = run(own_training(text, {{"table", {16384, 32}}}, with({"--optimizer", "adamw"}, more)));
    EXPECT_EQ(o.code, 0) << o.err;
    return static_cast<double>(o.lines().back()["summary"]["rank_peak_bytes"][0]);
  };
  const double apart = peak({"--ranks", "2", "--passes", "default"}), together = peak(shared("2", "2"));
  RecordProperty("apart_bytes", std::to_string(apart));
  RecordProperty("together_bytes", std::to_string(together));
  EXPECT_LT(together, 0.55 * apart);
}

// The ratio of LAMB is that of whole parameters.
TEST_F(TensorParallel, TrainsWithLamb) {
  const Words lamb{"--optimizer", "lamb{lr=0.01}", "--clip-norm", "0.5"};
  expect_equal(training("mlp", lamb), 2, 2, 1e-10);
  expect_equal(training("gpt-char", with(lamb, {"--clip-value", "0.01"})), 4, 2, 1e-10);
  expect_equal(training("mlp", {"--optimizer", "lamb{lr=0.01,maximize=true}"}), 4, 4, 1e-10);
  expect_equal(training("gpt-char", with(lamb, {"--precision", "f16"})), 2, 2, 1e-2);
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
    expect_near_parameters(whole->tensors, joined->tensors, 1e-10, Distance::of_size);
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
  refused("2", {"--passes", "default,tensor-parallel", "--optimizer", "adafactor"}, "needs means over rows");
}

TEST_F(TensorParallel, PlansSayWhatIsSplitAndWhatNot) {
  const Outcome o = run({"plan", model("mlp") + "/model.onnx", "--dim", "batch=4", "--ranks", "2", "--passes",
                         "default,tensor-parallel", "--log"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("of which each of 2 ranks keeps"), std::string::npos);
  EXPECT_NE(o.out.find("its classes are fewer than 64"), std::string::npos);
  EXPECT_NE(o.out.find("each 2 share parameters"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
