// Trainings on several processes of this machine, started by --ranks.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class Ranks : public RanksFixture {
 protected:
  // What ranks that keep the optimizer's states apart train, and their gradients too, is what they train without that, bit for bit.
  void expect_zero_equal(const std::string& name, const std::string& ranks, const Words& more) {
    const Words plain = with(more, {"--ranks", ranks, "--save-params"});
    const Outcome whole = run(training(name, with(plain, {path("a.npz")})));
    ASSERT_EQ(whole.code, 0) << whole.err;
    const auto summary = [](const Outcome& o) { return o.lines().back()["summary"]; };
    std::int64_t most = summary(whole)["rank_peak_bytes"][0], sent_one = 0;
    for (const std::string passes : {"default,zero", "default,zero{stage=2}"}) {
      const bool one = passes == "default,zero";
      if (one && std::find(more.begin(), more.end(), kPlainSgd) != more.end()) continue;
      SCOPED_TRACE(name + " " + passes);
      const Outcome apart = run(training(name, with(plain, {path("b.npz"), "--passes", passes})));
      ASSERT_EQ(apart.code, 0) << apart.err;
      EXPECT_EQ(losses(apart), losses(whole));
      expect_same_parameters(parameters("a.npz"), parameters("b.npz"));
      const json bytes = summary(apart)["rank_peak_bytes"];
      ASSERT_EQ(std::to_string(bytes.size()), ranks);
      if (one) most = 0;
      for (const json& peak : bytes) {
        if (one) {
          EXPECT_LT(peak, summary(whole)["rank_peak_bytes"][0]);
          most = std::max<std::int64_t>(most, peak);
        } else {
          EXPECT_LE(peak, most + most / 1000 + kSquaresBytes);  // the shares are others
        }
      }
      const std::int64_t sent = summary(apart)["sent_bytes"];
      if (sent_one > 0) {
        EXPECT_LT(static_cast<double>(sent), 0.9 * static_cast<double>(sent_one));
      }
      sent_one = sent;
    }
  }
  static constexpr const char* kPlainSgd = "sgd{lr=0.05}";  // of which there are no states to divide
  static constexpr std::int64_t kSquaresBytes = 4096;       // of pieces of gradients

  // `ranks` ranks against one rank with as many micro-batches: bit for bit, where `largest` is 0.
  void expect_equal(const std::string& name, int ranks, const Words& more, double largest = 0) {
    const std::string n = std::to_string(ranks);
    const Outcome alone =
        run(training(name, with(more, {"--accumulate", n, "--save-params", path("a.npz")})));
    ASSERT_EQ(alone.code, 0) << alone.err;
    const Outcome together = run(training(name, with(more, {"--ranks", n, "--save-params", path("b.npz")})));
    ASSERT_EQ(together.code, 0) << together.err;
    EXPECT_EQ(losses(together).size(), 3u);
    if (largest == 0) {
      EXPECT_EQ(losses(together), losses(alone));
    }
    expect_near_parameters(without_running(parameters("a.npz")), without_running(parameters("b.npz")),
                           largest);
  }

  void expect_one_large_batch(int ranks, const Words& more, double largest);
};

TEST_F(Ranks, TrainAsOneRankWithTheirBatches) {
  expect_equal("mlp", 2, {"--optimizer", "sgd{lr=0.1,momentum=0.9}"});
  expect_equal("mlp", 4, {"--optimizer", "lamb{lr=0.01}", "--clip-norm", "0.5"}, 1e-12);
  expect_equal("bert-tiny", 2, {"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "1"}, 1e-12);
  expect_equal("bert-tiny", 4, {"--optimizer", "adamw{lr=1e-3}", "--passes", "none"});
  expect_equal("cnn-digits", 2, {"--optimizer", "adamw{lr=1e-3}"}, 1e-12);
  // A piece for each gradient, in the background.
  expect_equal("bert-tiny", 2, {"--passes", "default,data-parallel{bucket_mb=0}"}, 1e-12);
}

TEST_F(Ranks, TrainInEveryPrecision) {
  expect_equal("bert-tiny", 2, {"--optimizer", "sgd{lr=0.1}", "--precision", "f32", "--passes", "none"});
  expect_equal("bert-tiny", 2, {"--optimizer", "sgd{lr=0.1}", "--precision", "bf16"}, 2e-3);
}

// Each of two ranks adds up two micro-batches before they exchange: four batches a step.
TEST_F(Ranks, ExchangeOnceAStep) {
  const Outcome four = run(training("mlp", {"--accumulate", "4", "--save-params", path("a.npz")}));
  const Outcome two =
      run(training("mlp", {"--ranks", "2", "--accumulate", "2", "--save-params", path("b.npz")}));
  ASSERT_EQ(two.code, 0) << two.err;
  ASSERT_EQ(four.code, 0);
  const json summary = two.lines().back()["summary"];
  EXPECT_EQ(summary["world"], 2);
  EXPECT_EQ(summary["samples_per_step"], 16);
  EXPECT_GT(summary["sent_bytes"], 0);
  expect_near_parameters(parameters("a.npz"), parameters("b.npz"), 1e-12);
}

TEST_F(Ranks, GoOnFromACheckpointAsAnyNumber) {
  const Words common{"--optimizer", "adamw{lr=1e-3}"};
  const Outcome whole = run(training("mlp", with(common, {"--ranks", "2", "--save-params", path("a.npz")})));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome first =
      run(training("mlp", with(common, {"--ranks", "2", "--steps", "1", "--checkpoint", path("c")})));
  ASSERT_EQ(first.code, 0) << first.err;
  // One rank that takes both batches of a step.
  const Outcome rest = run({"train", "--resume", path("c"), "--ranks", "1", "--accumulate", "2", "--steps",
                            "3", "--save-params", path("b.npz"), "--json"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  expect_near_parameters(parameters("a.npz"), parameters("b.npz"), 1e-12);
}

// The ranks of a machine share its processors: how many each has is not what another number of ranks goes on with.
TEST_F(Ranks, LeaveThreadsToWhoGoesOn) {
  const auto threads_after = [&](const Words& more) {
    const Outcome o = run(with({"train", model("mlp") + "/model.onnx", "--dim", "batch=4", "--steps", "1",
                                "--ranks", "2", "--checkpoint", path("c")},
                               more));
    EXPECT_EQ(o.code, 0) << o.err;
    const json recipe = json::parse(read_file(path("c/step-00000001/recipe.json")));
    fs::remove_all(path("c"));
    return recipe.value("threads", 0);
  };
  EXPECT_EQ(threads_after({}), 0) << "as many as there are";
  EXPECT_EQ(threads_after({"--threads", "1"}), 1);
}

TEST_F(Ranks, KeepOptimizerStatesApart) {
  expect_zero_equal("mlp", "3", {"--optimizer", "sgd{lr=0.1,momentum=0.9}"});
  expect_zero_equal("bert-tiny", "4",
                    {"--optimizer", "lamb{lr=0.01}", "--clip-norm", "0.5", "--accumulate", "2"});
  expect_zero_equal("gpt-char", "2",
                    {"--optimizer", "adamw{lr=1e-3,eight_bit_states=true}", "--precision", "f32"});
  expect_zero_equal("bert-tiny", "2",
                    {"--optimizer", "adamw{lr=1e-3}", "--precision", "bf16", "--ema", "0.9"});
  expect_zero_equal("gpt-char", "3", {"--optimizer", "lion{lr=1e-4}", "--clip-norm", "0.2"});
  expect_zero_equal("gpt-char", "2", {"--optimizer", "adamw{lr=1e-3,amsgrad=true}"});
}

// Of weights that are read in 16 bits each rank keeps its own elements in f32, and tells the others what they are rounded to.
TEST_F(Ranks, ExchangeSixteenBitsOfWhatIsReadInThem) {
  const Words adamw{"--optimizer", "adamw{lr=1e-3}"};
  expect_zero_equal("gpt-char", "2", with(adamw, {"--precision", "bf16", "--clip-norm", "0.5"}));
  expect_zero_equal("gpt-char", "3", with(adamw, {"--precision", "bf16", "--accumulate", "2"}));
  expect_zero_equal("gpt-char", "2",
                    with(adamw, {"--precision", "f16", "--loss-scale", "dynamic{initial=1e9,interval=1}"}));
  expect_zero_equal("gpt-char", "2",
                    {"--optimizer", "adamw{lr=1e-3,eight_bit_states=true}", "--precision", "bf16"});
  expect_zero_equal("bert-tiny", "3", {"--optimizer", "lamb{lr=0.01}", "--precision", "bf16"});
  expect_zero_equal("bert-tiny", "2", {"--optimizer", "adafactor", "--precision", "bf16"});
  expect_zero_equal("gpt-char", "2", {"--optimizer", "sgd{lr=0.1,momentum=0.9}", "--precision", "bf16"});
  expect_zero_equal("gpt-char", "2",
                    {"--optimizer", "rmsprop{momentum=0.9,centered=true}", "--precision", "bf16"});
}

// Against every rank keeping all of them in f32: the same bits, less sent and less kept; the plan says both.
TEST_F(Ranks, SayWhatSixteenBitsSave) {
  for (const std::string stage : {"1", "2"}) {
    SCOPED_TRACE(stage);
    json summaries[2], scalings[2];
    Words losses_of[2];
    for (const int apart : {0, 1}) {
      const std::string zero = "zero{stage=" + stage + ",masters=" + (apart == 1 ? "apart" : "all");
      const Words how{"--optimizer", "adamw{lr=1e-3}", "--precision", "bf16", "--ranks", "4", "--passes"};
      const Outcome o = run(training("gpt-char", with(how, {"default," + zero + "}"})));
      ASSERT_EQ(o.code, 0) << o.err;
      summaries[apart] = o.lines().back()["summary"];
      losses_of[apart] = losses(o);
      for (const std::size_t rank : {0, 1}) {
        const Outcome plan = run(
            with({"plan", model("gpt-char") + "/model.onnx", "--dim", "batch=4", "--threads", "1", "--json"},
                 with(how, {"default," + zero + ",rank=" + std::to_string(rank) + "}"})));
        ASSERT_EQ(plan.code, 0) << plan.err;
        EXPECT_EQ(plan.lines().back()["plan_peak_bytes"], summaries[apart]["rank_peak_bytes"][rank]);
        scalings[apart] = plan.lines().back()["scaling"];
      }
    }
    EXPECT_EQ(losses_of[1], losses_of[0]);
    const auto sent = [](const json& of) { return of["sent_bytes"].get<double>(); };
    EXPECT_LT(sent(summaries[1]), 0.85 * sent(summaries[0]));
    EXPECT_NEAR(sent(summaries[1]) / sent(scalings[1]), sent(summaries[0]) / sent(scalings[0]), 0.02);
    // Of a weight 4 bytes on each rank, against 2 and a quarter of 4.
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_LT(summaries[1]["rank_peak_bytes"][rank].get<double>(),
                0.95 * summaries[0]["rank_peak_bytes"][rank].get<double>());
  }
}

// What is evaluated, saved as the best, and looked at are whole parameters.
TEST_F(Ranks, EvaluateWhatTheyKeepApart) {
  const Words how{"--optimizer",  "adamw{lr=1e-2}", "--precision",    "bf16", "--ranks",      "2",
                  "--eval-data",  "synthetic",      "--eval-batches", "3",    "--eval-every", "1",
                  "--early-stop", "patience=5",     "--save-params"};
  const auto evaluated = [&](const Outcome& o) {
    Words all;
    for (const json& line : o.lines())
      if (line.contains("eval")) all.push_back(line["eval"]["loss"].dump());
    return all;
  };
  const Outcome whole = run(training("gpt-char", with(how, {path("a.npz")})));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(evaluated(whole).size(), 3u);
  for (const char* passes : {"default,zero", "default,zero{stage=2}"}) {
    const Outcome apart = run(training("gpt-char", with(how, {path("b.npz"), "--passes", passes})));
    ASSERT_EQ(apart.code, 0) << apart.err;
    EXPECT_EQ(evaluated(apart), evaluated(whole));
    expect_same_parameters(parameters("a.npz"), parameters("b.npz"));
  }
}

// A class token: the evaluation expands it before it rounds, a step after.
TEST_F(Ranks, EvaluateInSixteenBitsWhatStepsRoundFirst) {
  const auto trained = [&](const std::string& module, const std::string& passes) {
    return run({"train",          GRADLOOM_SOURCE_DIR "/tests/modules/" + module + "/model.onnx",
                "--steps",        "3",
                "--threads",      "1",
                "--precision",    "bf16",
                "--ranks",        "2",
                "--optimizer",    "adamw{lr=1e-2}",
                "--eval-data",    "synthetic",
                "--eval-batches", "3",
                "--eval-every",   "1",
                "--passes",       passes,
                "--save-params",  path(passes == "default" ? "a.npz" : "b.npz"),
                "--json"});
  };
  const auto evaluated = [](const Outcome& o) {
    Words all;
    for (const json& line : o.lines())
      if (line.contains("eval")) all.push_back(line["eval"]["loss"].dump());
    return all;
  };
  for (const char* module : {"vit", "vit-dynamo", "swin"}) {
    SCOPED_TRACE(module);
    const Outcome whole = trained(module, "default");
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_EQ(evaluated(whole).size(), 3u);
    for (const char* passes : {"default,zero", "default,zero{stage=2}"}) {
      const Outcome apart = trained(module, passes);
      ASSERT_EQ(apart.code, 0) << apart.err;
      EXPECT_EQ(losses(apart), losses(whole)) << passes;
      EXPECT_EQ(evaluated(apart), evaluated(whole)) << passes;
      expect_same_parameters(parameters("a.npz"), parameters("b.npz"));
    }
  }
}

// What each rank's plan says is what it takes.
TEST_F(Ranks, TakeTheMemoryThatIsPlannedForEach) {
  std::map<std::string, std::vector<std::int64_t>> measured;
  for (const std::string pass : {"", "zero{stage=1", "zero{stage=2"})
    for (const std::string ranks : {"2", "4"}) {
      SCOPED_TRACE(pass + " " + ranks);
      const Words how{"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5", "--ranks", ranks, "--passes"};
      const std::string closed = pass.empty() ? "default" : "default," + pass + "}";
      const Outcome o = run(training("bert-tiny", with(how, {closed})));
      ASSERT_EQ(o.code, 0) << o.err;
      const std::vector<std::int64_t> peaks = o.lines().back()["summary"]["rank_peak_bytes"];
      ASSERT_EQ(std::to_string(peaks.size()), ranks);
      for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        const std::string own =
            pass.empty() ? closed : "default," + pass + ",rank=" + std::to_string(rank) + "}";
        const Outcome plan = run(with({"plan", model("bert-tiny") + "/model.onnx", "--dim", "batch=4",
                                       "--precision", "f64", "--threads", "1", "--json"},
                                      with(how, {own})));
        ASSERT_EQ(plan.code, 0) << plan.err;
        EXPECT_EQ(plan.lines().back()["plan_peak_bytes"], peaks[rank]) << "rank " << rank;
      }
      measured[pass].push_back(*std::max_element(peaks.begin(), peaks.end()));
    }
  for (const std::size_t ranks : {0, 1}) {
    EXPECT_LT(measured["zero{stage=1"][ranks], measured[""][ranks]);
    EXPECT_LT(measured["zero{stage=2"][ranks], measured[""][ranks]);
  }
  for (const char* pass : {"zero{stage=1", "zero{stage=2"})
    EXPECT_LT(measured[pass][1], measured[pass][0]) << pass;
}

TEST_F(Ranks, KeepGradientsApart) {
  expect_zero_equal("mlp", "4", {"--optimizer", kPlainSgd, "--clip-norm", "0.3"});
  expect_zero_equal("mlp", "2",
                    {"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.3", "--precision", "f32"});
  expect_zero_equal("cnn-digits", "3", {"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.1"});
  // A scale that all ranks lower at once, as a step overflows.
  expect_zero_equal("bert-tiny", "2",
                    {"--optimizer", "adamw{lr=1e-3}", "--precision", "f16", "--loss-scale",
                     "dynamic{initial=1e9,interval=1}", "--clip-norm", "0.5"});
}

// Batches of 4 of each of so many ranks against one rank with all of them in one batch: losses, parameters, running statistics.
void Ranks::expect_one_large_batch(int ranks, const Words& more, double largest) {
  constexpr std::int64_t kBatch = 4, kSteps = 3, kPixels = 64;
  const auto arrays = [&](std::int64_t batch) {
    const std::int64_t count = kSteps * ranks * kBatch / batch;
    std::vector<double> pixels;
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < count * batch; ++i) {
      labels.push_back(i * 7 % 10);
      for (std::int64_t k = 0; k < kPixels; ++k)
        pixels.push_back(std::sin(static_cast<double>(i * kPixels + k)) * (1 + static_cast<double>(i % 5)));
    }
    Tensor all_labels(DType::i64, {count, batch});
    std::memcpy(all_labels.mutable_data(), labels.data(), all_labels.bytes());
    return std::map<std::string, Tensor>{
        {"image", Tensor::from_f64(DType::f64, {count, batch, 1, 8, 8}, pixels)}, {"labels", all_labels}};
  };
  const auto train = [&](int n, const char* saved) {
    const std::int64_t batch = n == 1 ? kBatch * ranks : kBatch;
    EXPECT_TRUE(write_npz(path("data.npz"), arrays(batch)).ok());
    return run(with({"train", model("cnn-digits") + "/model.onnx", "--dim", "batch=" + std::to_string(batch),
                     "--steps", "3", "--precision", "f64", "--threads", "1", "--ranks", std::to_string(n),
                     "--data", "npz:" + path("data.npz"), "--save-params", path(saved), "--json"},
                    more));
  };
  const Outcome alone = train(1, "a.npz"), together = train(ranks, "b.npz");
  ASSERT_EQ(alone.code, 0) << alone.err;
  ASSERT_EQ(together.code, 0) << together.err;
  const Words a_losses = losses(alone), b_losses = losses(together);
  ASSERT_EQ(a_losses.size(), 3u);
  expect_near_losses(a_losses, b_losses, largest);
  const Parameters a = parameters("a.npz");
  expect_near_parameters(a, parameters("b.npz"), largest);
  EXPECT_LT(without_running(a).size(), a.size());
}

TEST_F(Ranks, NormalizeByTheBatchOfAll) {
  const Words sgd{"--optimizer", "sgd{lr=0.1,momentum=0.9}", "--passes"};
  for (const char* passes :
       {"sync-batchnorm", "default,sync-batchnorm", "default,zero{stage=2},sync-batchnorm"})
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(passes);
      expect_one_large_batch(ranks, with(sgd, {passes}), 1e-10);
    }
}

TEST_F(Ranks, CombineGradientsByAdasum) {
  const Outcome mean = run(training("mlp", {"--ranks", "4"})),
                adasum = run(training("mlp", {"--ranks", "4", "--passes", "adasum"}));
  ASSERT_EQ(adasum.code, 0) << adasum.err;
  EXPECT_EQ(losses(adasum)[0], losses(mean)[0]);
  EXPECT_NE(losses(adasum)[2], losses(mean)[2]) << "gradients of different batches are not averaged";
  const Words how{"--ranks", "2", "--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5", "--passes"};
  const Outcome together = run(training("bert-tiny", with(how, {"adasum"}))),
                apart = run(training("bert-tiny", with(how, {"adasum,zero"})));
  ASSERT_EQ(apart.code, 0) << apart.err;
  EXPECT_EQ(losses(apart), losses(together)) << "states apart are the same training";
}

TEST_F(Ranks, EndTogetherWhereTheLossIsNotFinite) {
  const Outcome o = run(training("mlp", {"--ranks", "3", "--optimizer", "sgd{lr=1e300}", "--steps", "20"}));
  EXPECT_EQ(o.code, 7) << o.err;
  EXPECT_NE(o.err.find("gradloom: the loss is"), std::string::npos) << o.err;
  EXPECT_EQ(o.lines().back()["error"]["code"], 7);
}

// A batch of rank 1 that overflows in its first product, in the third step of two ranks.
TEST_F(Ranks, TheRankWhoseNumbersWentBadFirstNamesItsOperator) {
  constexpr std::int64_t kBatches = 8, kSpoiled = 5;
  const auto read = read_npz(model("mlp") + "/batches.npz");
  ASSERT_TRUE(read.ok());
  std::map<std::string, Tensor> batches;
  for (const auto& [name, few] : *read) {  // again and again
    Shape shape = few.shape();
    const std::size_t bytes = few.bytes() / static_cast<std::size_t>(shape[0]);
    const std::int64_t count = std::exchange(shape[0], kBatches);
    Tensor all(few.dtype(), shape);
    for (std::int64_t i = 0; i < kBatches; ++i)
      ASSERT_TRUE(few.read(static_cast<std::size_t>(i % count) * bytes,
                           all.mutable_as<std::byte>() + static_cast<std::size_t>(i) * bytes, bytes)
                      .ok());
    batches[name] = name == "x" ? all.cast(DType::f64) : all;
  }
  ASSERT_EQ(batches.count("x"), 1u);
  Tensor& x = batches.at("x");
  const std::int64_t numbers = x.count() / kBatches;
  for (std::int64_t i = 0; i < numbers; ++i) x.mutable_as<double>()[kSpoiled * numbers + i] = 1.5e308;
  ASSERT_TRUE(write_npz(path("data.npz"), batches).ok());
  const auto train = [&](const char* passes, const char* steps, const Words& more) {
    Words words{"train",       model("mlp") + "/model.onnx",
                "--dim",       "batch=8",
                "--loss",      "ce:logits,labels",
                "--optimizer", "adamw{lr=1e-3}",
                "--data",      "npz:" + path("data.npz"),
                "--precision", "f64",
                "--ranks",     "2",
                "--steps",     steps,
                "--passes",    passes,
                "--json"};
    return run(with(words, more));
  };
  const Outcome before = train("default", "2", {"--save-params", path("a.npz")});
  ASSERT_EQ(before.code, 0) << before.err;
  const auto a = parameters("a.npz");
  for (const char* passes :
       {"default", "default,zero{stage=2}", "default,zero,gather-early{bucket_mb=0}", "none"})
    for (const bool saves : {false, true}) {
      SCOPED_TRACE(passes);
      fs::remove(path("b.npz"));
      const Outcome o = train(passes, "9", saves ? Words{"--save-params", path("b.npz")} : Words());
      EXPECT_EQ(o.code, 7) << o.err;
      EXPECT_NE(o.err.find("; rank 1: the first result that is not finite, in step 3: kernel "),
                std::string::npos)
          << o.err;
      EXPECT_NE(o.err.find("forward, ONNX node"), std::string::npos) << o.err;
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), saves ? 2 : 1) << o.err;
      json found;
      for (const json& line : o.lines())
        if (line.contains("not_finite")) found = line["not_finite"];
      EXPECT_EQ(found["rank"], 1) << o.out;
      EXPECT_EQ(found["step"], 3);
      if (!saves) continue;
      EXPECT_NE(o.err.find("b.npz holds the parameters after step 2 of 3"), std::string::npos) << o.err;
      const auto b = parameters("b.npz");
      if (std::string(passes) == "none") continue;  // other roundings
      ASSERT_EQ(a.size(), b.size());
      for (const auto& [key, tensor] : a) EXPECT_TRUE(bit_equal(tensor, b.at(key))) << key;
    }
}

TEST_F(Ranks, LeaveTheirTimesInOneSession) {
  const Outcome trained =
      run(training("gpt-char", {"--ranks", "2", "--steps", "9", "--passes",
                                "default,data-parallel{bucket_mb=1}", "--session", path("s.db")}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const json shown = run({"show", path("s.db"), "--json"}).lines().back();
  ASSERT_EQ(shown["ranks"].size(), 2u);
  for (const json& rank : shown["ranks"]) {
    EXPECT_GT(rank["steps"], 0);
    EXPECT_GT(rank["kernels_ns"], 0);
    EXPECT_GT(rank["transfer_ns"], 0);
    EXPECT_GT(rank["sent_bytes"], 0);
    EXPECT_GE(rank["exchange_ns"], rank["wait_ns"]);
    EXPECT_EQ(rank["clock_error_ns"], 0) << "one machine";
  }
  EXPECT_EQ(shown["ranks"][1]["local_rank"], 1);
  EXPECT_EQ(shown["ranks"][0]["sent_bytes"], shown["ranks"][1]["sent_bytes"]);
  const Outcome text = run({"show", path("s.db")});
  EXPECT_NE(text.out.find("waits for ranks"), std::string::npos) << text.out;

  const Outcome all = run({"trace", path("s.db"), "-o", path("all.json"), "--json"}),
                one = run({"trace", path("s.db"), "-o", path("one.json"), "--rank", "1", "--json"});
  ASSERT_EQ(all.code, 0) << all.err;
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(all.lines().back()["events"].get<int>(), 2 * one.lines().back()["events"].get<int>());
  EXPECT_EQ(all.lines().back()["exchanges"].get<int>(), 2 * one.lines().back()["exchanges"].get<int>());
  EXPECT_GT(one.lines().back()["exchanges"].get<int>(), 2 * 3)
      << "several pieces in each of three timed steps";
  const json trace = json::parse(read_file(path("all.json")));
  // A piece is not sent before all of it is there: each begins after the kernel that begins it, on every rank.
  std::map<std::pair<int, int>, double> begun;
  int seen = 0;
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["name"] == "AllReduceBegin") begun[{e["pid"], e["args"]["plan_step"]}] = e["ts"];
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["name"] == "exchange" && begun.count({e["pid"], e["args"]["plan_step"]}) != 0)
      ++seen;
  EXPECT_GT(seen, 6);
  expect_error({"trace", path("s.db"), "-o", path("x.json"), "--rank", "2"}, 2, "has 2 ranks, from 0");
}

// Each rank has a plan of its own then: its kernels are told by the names of their nodes.
TEST_F(Ranks, LeaveTheirTimesWhereTheirPlansDiffer) {
  for (const char* passes : {"zero", "zero{stage=2},data-parallel", "zero,gather-early"}) {
    fs::remove(path("s.db"));
    const Outcome trained =
        run(training("mlp", {"--ranks", "2", "--steps", "6", "--optimizer", "adam", "--clip-norm", "1",
                             "--passes", passes, "--session", path("s.db")}));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const json shown = run({"show", path("s.db"), "--json"}).lines().back();
    ASSERT_EQ(shown["ranks"].size(), 2u);
    for (const json& rank : shown["ranks"]) {
      EXPECT_GT(rank["kernels_ns"], 0);
      EXPECT_GT(rank["exposed_ns"], 0);
      EXPECT_GT(rank["sent_bytes"], 0);
    }
    ASSERT_EQ(run({"trace", path("s.db"), "-o", path("t.json"), "--json"}).code, 0);
    std::map<int, int> exchanges;  // by rank
    const json trace = json::parse(read_file(path("t.json")));
    for (const json& e : trace["traceEvents"])
      if (e["ph"] == "X" && e["name"] == "exchange") ++exchanges[e["pid"].get<int>()];
    ASSERT_EQ(exchanges.size(), 2u);
    EXPECT_EQ(exchanges.begin()->second, exchanges.rbegin()->second);
    EXPECT_EQ(read_file(path("t.json")).find("ReduceGradients") != std::string::npos, passes[4] == '{');
  }
}

// Over each transport that starts local ranks.
class RanksOver : public Ranks, public testing::WithParamInterface<const char*> {
  EnvironmentVariable transport_{"GRADLOOM_TRANSPORT", GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Transport, RanksOver, testing::Values("mpi", "tcp"),
                         [](const auto& over) { return std::string(over.param); });

TEST_P(RanksOver, ARankThatIsKilledIsNamed) {
  std::set<pid_t> ranks;
  const Outcome o = signalled(SIGKILL, ranks, {"--session", path("s.db"), "--name", "killed"});
  EXPECT_EQ(o.code, 6);
  EXPECT_NE(o.err.find("was ended by signal 9"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("interrupted"), std::string::npos) << "one line tells it: " << o.err;
  const Outcome runs = run({"runs", path("s.db"), "--json"});
  EXPECT_NE(runs.out.find("killed"), std::string::npos) << "the session has what was done";
}

TEST_P(RanksOver, ARankThatHangsIsNamed) {
  std::set<pid_t> ranks;
  const Outcome o = signalled(SIGSTOP, ranks, {"--rank-timeout", "1"});
  EXPECT_EQ(o.code, 6);
  EXPECT_NE(o.err.find("said nothing for 1.00 s"), std::string::npos) << o.err;
  for (const pid_t rank : ranks) EXPECT_TRUE(ends(rank)) << "none is left";
}

TEST_P(RanksOver, StopTogether) {
  const pid_t child = start(training("gpt-char", {"--ranks", "2", "--steps", "100000"}));
  ASSERT_TRUE(wait_for("stdout", "\"step\":2"));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_NE(o.err.find("interrupted after step"), std::string::npos) << o.err;
}

TEST_F(Ranks, StartWithoutMpirun) {
  const Outcome by_mpirun = run(training("mlp", {"--ranks", "3"}));
  const auto without = [&] {
    const EnvironmentVariable none("PATH", folder_.path());
    return run(training("mlp", {"--ranks", "3"}));
  };
  const Outcome alone = without();
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(losses(alone).size(), 3u);
  EXPECT_EQ(losses(alone), losses(by_mpirun));
  const EnvironmentVariable transport("GRADLOOM_TRANSPORT", "pigeon");
  expect_error(training("mlp", {"--ranks", "2"}), 2,
               "GRADLOOM_TRANSPORT=pigeon in the environment: expected mpi or tcp");
}

// As torchrun, PyTorchJob and notebooks leave it: each rank would take itself for a process alone, and start ranks.
TEST_F(Ranks, StartWhereAWorldOfOneIsInTheEnvironment) {
  const EnvironmentVariable rank("RANK", "0"), world("WORLD_SIZE", "1");
  for (const char* const transport : {"mpi", "tcp"}) {
    const EnvironmentVariable over("GRADLOOM_TRANSPORT", transport);
    const Outcome o = run(training("mlp", {"--ranks", "2"}));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(losses(o).size(), 3u) << transport;
  }
}

TEST_F(Ranks, StartNoRanksThemselves) {
  const EnvironmentVariable started("GRADLOOM_RANKS_END", path("end"));
  expect_error(training("mlp", {"--ranks", "2"}), 6, "this process was started as a rank");
}

TEST_F(Ranks, EndUnderAParentThatIgnoresItsChildren) {
  const EnvironmentVariable transport("GRADLOOM_TRANSPORT", "tcp");
  const auto before = signal(SIGCHLD, SIG_IGN);
  const pid_t child = start(training("mlp", {"--ranks", "2"}));
  signal(SIGCHLD, before);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(losses(o).size(), 3u);
}

TEST_F(Ranks, NeedAPlaceForTemporaryFiles) {
  const EnvironmentVariable place("TMPDIR", path("nowhere"));
  expect_error(training("mlp", {"--ranks", "2"}), 5, "no folder for temporary files (TMPDIR): ");
}

TEST_F(Ranks, MeasureWhatTheyReachWithEachOther) {
  const Outcome o = run({"devices", "--measure", "--ranks", "3", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json measured = o.lines().back();
  EXPECT_EQ(measured["ranks"], 3);
  EXPECT_GT(measured["latency_ns"], 0);
  ASSERT_EQ(measured["means"].size(), 4u);
  for (const char* form : {"ns", "tree_ns", "ring_ns"})
    EXPECT_GT(measured["means"][3][form], measured["means"][0][form]) << form;
  const Outcome planned = run({"plan", model("mlp") + "/model.onnx", "--dim", "batch=4", "--ranks", "3",
                               "--local-link", measured["link"].get<std::string>(), "--json"});
  EXPECT_EQ(planned.code, 0) << planned.err << measured["link"];
}

TEST_F(Ranks, RunWhereTrainingIsAllThereIs) {
  expect_error(
      {"compare", model("mlp") + "/model.onnx", "--dim", "batch=4", "--ranks", "2", "--b", "passes=none"}, 2,
      "only train and replay run on several ranks");
  expect_error({"train", model("mlp") + "/model.onnx", "--dim", "batch=4", "--ranks", "2", "--paced"}, 2,
               "--paced runs on one rank");
  const EnvironmentVariable rank("RANK", "1"), world("WORLD_SIZE", "2");
  const Words words{"train", model("mlp") + "/model.onnx", "--dim", "batch=4"};
  expect_error(words, 6, "Open MPI says 0 of 1: start the ranks by mpirun");
  const EnvironmentVariable address("MASTER_ADDR", "127.0.0.1");
  expect_error(words, 2, "MASTER_ADDR in the environment without MASTER_PORT");
}

}  // namespace
}  // namespace gradloom
