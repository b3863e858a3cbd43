#include "app/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/rank_scaling.h"
#include "app/roofline.h"
#include "engine/device/device.h"
#include "tests/app/command_fixture.h"
#include "tests/app/model_job.h"

namespace gradloom {
namespace {

std::unique_ptr<Prepared> gpu_plan(std::int64_t ranks, const std::string& device,
                                   const std::string& passes = "default", const std::string& reduce = "order",
                                   const std::string& model = "gpt-char") {
  Recipe recipe = model_recipe(model);
  recipe.data = "synthetic";
  recipe.device = device;
  recipe.ranks = ranks;
  recipe.reduce = reduce;
  recipe.accumulate = 2;
  auto pipeline = parse_pipeline(passes);
  EXPECT_TRUE(pipeline.ok());
  set_pipeline(recipe, *pipeline);
  auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  return prepared.ok() ? std::move(prepared).value() : nullptr;
}

ClusterQuestion eight_to_a_machine() { return {.link = {50, 5000}, .ranks_per_machine = 8}; }

double expected_ns(const Prepared& prepared, const Hardware& hardware) {
  return roofline_of_plan(prepared.compiled.train.graph, prepared.compiled.plan, prepared.recipe, hardware)
      .sum.expected_ns;
}

// Of one rank what `plan --roofline` says of a plan of one rank; more ranks are no faster, and wait as the card's links say.
TEST(Cluster, EveryCardsStepIsItsRooflineAndWhatNcclAdds) {
  const auto alone = gpu_plan(1, "cuda"), many = gpu_plan(8, "cuda");
  ASSERT_TRUE(alone && many);
  for (const Hardware& card : known_hardware()) {
    SCOPED_TRACE(card.id);
    EXPECT_GE(card.link_bytes_per_ns, 16) << "a link of PCI Express 3.0";
    EXPECT_LT(card.link_bytes_per_ns, card.bytes_per_ns(1e9)) << "memory is nearer";
    const Cluster cluster = cluster_of(eight_to_a_machine(), *many, card);
    EXPECT_EQ(cluster.exchanger, Exchanger::nccl);
    EXPECT_DOUBLE_EQ(cluster.local.bytes_per_ns, 0.8 * card.link_bytes_per_ns);
    EXPECT_NE(cluster.figures.find(card.name), std::string::npos) << cluster.figures;
    EXPECT_NE(cluster.figures.find("data sheet"), std::string::npos) << cluster.figures;
    const RankScaling scaling = predict_scaling(*many, cluster);
    EXPECT_FALSE(scaling.measured);
    EXPECT_EQ(scaling.hardware, card.name);
    const double one = expected_ns(*alone, card);
    EXPECT_NEAR(scaling.rows[0].step_ns, one, 0.02 * one) << "its optimizer may be a kernel more";
    EXPECT_EQ(scaling.rows[0].exposed_ns, 0);
    for (std::size_t i = 1; i < scaling.rows.size(); ++i) {
      EXPECT_GE(scaling.rows[i].step_ns, scaling.rows[i - 1].step_ns);
      EXPECT_GT(scaling.rows[i].exchange_ns, scaling.rows[i - 1].exchange_ns);
      EXPECT_EQ(scaling.rows[i].crowding, 1);
    }
  }
  const Hardware h200 = *find_hardware("h200");
  EXPECT_LT(expected_ns(*alone, h200), expected_ns(*alone, *find_hardware("t4")) / 2);
}

// One bucket of all gradients, and the loss, which is 4 bytes and goes as trees where machines are several.
TEST(Cluster, ExchangesAreNcclsFormulaInTwoLayouts) {
  const auto prepared = gpu_plan(8, "cuda", "default,data-parallel{overlap=false,bucket_mb=1000}");
  ASSERT_TRUE(prepared);
  const RankScaling scaling =
      predict_scaling(*prepared, cluster_of(eight_to_a_machine(), *prepared, *find_hardware("h200")));
  std::vector<double> sizes;
  const Graph& graph = prepared->compiled.train.graph;
  for (const PlanStep& step : prepared->compiled.plan.steps) {
    const Node& node = graph.nodes[step.node];
    if (node.op->exchange != RankExchange::mean) continue;
    sizes.push_back(0);
    for (const ValueId in : node.inputs) sizes.back() += static_cast<double>(byte_size(graph.type(in)));
  }
  ASSERT_FALSE(sizes.empty());
  ASSERT_EQ(static_cast<std::int64_t>(sizes.size()), scaling.exchanges);
  double inside = 0, across = 0;
  for (const double bytes : sizes) {
    inside += 2000 + 2 * 7 / 8.0 * bytes / 360 + 14 * 2000;
    across += 2000 + std::min(2 * 63 / 64.0 * bytes / 50 + 112 * 2000 + 14 * 5000,
                              2 * bytes / (0.9 * 50) + 14 * 2000 + 6 * 5000);
  }
  EXPECT_EQ(scaling.rows[3].ranks, 8);
  EXPECT_NEAR(scaling.rows[3].exchange_ns, inside, 1e-6 * inside);
  EXPECT_EQ(scaling.rows[6].ranks, 64);
  EXPECT_NEAR(scaling.rows[6].exchange_ns, across, 1e-6 * across);
  EXPECT_NEAR(scaling.rows[6].exposed_ns, across, 1e-6 * across) << "nothing is begun early";
}

// zero's exchanges go one way: as many bytes as reduce-scatter and all-gather move.
TEST(Cluster, WhatGoesOneWayIsHalfAnAllReduce) {
  const auto whole = gpu_plan(8, "cuda", "default,data-parallel{bucket_mb=1000}"),
             zero = gpu_plan(8, "cuda", "default,data-parallel{bucket_mb=1000},zero{stage=2}");
  ASSERT_TRUE(whole && zero);
  ClusterQuestion question = eight_to_a_machine();
  question.local = Link{1e-3, 1};  // bytes are all
  const Hardware h200 = *find_hardware("h200");
  const double all = predict_scaling(*whole, cluster_of(question, *whole, h200)).rows[3].exchange_ns;
  EXPECT_NEAR(predict_scaling(*zero, cluster_of(question, *zero, h200)).rows[3].exchange_ns, all, 0.01 * all);
}

TEST(Cluster, WhatNcclCannotDoGoesThroughTheHosts) {
  const Hardware h200 = *find_hardware("h200");
  for (const auto& [passes, reduce] : {std::pair("default,adasum", "order"),
                                       {"default,tensor-parallel{size=2}", "order"},
                                       {"default", "tree"}}) {
    SCOPED_TRACE(std::string(passes) + " " + reduce);
    const auto prepared = gpu_plan(8, "cuda", passes, reduce);
    ASSERT_TRUE(prepared);
    Cluster cluster = cluster_of(eight_to_a_machine(), *prepared, h200);
    EXPECT_EQ(cluster.exchanger, Exchanger::host);
    EXPECT_EQ(cluster.local.bytes_per_ns, 10) << "the memory of the machine";
    EXPECT_NE(cluster.figures.find("through the hosts"), std::string::npos) << cluster.figures;
    const double with_copies = predict_scaling(*prepared, cluster).rows[2].exchange_ns;
    cluster.exchanger = Exchanger::world;
    EXPECT_GT(with_copies, predict_scaling(*prepared, cluster).rows[2].exchange_ns);
  }
}

TEST(Cluster, TheCardIsThatOfTheRunAndElseSaidToBeTaken) {
  for (const DeviceInfo& device : list_devices())
    if (device.available && (device.id.starts_with("cuda") || device.id.starts_with("hip")))
      GTEST_SKIP() << "a card is here";
  for (const auto& [device, run, name, known] :
       {std::tuple("cuda", "", "NVIDIA H200 SXM", false),
        std::tuple("hip:0", "", "AMD Instinct MI300X", false),
        std::tuple("cuda:0", "Tesla V100-SXM2-32GB, AMD EPYC 7742, 8 threads, x86-64-v3",
                   "NVIDIA V100 SXM2 32 GB", true)}) {
    const auto prepared = gpu_plan(2, device, "default", "order", "mlp");
    ASSERT_TRUE(prepared);
    const Cluster cluster = cluster_of(eight_to_a_machine(), *prepared, std::nullopt, run);
    ASSERT_TRUE(cluster.roofs);
    EXPECT_EQ(cluster.roofs->name, name);
    EXPECT_EQ(cluster.figures.find("nothing is known of") == std::string::npos, known) << cluster.figures;
  }
}

TEST(Cluster, AProcessorOfTheJobStaysOne) {
  const auto prepared = gpu_plan(2, "cpu", "default", "order", "mlp");
  ASSERT_TRUE(prepared);
  const Cluster cluster = cluster_of(eight_to_a_machine(), *prepared, std::nullopt);
  EXPECT_EQ(cluster.exchanger, Exchanger::world);
  EXPECT_FALSE(cluster.roofs);
  EXPECT_EQ(cluster.local.bytes_per_ns, 10);
  EXPECT_NE(cluster.figures.find("estimates of a CPU"), std::string::npos) << cluster.figures;
}

TEST(Cluster, ReadsLinks) {
  const auto fast = parse_link("400Gb/s,5us");
  ASSERT_TRUE(fast.ok());
  EXPECT_DOUBLE_EQ(fast->bytes_per_ns, 50);
  EXPECT_DOUBLE_EQ(fast->latency_ns, 5000);
  EXPECT_DOUBLE_EQ(parse_link("2.5GB/s")->bytes_per_ns, 2.5);
  EXPECT_DOUBLE_EQ(parse_link("100Mb/s,1ms")->bytes_per_ns, 0.0125);
  for (const char* text : {"", "400", "-1GB/s", "400Gb/s,", "400Gb/s,5", "GB/s", "1GB/s,0us", "inf GB/s"}) {
    const auto link = parse_link(text);
    ASSERT_FALSE(link.ok()) << text;
    EXPECT_EQ(link.error().code, Errc::usage);
  }
  EXPECT_FALSE(parse_cluster("1GB/s", "", 0)->local);
  EXPECT_FALSE(parse_cluster("1GB/s", "fast", 0).ok());
}

class ClusterCommand : public Commands {};

TEST_F(ClusterCommand, ThePlanSaysWhoseFiguresItsRanksHave) {
  std::vector<std::string> words = {"plan",    model("mlp/model.onnx"),
                                    "--dim",   "batch=64",
                                    "--loss",  "ce:logits,labels",
                                    "--ranks", "16",
                                    "--local", "8",
                                    "--link",  "400Gb/s,5us"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const Outcome cpu = with({"--json"}), card = with({"--device", "cuda", "--on", "h100", "--json"}),
                slower = with({"--device", "cuda", "--on", "t4", "--json"});
  for (const Outcome* o : {&cpu, &card, &slower}) ASSERT_EQ(o->code, 0) << o->err;
  const auto scaling = [](const Outcome& o) {
    for (const json& line : o.lines())
      if (line.contains("scaling")) return line["scaling"];
    return json();
  };
  EXPECT_EQ(scaling(cpu)["kernel_times"], "estimated");
  EXPECT_EQ(scaling(cpu)["exchanged_by"], "world");
  EXPECT_TRUE(scaling(cpu)["hardware"].is_null());
  EXPECT_EQ(scaling(card)["kernel_times"], "roofline");
  EXPECT_EQ(scaling(card)["exchanged_by"], "nccl");
  EXPECT_EQ(scaling(card)["hardware"], "NVIDIA H100 SXM5");
  EXPECT_LT(scaling(card)["rows"][0]["predicted_step_ns"], scaling(cpu)["rows"][0]["predicted_step_ns"]);
  EXPECT_LT(scaling(card)["rows"][3]["exchange_ns"], scaling(slower)["rows"][3]["exchange_ns"]) << "NVLink";
  const Outcome text = with({"--device", "cuda", "--on", "h100"});
  EXPECT_NE(text.out.find("335 GiB/s, 2.00 us in a machine; 46.6 GiB/s, 5.00 us between machines of 8 ranks"),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("figures      kernels as expected of NVIDIA H100 SXM5: its data sheet"),
            std::string::npos)
      << text.out;
  EXPECT_EQ(with({"--on", "h300"}).code, 2);
}

}  // namespace
}  // namespace gradloom
