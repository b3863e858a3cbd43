#include "app/rank_scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/app/model_job.h"

namespace gradloom {
namespace {

std::unique_ptr<Prepared> plan_of(const std::string& model, std::int64_t ranks, const std::string& passes,
                                  double clip_norm = 0, const std::string& reduce = "order",
                                  const std::string& precision = "f32", std::int64_t accumulate = 1) {
  Recipe recipe = model_recipe(model);
  recipe.accumulate = accumulate;
  recipe.precision = precision;
  recipe.reduce = reduce;
  recipe.clip_norm = clip_norm;
  recipe.data = "synthetic";
  recipe.ranks = ranks;
  auto pipeline = parse_pipeline(passes);
  EXPECT_TRUE(pipeline.ok());
  set_pipeline(recipe, *pipeline);
  auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  return prepared.ok() ? std::move(prepared).value() : nullptr;
}

// What is exchanged are the gradients and the loss.
double trained_bytes(const Prepared& prepared) {
  double bytes = 4;
  const Graph& graph = prepared.compiled.train.graph;
  for (const std::string& name : prepared.compiled.train.trainable)
    bytes += static_cast<double>(byte_size(graph.type(find_value(graph, name))));
  return bytes;
}

TEST(RankScaling, TellsWhatIsExchangedAndHowLongItTakes) {
  const auto prepared = plan_of("bert-tiny", 4, "default,data-parallel{bucket_mb=0}");
  ASSERT_TRUE(prepared);
  Cluster cluster;
  cluster.ranks_per_machine = 2;
  cluster.link = {1, 20000};
  const RankScaling scaling = predict_scaling(*prepared, cluster);
  EXPECT_DOUBLE_EQ(scaling.bytes, trained_bytes(*prepared));
  EXPECT_GT(scaling.exchanges, 10) << "a bucket for each gradient";
  ASSERT_EQ(scaling.rows.size(), 11u);
  EXPECT_EQ(scaling.rows[0].exchange_ns, 0);
  EXPECT_EQ(scaling.rows[0].exposed_ns, 0);
  EXPECT_EQ(scaling.rows[0].efficiency, 1);
  for (std::size_t i = 1; i < scaling.rows.size(); ++i) {
    const ScalingRow &row = scaling.rows[i], &before = scaling.rows[i - 1];
    EXPECT_GT(row.exchange_ns, before.exchange_ns);
    EXPECT_GE(row.exposed_ns, before.exposed_ns);
    EXPECT_LE(row.exposed_ns, row.exchange_ns * 1.0001);
    EXPECT_NEAR(row.step_ns, scaling.rows[0].step_ns + row.exposed_ns, 1e-3 * row.step_ns);
  }
}

// Bytes over the link: 4 ranks, 2 to a machine, of B bytes 2 * 2 * 2 / 4 B.
TEST(RankScaling, ASlowLinkDecides) {
  const auto prepared = plan_of("bert-tiny", 4, "none");
  ASSERT_TRUE(prepared);
  Cluster cluster;
  cluster.ranks_per_machine = 2;
  cluster.link = {1e-6, 1};  // 1 byte per ms
  const RankScaling scaling = predict_scaling(*prepared, cluster);
  double bytes = 0;  // small ones go whole: to each of the 2 others, from each of the 2
  for (const PlanStep& step : prepared->compiled.plan.steps) {
    const Graph& graph = prepared->compiled.train.graph;
    const Node& node = graph.nodes[step.node];
    if (std::string(node.op->name) != "AllReduceMean") continue;
    const auto own = static_cast<double>(byte_size(graph.type(node.inputs[0])));
    bytes += own <= 16384 ? 4 * own : 2 * own;
  }
  EXPECT_NEAR(scaling.rows[2].exchange_ns, bytes * 1e6, 1e-3 * bytes * 1e6);
  EXPECT_NEAR(scaling.rows[2].exposed_ns, scaling.rows[2].exchange_ns, 1e-6 * scaling.rows[2].exchange_ns)
      << "without the pass nothing is hidden";
  EXPECT_NE(scaling.bend.find("from 4 ranks"), std::string::npos) << scaling.bend;
}

// The same ranks: of B bytes a ring takes 6 B / 4 over the link, a tree 2 * 2 B / 4, as the first half of all stays inside.
TEST(RankScaling, TreesAndRingsTakeLessOfTheLink) {
  Cluster cluster;
  cluster.ranks_per_machine = 2;
  cluster.link = {1e-6, 1};
  for (const auto& [form, small, large] :
       {std::tuple("order", 4.0, 2.0), std::tuple("tree", 2.0, 1.0), std::tuple("ring", 4.0, 1.5)}) {
    const auto prepared = plan_of("bert-tiny", 4, "none", 0, form);
    ASSERT_TRUE(prepared);
    double bytes = 0;
    for (const PlanStep& step : prepared->compiled.plan.steps) {
      const Graph& graph = prepared->compiled.train.graph;
      const Node& node = graph.nodes[step.node];
      if (std::string(node.op->name) != "AllReduceMean") continue;
      const auto own = static_cast<double>(byte_size(graph.type(node.inputs[0])));
      bytes += own * (own <= 16384 ? small : large);
    }
    const RankScaling scaling = predict_scaling(*prepared, cluster);
    EXPECT_NEAR(scaling.rows[2].exchange_ns, bytes * 1e6, 1e-3 * bytes * 1e6) << form;
    EXPECT_NEAR(scaling.sent_bytes, 1.5 * scaling.bytes, 1) << form;
  }
}

// Where latency is all, a tree waits 2 log2(N) times and a ring 2 (N - 1) times.
TEST(RankScaling, LatencyOfTreesGrowsWithTheLogarithm) {
  Cluster cluster;
  cluster.ranks_per_machine = 1;
  cluster.link = {1e9, 1e9};
  std::map<std::string, double> ns;
  double means = 0;
  for (const char* form : {"order", "tree", "ring"}) {
    const auto prepared = plan_of("mlp", 64, "default,data-parallel{overlap=false}", 0, form);
    ASSERT_TRUE(prepared);
    const RankScaling scaling = predict_scaling(*prepared, cluster);
    for (const ScalingRow& row : scaling.rows)
      if (row.ranks == 64) ns[form] = row.exchange_ns / 1e9;
    means = 0;
    for (const PlanStep& step : prepared->compiled.plan.steps) {
      const Graph& graph = prepared->compiled.train.graph;
      const Node& node = graph.nodes[step.node];
      if (std::string(node.op->name) != "AllReduceMean") continue;
      double bytes = 0;
      for (const ValueId in : node.inputs) bytes += static_cast<double>(byte_size(graph.type(in)));
      means += bytes > 16384 ? 1 : 0;
    }
    ASSERT_EQ(means, 1) << "the gradients, and what is small with them";
  }
  EXPECT_NEAR(ns["order"], 2, 0.01);
  EXPECT_NEAR(ns["tree"], 12, 0.01);
  EXPECT_NEAR(ns["ring"], 126, 0.01);
}

TEST(RankScaling, TheBackwardPassHidesWhatIsBegunEarly) {
  const auto apart = plan_of("gpt-char", 2, "default,data-parallel{overlap=false}");
  const auto beside = plan_of("gpt-char", 2, "default,data-parallel{bucket_mb=1}");
  ASSERT_TRUE(apart && beside);
  const RankScaling blocking = predict_scaling(*apart, {}), hidden = predict_scaling(*beside, {});
  EXPECT_NEAR(blocking.rows[1].exposed_ns, blocking.rows[1].exchange_ns, 1);
  EXPECT_LT(hidden.rows[1].exposed_ns, 0.7 * hidden.rows[1].exchange_ns);
}

// The most that a rank's plan takes.
std::int64_t planned(const char* model, std::int64_t ranks, const char* passes, const std::string& zero,
                     double clip_norm, const char* precision) {
  std::int64_t most = 0;
  for (int rank = 0; rank < (zero.empty() ? 1 : ranks); ++rank) {
    const auto one = plan_of(model, ranks, passes + (zero.empty() ? "" : zero + std::to_string(rank) + "}"),
                             clip_norm, "order", precision);
    if (one) most = std::max(most, one->compiled.plan.peak_bytes());
  }
  return most;
}

// What it says of other numbers of ranks is what their plans take, from a plan of each stage.
TEST(RankScaling, PeaksAreThoseOfThePlans) {
  const auto near = [](std::int64_t said, std::int64_t is) {
    EXPECT_NEAR(static_cast<double>(said), static_cast<double>(is), 0.01 * static_cast<double>(is));
  };
  struct Case {
    const char *model, *passes;
    double clip_norm;
    const char* precision = "f32";
  };
  for (const Case& c :
       {Case{"gpt-char", "default", 0}, Case{"bert-tiny", "default", 1},
        Case{"mlp", "default,-early-updates", 1}, Case{"mlp", "default,data-parallel{overlap=false}", 0},
        Case{"mlp", "none", 1}, Case{"gpt-char", "default,data-parallel{dtype=bf16}", 0},
        Case{"bert-tiny", "default,data-parallel{dtype=bf16}", 1}, Case{"gpt-char", "default", 0, "bf16"},
        Case{"bert-tiny", "default", 1, "bf16"}})
    for (const char* zero : {"", ",zero", ",zero{stage=2}"}) {
      SCOPED_TRACE(std::string(c.model) + " " + c.passes + zero + " " + c.precision);
      const auto prepared =
          plan_of(c.model, 2, std::string(c.passes) + zero, c.clip_norm, "order", c.precision);
      ASSERT_TRUE(prepared);
      const std::vector<ScalingRow> rows = predict_scaling(*prepared, {}).rows;
      for (const std::size_t at : {1, 2}) {
        near(rows[at].peaks.whole.bytes,
             planned(c.model, rows[at].ranks, c.passes, "", c.clip_norm, c.precision));
        near(rows[at].peaks.zero.bytes,
             planned(c.model, rows[at].ranks, c.passes, ",zero{rank=", c.clip_norm, c.precision));
        near(rows[at].peaks.zero2.bytes,
             planned(c.model, rows[at].ranks, c.passes, ",zero{stage=2,rank=", c.clip_norm, c.precision));
        EXPECT_LT(rows[at].peaks.zero.bytes, rows[at].peaks.whole.bytes);
        if (std::string(c.passes) != "none") {  // where gradients are averaged in their place
          // In bf16 the peak may be of the forward pass, of the rank that has a unit more: the shares are others.
          const std::int64_t unit = c.precision == std::string("bf16") ? 8192 : 0;
          EXPECT_LE(rows[at].peaks.zero2.bytes, rows[at].peaks.zero.bytes + unit);
        }
      }
      if (std::string(c.model) == "mlp") continue;  // of which one parameter is half
      EXPECT_LT(rows[2].peaks.zero.bytes, rows[1].peaks.zero.bytes);
    }
}

// The parts of a peak are all of it; what zero divides falls with the ranks as it says.
TEST(RankScaling, ATableTellsWhatAPeakIsMadeOf) {
  for (const char* passes : {"default", "default,zero{stage=2}"}) {
    SCOPED_TRACE(passes);
    const auto prepared = plan_of("bert-tiny", 4, passes);
    ASSERT_TRUE(prepared);
    const RankScaling scaling = predict_scaling(*prepared, {});
    const double trained = trained_bytes(*plan_of("bert-tiny", 4, "none")) - 4;  // f32, as AdamW's two states
    const RankPeaks& one = scaling.rows[0].peaks;
    for (const ScalingRow& row : scaling.rows) {
      for (const RankPeak* peak : {&row.peaks.whole, &row.peaks.zero, &row.peaks.zero2}) {
        EXPECT_EQ(peak->bytes,
                  peak->parameters + peak->gradients + peak->state + peak->activations + peak->buckets);
        EXPECT_NEAR(static_cast<double>(peak->parameters), trained, 0.02 * trained);
        EXPECT_GE(peak->activations, 0);
        EXPECT_GE(peak->gradients, 0);
      }
      EXPECT_NEAR(static_cast<double>(row.peaks.whole.state), 2 * trained, 0.02 * trained);
      if (row.ranks > 8) continue;  // parameters are cut at 8192 elements
      for (const RankPeak* peak : {&row.peaks.zero, &row.peaks.zero2})
        EXPECT_NEAR(static_cast<double>(peak->state), 2 * trained / static_cast<double>(row.ranks),
                    0.15 * trained);
    }
    EXPECT_EQ(one.whole.buckets, 0) << "one rank exchanges nothing";
    EXPECT_GT(scaling.rows[2].peaks.whole.gradients, 0);
    EXPECT_LE(scaling.rows[2].peaks.zero2.gradients, scaling.rows[2].peaks.whole.gradients);
  }
}

// Ranks that share cores compute as many times longer.
TEST(RankScaling, MoreRanksThanCoresShareThem) {
  const auto prepared = plan_of("gpt-char", 4, "default");
  ASSERT_TRUE(prepared);
  Cluster cluster;
  cluster.local = {1e6, 1};
  cluster.cores = 2;
  const std::vector<ScalingRow> rows = predict_scaling(*prepared, cluster).rows;
  cluster.threads = 2;
  const std::vector<ScalingRow> wider = predict_scaling(*prepared, cluster).rows;
  cluster.ranks_per_machine = 1;
  const std::vector<ScalingRow> apart = predict_scaling(*prepared, cluster).rows;
  for (std::size_t i = 0; i < 4; ++i) {
    const double ranks = static_cast<double>(rows[i].ranks);
    EXPECT_DOUBLE_EQ(rows[i].crowding, std::max(1.0, ranks / 2));
    EXPECT_DOUBLE_EQ(wider[i].crowding, ranks);
    EXPECT_DOUBLE_EQ(apart[i].crowding, 1) << "each has a machine";
    EXPECT_NEAR(rows[i].step_ns - rows[i].exposed_ns, rows[0].step_ns * rows[i].crowding,
                1e-6 * rows[i].step_ns);
  }
  EXPECT_NE(predict_scaling(*prepared, {.cores = 2}).bend.find("2 threads for each core"), std::string::npos);
}

// Where no core is left for what exchanges in the background, a core computes and exchanges in turns: of what was hidden half at most
// is not (0.65 ns of the link for each byte, 1.05 of a core), with a core for two ranks' exchanges a third.
TEST(RankScaling, ExchangesTakeCoresFromKernels) {
  const auto prepared = plan_of("gpt-char", 2, "default,data-parallel{bucket_mb=1}");
  ASSERT_TRUE(prepared);
  const auto with_cores = [&](double cores) {
    Cluster cluster;
    cluster.local = {5, 1};
    cluster.cores = cores;
    return predict_scaling(*prepared, cluster).rows[1];
  };
  const ScalingRow free = with_cores(0), three = with_cores(3), two = with_cores(2);
  EXPECT_EQ(with_cores(4).step_ns, free.step_ns) << "a core for each rank, and one for its exchanges";
  const double hidden = free.exchange_ns - free.exposed_ns;
  EXPECT_LT(free.exposed_ns, three.exposed_ns);
  EXPECT_LE(three.exposed_ns, two.exposed_ns);
  EXPECT_LE(three.exposed_ns - free.exposed_ns, hidden / 3 * 1.001);
  EXPECT_LE(two.exposed_ns - free.exposed_ns, hidden / 2 * 1.001);
  for (const ScalingRow& row : {three, two}) {
    EXPECT_EQ(row.crowding, 1);
    EXPECT_EQ(row.exchange_ns, free.exchange_ns);
    EXPECT_NEAR(row.step_ns - row.exposed_ns, free.step_ns - free.exposed_ns, 1e-6 * free.step_ns);
  }
}

// Gradients are exchanged once per step, what micro-batches change after each.
TEST(RankScaling, EveryMicroBatchExchangesRunningStatistics) {
  const auto one = plan_of("cnn-digits", 2, "none"),
             four = plan_of("cnn-digits", 2, "none", 0, "order", "f32", 4);
  ASSERT_TRUE(one && four);
  const RankScaling of_one = predict_scaling(*one, {}), of_four = predict_scaling(*four, {});
  const double statistics = of_one.bytes - trained_bytes(*one);
  EXPECT_GT(statistics, 0);
  EXPECT_DOUBLE_EQ(of_four.bytes, trained_bytes(*four) + 4 * statistics);
  EXPECT_DOUBLE_EQ(of_four.sent_bytes, of_four.bytes) << "of two ranks each sends half of all twice";
}

// Four ranks of a machine in two groups, whose exchanges are all of two ranks: its memory carries what the four of them send.
TEST(RankScaling, GroupsOfAMachineShareItsLinks) {
  const auto prepared = plan_of("gpt-char", 4, "default,tensor-parallel{size=2}");
  ASSERT_TRUE(prepared);
  Cluster cluster;
  cluster.local = cluster.link = {1e-6, 1};  // bytes are all
  const RankScaling scaling = predict_scaling(*prepared, cluster);
  ASSERT_EQ(scaling.sharing, 2);
  ASSERT_EQ(scaling.rows[1].ranks, 4);
  EXPECT_DOUBLE_EQ(scaling.sent_bytes, scaling.bytes);
  const double all_ns = 4 * scaling.sent_bytes * 1e6;
  EXPECT_NEAR(scaling.rows[1].exchange_ns, all_ns, 1e-3 * all_ns);
  // A group to a machine: what it adds up stays inside, at both machines at once.
  cluster.ranks_per_machine = 2;
  EXPECT_NEAR(predict_scaling(*prepared, cluster).rows[1].exchange_ns, all_ns / 2, 1e-3 * all_ns);
}

// All gradients go to one other rank in each of log2(N) rounds.
TEST(RankScaling, AdasumSendsMoreThanMeans) {
  for (const auto& [ranks, rounds] : {std::pair{2, 1}, {4, 2}, {8, 3}}) {
    const auto prepared = plan_of("mlp", ranks, "default,adasum");
    ASSERT_TRUE(prepared);
    const RankScaling scaling = predict_scaling(*prepared, {});
    EXPECT_DOUBLE_EQ(scaling.bytes, trained_bytes(*prepared));
    EXPECT_NEAR(scaling.sent_bytes, rounds * (scaling.bytes - 4), 8) << "and the mean of the loss";
  }
  const auto adasum = plan_of("mlp", 4, "default,adasum"), mean = plan_of("mlp", 4, "default");
  ASSERT_TRUE(adasum && mean);
  Cluster cluster;
  cluster.local = {1e-6, 1};  // one machine, where bytes are all
  const auto exchange_ns = [&](const Prepared& prepared) {
    return predict_scaling(prepared, cluster).rows[2].exchange_ns;
  };
  EXPECT_NEAR(exchange_ns(*adasum) / exchange_ns(*mean), 2 / 1.5, 0.01);
}

// An all-reduce is two ways, and what is shared one: 3 units with stage 1, 2 with stage 2.
TEST(RankScaling, StageTwoSendsTwoThirds) {
  const auto whole = plan_of("bert-tiny", 2, "default"), one = plan_of("bert-tiny", 2, "default,zero"),
             two = plan_of("bert-tiny", 2, "default,zero{stage=2}");
  ASSERT_TRUE(whole && one && two);
  const double none = predict_scaling(*whole, {}).bytes;
  EXPECT_NEAR(predict_scaling(*one, {}).bytes / none, 1.5, 1e-3);
  EXPECT_NEAR(predict_scaling(*two, {}).bytes / none, 1, 1e-3);
}

}  // namespace
}  // namespace gradloom
