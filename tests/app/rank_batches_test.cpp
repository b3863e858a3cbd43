// What ranks take of the data: N ranks with their batches are one rank with the whole batch, in every epoch and in evaluation.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class RankBatches : public RanksFixture {
 protected:
  // The first rows of a model's recorded batches, as so many batches of `batch`.
  void write_data(const std::string& name, std::int64_t batch, std::int64_t count, const char* file) {
    const auto read = read_npz(model(name) + "/batches.npz");
    ASSERT_TRUE(read.ok()) << read.error().message;
    std::map<std::string, Tensor> data;
    for (const auto& [key, all] : *read) {
      Shape shape = all.shape();
      ASSERT_LE(batch * count, shape[0] * shape[1]);
      shape[0] = count;
      shape[1] = batch;
      const Tensor wide = is_float(all.dtype()) ? all.cast(DType::f64) : all;
      Tensor rows(wide.dtype(), shape);
      std::memcpy(rows.mutable_data(), wide.data(), rows.bytes());
      data[key] = rows;
    }
    ASSERT_TRUE(write_npz(path(file), data).ok());
  }
  Outcome train(const std::string& name, std::int64_t batch, const Words& more) {
    return run(with({"train", model(name) + "/model.onnx", "--dim", "batch=" + std::to_string(batch),
                     "--loss", "ce:logits,labels", "--precision", "f64", "--threads", "1", "--json"},
                    more));
  }
  // Three steps of 12 samples: at once, and divided over the ranks and the micro-batches of each.
  void expect_whole_batch(const std::string& name, std::int64_t ranks, std::int64_t accumulate,
                          const Words& how, double largest) {
    constexpr std::int64_t kSamples = 12, kSteps = 3;
    SCOPED_TRACE(name + " " + std::to_string(ranks) + " ranks, " + how.back());
    const std::int64_t parts = ranks * accumulate;
    write_data(name, kSamples, kSteps, "whole.npz");
    write_data(name, kSamples / parts, kSteps * parts, "parts.npz");
    const Words more = with(how, {"--steps", std::to_string(kSteps), "--save-params"});
    const Outcome whole =
        train(name, kSamples, with(more, {path("a.npz"), "--data", "npz:" + path("whole.npz")}));
    const Outcome divided =
        train(name, kSamples / parts,
              with(more, {path("b.npz"), "--data", "npz:" + path("parts.npz"), "--ranks",
                          std::to_string(ranks), "--accumulate", std::to_string(accumulate)}));
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_EQ(divided.code, 0) << divided.err;
    const Words a_losses = losses(whole), b_losses = losses(divided);
    ASSERT_EQ(a_losses.size(), static_cast<std::size_t>(kSteps));
    expect_near_losses(a_losses, b_losses, largest);
    expect_near_parameters(without_running(parameters("a.npz")), without_running(parameters("b.npz")),
                           largest);
  }
};

TEST_F(RankBatches, TrainAsOneRankWithTheWholeBatch) {
  // Without Dropout, whose masks go by the place in a rank's own batch.
  for (const char* optimizer : {"sgd{lr=0.1,momentum=0.9}", "adamw{lr=1e-3}", "lamb{lr=0.01}"}) {
    expect_whole_batch("mlp", 2, 1, {"--optimizer", optimizer}, 1e-10);
    expect_whole_batch("mlp", 3, 2, {"--clip-norm", "0.1", "--optimizer", optimizer}, 1e-10);
    expect_whole_batch("mlp", 4, 1,
                       {"--clip-norm", "0.1", "--passes", "default,zero{stage=2}", "--optimizer", optimizer},
                       1e-10);
  }
  expect_whole_batch(
      "cnn-digits", 4, 1,
      {"--passes", "default,sync-batchnorm", "--clip-norm", "0.2", "--optimizer", "adamw{lr=1e-3}"}, 1e-10);
}

// Where products are in bf16 their sums of other parts differ by its rounding, 2^-9.
TEST_F(RankBatches, TrainInBf16AsOneRankWithTheWholeBatch) {
  for (const char* passes : {"default", "default,zero{stage=2}"})
    expect_whole_batch("mlp", 3, 2,
                       {"--precision", "bf16", "--clip-norm", "0.1", "--passes", passes, "--optimizer",
                        "sgd{lr=0.1,momentum=0.9}"},
                       4e-3);
}

// Every epoch has an order of its own, of which ranks take each their batches; the last step is not filled.
TEST_F(RankBatches, TakeTheOrderOfAnEpochAsOneRankDoes) {
  write_data("mlp", 4, 7, "data.npz");
  const Words common{
      "--data",      "npz:" + path("data.npz"),  "--shuffle",    "on", "--epochs", "3", "--steps", "100",
      "--optimizer", "sgd{lr=0.1,momentum=0.9}", "--save-params"};
  for (const std::string ranks : {"2", "3"}) {
    SCOPED_TRACE(ranks);
    const Outcome one = train("mlp", 4, with(common, {path("a.npz"), "--accumulate", ranks})),
                  several = train("mlp", 4, with(common, {path("b.npz"), "--ranks", ranks})),
                  unshuffled =
                      train("mlp", 4, with(common, {path("c.npz"), "--ranks", ranks, "--shuffle", "off"}));
    ASSERT_EQ(one.code, 0) << one.err;
    ASSERT_EQ(several.code, 0) << several.err;
    EXPECT_GE(losses(several).size(), 7u);
    const std::string told =
        "note: 3 epochs are 21 batches, a step of all ranks takes 2: the last 1 is not read";
    EXPECT_EQ(several.err.find(told) != std::string::npos, ranks == "2") << several.err;
    expect_near_losses(losses(one), losses(several), 1e-12);
    EXPECT_NE(losses(several), losses(unshuffled));
    expect_near_parameters(parameters("a.npz"), parameters("b.npz"), 1e-12);
  }
}

// Each rank evaluates some of the held-out batches: their mean is that of one rank, also where their number does not divide.
TEST_F(RankBatches, DivideHeldOutData) {
  constexpr std::int64_t kBatches = 7;
  write_data("mlp", 4, kBatches, "held.npz");
  const Words common{"--optimizer",  "sgd{lr=0}", "--steps", "2", "--eval-data", "npz:" + path("held.npz"),
                     "--eval-every", "1"};
  const auto evaluations = [&](const Words& more) {
    const Outcome o = train("mlp", 4, with(common, more));
    EXPECT_EQ(o.code, 0) << o.err;
    Words all;
    for (const json& line : o.lines())
      if (line.contains("eval")) {
        all.push_back(line["eval"]["loss"].dump());
        EXPECT_EQ(line["eval"]["batches"].get<std::int64_t>() % 2, 1);
      }
    return all;
  };
  for (const Words& some : {Words(), Words{"--eval-batches", "1"}, Words{"--eval-batches", "5"}}) {
    const Words one = evaluations(some);
    ASSERT_EQ(one.size(), 2u);
    for (const char* ranks : {"2", "3", "4"})
      EXPECT_EQ(evaluations(with(some, {"--ranks", ranks})), one) << ranks << " ranks";
  }
  // A rank that reads nothing of the data but its own: the sixth batch is rank 1's of two, and not finite.
  write_data("mlp", 4, kBatches, "held.npz");
  auto held = *read_npz(path("held.npz"));
  Tensor& x = held.at("x");
  for (std::int64_t i = 0; i < x.count() / kBatches; ++i)
    x.mutable_as<double>()[5 * (x.count() / kBatches) + i] = std::nan("");
  ASSERT_TRUE(write_npz(path("held.npz"), held).ok());
  const Words spoiled = evaluations({"--ranks", "2"});
  EXPECT_EQ(spoiled.size(), 2u);
  for (const std::string& loss : spoiled) EXPECT_EQ(loss, "\"NaN\"");
}

}  // namespace
}  // namespace gradloom
