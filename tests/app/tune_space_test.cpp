#include "app/tune_space.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/environment.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

Recipe job(const std::string& model) {
  Recipe recipe;
  recipe.model = GRADLOOM_SOURCE_DIR "/tests/models/" + model + "/model.onnx";
  recipe.dims = {{"batch", 4}};
  recipe.loss = "ce:logits,labels";
  recipe.threads = 1;
  set_pipeline(recipe, default_pipeline());
  return recipe;
}

TuneSpace space_of(const Recipe& recipe, std::set<TuneAxis> axes) {
  auto space = TuneSpace::of(recipe, std::move(axes), {});
  EXPECT_TRUE(space.ok()) << space.error().message;
  return std::move(space).value();
}

std::vector<std::string> changes_of(const std::vector<Candidate>& candidates) {
  std::vector<std::string> changes;
  for (const Candidate& c : candidates) changes.push_back(c.changes);
  return changes;
}

bool has(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

TEST(TuneSpace, ChangesThatDoTheSameWorkAreLeftOut) {
  TuneSpace space = space_of(job("mlp"), {TuneAxis::passes});
  const auto candidates = space.single_changes();
  ASSERT_TRUE(candidates.ok()) << candidates.error().message;
  std::set<std::string> works{space.job().work};
  for (const Candidate& c : *candidates) EXPECT_TRUE(works.insert(c.work).second) << c.changes;
  const std::vector<std::string> changes = changes_of(*candidates);
  EXPECT_TRUE(has(changes, "passes=none"));
  EXPECT_TRUE(has(changes, "passes=default,-fuse-optimizer"));
  EXPECT_TRUE(has(changes, "passes=fuse-optimizer"));
  EXPECT_FALSE(has(changes, "passes=default,-fuse-attention")) << "there is no attention";
  EXPECT_EQ(space.without().at("fuse-attention"), "") << "the job does the same without it";
  EXPECT_EQ(space.without().at("fuse-optimizer"), "passes=default,-fuse-optimizer");
  EXPECT_EQ(space.alone().at("fuse-optimizer"), "passes=fuse-optimizer");
  EXPECT_EQ(space.alone().at("fuse-attention"), "passes=none");
  for (const auto& named : {space.without(), space.alone()})
    for (const auto& [pass, change] : named)
      EXPECT_TRUE(change.empty() || has(changes, change)) << pass << " is measured by " << change;
}

TEST(TuneSpace, EveryCandidateIsItsChangesAndPredictsItsLaunches) {
  TuneSpace space = space_of(job("gpt-char"), {TuneAxis::passes, TuneAxis::accumulate});
  const auto candidates = space.single_changes();
  ASSERT_TRUE(candidates.ok());
  for (const Candidate& c : *candidates) {
    auto alone = TuneSpace::of(c.recipe, {}, {});
    ASSERT_TRUE(alone.ok()) << c.changes;
    EXPECT_EQ(alone->job().work, c.work) << c.changes;
    EXPECT_EQ(c.without.empty() || c.alone.empty(), true);
  }
  const auto halves = std::find_if(candidates->begin(), candidates->end(), [](const Candidate& c) {
    return c.changes == "dim=batch=2;accumulate=2";
  });
  ASSERT_NE(halves, candidates->end());
  EXPECT_GT(halves->kernels.size(), space.job().kernels.size()) << "micro-batches launch their kernels again";
  EXPECT_LT(halves->peak_bytes, space.job().peak_bytes);
}

TEST(TuneSpace, InstancesOfLayersGoTogether) {
  TuneSpace space = space_of(job("gpt-char"), {TuneAxis::instances});
  const auto candidates = space.without_instances();
  ASSERT_TRUE(candidates.ok());
  const auto in_layers = std::find_if(candidates->begin(), candidates->end(), [](const Candidate& c) {
    return c.label == "fuse-bias-activation off at /blocks.#/proj/Add (4 sites)";
  });
  ASSERT_NE(in_layers, candidates->end());
  EXPECT_EQ(
      in_layers->changes,
      "passes=default,fuse-bias-activation{except=/blocks.0/proj/Add|/blocks.1/proj/Add|/blocks.2/proj/Add|"
      "/blocks.3/proj/Add}");
  EXPECT_TRUE(TuneSpace(space_of(job("gpt-char"), {TuneAxis::passes})).without_instances()->empty());
}

TEST(TuneSpace, CombinationsAreTriedOnce) {
  TuneSpace space = space_of(job("mlp"), {TuneAxis::passes});
  const auto both = space.with_passes({"fuse-optimizer", "fuse-bias-activation"});
  ASSERT_TRUE(both.ok());
  ASSERT_TRUE(*both);
  EXPECT_EQ((*both)->changes, "passes=default,-fuse-bias-activation,-fuse-optimizer");
  EXPECT_FALSE(*space.with_passes({"fuse-optimizer", "fuse-bias-activation"})) << "the same again";
  const auto only = space.with_only({"fuse-optimizer"}, "threads=2");
  ASSERT_TRUE(only.ok());
  ASSERT_TRUE(*only);
  EXPECT_EQ((*only)->changes, "passes=fuse-optimizer;threads=2");
  EXPECT_EQ((*only)->recipe.threads, 2);
}

TEST(TuneSpace, ThreadsAreEachOfFewAndStepsOfMany) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(thread_counts(1, 1), (Counts{1}));
  EXPECT_EQ(thread_counts(2, 1), (Counts{1, 2}));
  EXPECT_EQ(thread_counts(7, 0), (Counts{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(thread_counts(8, 4), (Counts{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(thread_counts(12, 6), (Counts{1, 2, 3, 4, 6, 8, 12}));
  EXPECT_EQ(thread_counts(20, 10), (Counts{1, 2, 3, 4, 6, 8, 10, 12, 16, 20}));
  EXPECT_EQ(thread_counts(96, 48), (Counts{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96}));
  EXPECT_EQ(thread_counts(9, 96), (Counts{1, 2, 3, 4, 6, 8, 9})) << "cores that this process may not use";
}

TEST(TuneSpace, EveryNumberOfThreadsIsACandidate) {
  Recipe recipe = job("mlp");
  TuneSpace space = space_of(recipe, {TuneAxis::threads});
  const auto candidates = space.single_changes();
  ASSERT_TRUE(candidates.ok()) << candidates.error().message;
  const Environment here = read_environment();
  std::vector<std::string> expected;
  for (const std::int64_t threads : thread_counts(here.usable_cores, here.physical_cores))
    if (threads != recipe.threads) expected.push_back("threads=" + std::to_string(threads));
  EXPECT_EQ(changes_of(*candidates), expected);
}

TEST(TuneSpace, BudgetsLieOnTheMemoryCurveOfTheJob) {
  TuneSpace space = space_of(job("gpt-char"), {TuneAxis::budget});
  const auto candidates = space.single_changes();
  ASSERT_TRUE(candidates.ok()) << candidates.error().message;
  ASSERT_GE(candidates->size(), 3u);
  std::int64_t before = space.job().peak_bytes;
  for (const Candidate& c : *candidates) {
    EXPECT_EQ(c.changes, "memory-budget=" + c.recipe.memory_budget);
    EXPECT_LE(c.peak_bytes, std::stoll(c.recipe.memory_budget)) << c.changes;
    EXPECT_LT(c.peak_bytes, before) << "the largest budget first";
    before = c.peak_bytes;
    EXPECT_GE(c.kernels.size(), space.job().kernels.size()) << "values are computed again";
    EXPECT_NE(c.label.find("% of the peak)"), std::string::npos) << c.label;
  }
  EXPECT_LT(before, 0.8 * static_cast<double>(space.job().peak_bytes));
  Recipe tight = job("gpt-char");
  tight.memory_budget = candidates->back().recipe.memory_budget;
  TuneSpace from_tight = space_of(tight, {TuneAxis::budget});
  const auto wider = from_tight.single_changes();
  ASSERT_TRUE(wider.ok()) << wider.error().message;
  const auto changes = changes_of(*wider);
  EXPECT_TRUE(has(changes, "memory-budget=")) << "no budget";
  EXPECT_TRUE(has(changes, candidates->front().changes)) << "the curve is the job's without its budget";
  EXPECT_FALSE(has(changes, candidates->back().changes)) << "it has that one";
}

TEST(TuneSpace, OtherBatchesCountTheirSamples) {
  TuneSpace space = space_of(job("mlp"), {TuneAxis::batch});
  const auto candidates = space.single_changes();
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(changes_of(*candidates),
            (std::vector<std::string>{"dim=batch=2", "dim=batch=8", "dim=batch=16"}));
  EXPECT_EQ((*candidates)[0].samples, 0.5);
  EXPECT_EQ((*candidates)[2].samples, 4);
  TuneSpace cut = space_of(job("mlp"), {TuneAxis::accumulate});
  const auto same_samples = cut.single_changes();
  ASSERT_TRUE(same_samples.ok());
  for (const Candidate& c : *same_samples) EXPECT_EQ(c.samples, 1) << c.changes;
}

TEST(TuneSpace, ALibrarysAlgorithmsAreSearchedOnGpusAlone) {
  EXPECT_TRUE(space_of(job("mlp"), {TuneAxis::algorithms}).single_changes()->empty());
  Recipe gpu = job("mlp");
  gpu.device = "host-gpu";
  EXPECT_EQ(changes_of(*space_of(gpu, {TuneAxis::algorithms}).single_changes()),
            (std::vector<std::string>{"search=8", "search=32"}));
}

TEST(TuneSpace, PartsOfTheSearchHaveNames) {
  EXPECT_EQ(*parse_tune_axes("threads,passes"), (std::set<TuneAxis>{TuneAxis::passes, TuneAxis::threads}));
  const auto wrong = parse_tune_axes("passes,thread");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("did you mean threads?"), std::string::npos) << wrong.error().message;
}

}  // namespace
}  // namespace gradloom
