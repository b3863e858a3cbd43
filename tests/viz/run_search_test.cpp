#include "viz/model/run_search.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradloom {
namespace {

RunSummary base() {
  RunSummary r;
  r.id = 3;
  r.name = "two words";
  r.status = "done";
  r.model = "models/gpt-char/model.onnx";
  r.device = "cuda:0";
  r.precision = "bf16";
  r.optimizer = "adamw{lr=0.001}";
  r.loss = "ce:logits,labels";
  r.data = "tokens:corpus.txt";
  r.passes = "cse,fuse-gelu";
  r.planner = "best-fit";
  r.steps = 200;
  r.last_loss = 2.25;
  r.median_step_ns = 4'000'000;
  r.measured_peak_bytes = 3 << 20;
  r.tags = {"base", "night"};
  r.note = "Fan off";
  r.pinned = true;
  return r;
}

bool matches(const char* text, const RunSummary& run) {
  const auto query = RunQuery::parse(text);
  EXPECT_TRUE(query.ok()) << text << ": " << (query.ok() ? "" : query.error().message);
  return query.ok() && query->matches(run);
}

TEST(RunSearch, EveryKeyFindsAndLeavesOut) {
  for (const char* yes : {"",
                          "tag:base device:cuda loss<2.5 step<10ms",
                          "tag:n*",
                          "TAG:Night",
                          "\"two words\"",
                          "gpt",
                          "night",
                          "name:words",
                          "note:fan",
                          "status:done",
                          "model:gpt-char",
                          "device:cuda:0",
                          "precision:bf16",
                          "optimizer:adamw",
                          "loss:ce",
                          "data:tokens",
                          "pass:gelu",
                          "planner:best",
                          "from:gradloom",
                          "is:pinned",
                          "run>2 run<=3",
                          "steps>=200 steps<1k",
                          "loss>2 loss<=2.25",
                          "step>3.9ms",
                          "peak>2MiB",
                          "-tag:gpu",
                          "-status:failed"})
    EXPECT_TRUE(matches(yes, base())) << yes;
  for (const char* no :
       {"tag:bas", "device:0", "precision:f16", "status:don", "-tag:base", "loss<2", "step<1ms", "peak>1GiB",
        "run<3", "steps>1k", "from:pytorch", "-is:pinned", "gpt llama", "name:gpt"})
    EXPECT_FALSE(matches(no, base())) << no;
}

TEST(RunSearch, NotMeasuredMatchesNoNumber) {
  RunSummary r = base();
  r.last_loss = std::nan("");
  r.median_step_ns = r.measured_peak_bytes = 0;
  for (const char* no : {"loss<9", "loss>-9", "step<1s", "step>=0ns", "peak<1GiB"})
    EXPECT_FALSE(matches(no, r)) << no;
}

TEST(RunSearch, PinnedRunsComeFirst) {
  std::vector<RunSummary> runs(4);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].id = static_cast<std::int64_t>(i) + 1;
  runs[2].pinned = true;
  runs[1].status = "failed";
  std::vector<std::int64_t> ids;
  for (const std::size_t at : found_runs(runs, *RunQuery::parse("-status:failed")))
    ids.push_back(runs[at].id);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{3, 1, 4}));
}

TEST(RunSearch, ErrorsSayWhatIsWrong) {
  const auto error = [](const char* text) {
    const auto query = RunQuery::parse(text);
    return query.ok() ? "" : query.error().message;
  };
  EXPECT_EQ(error("colour:red").substr(0, 40), "unknown key 'colour' (tag, name, note, s");
  EXPECT_EQ(error("step:10"), "loss, step, peak, steps and run take < or >, as in step>1ms");
  EXPECT_EQ(error("tag<3"), "only loss, step, peak, steps and run take < or >");
  EXPECT_EQ(error("step<fast"), "'fast' is not a number with a unit");
  EXPECT_EQ(error("is:old"), "is: takes pinned");
  EXPECT_EQ(error("\"open"), "a quote is not closed");
  EXPECT_EQ(error("loss<nan1"), "'nan1' is not a number with a unit");
}

}  // namespace
}  // namespace gradloom
