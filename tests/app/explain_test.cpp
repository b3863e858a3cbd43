#include "app/explain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/job.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

const Compiled& gpt() {
  static const std::unique_ptr<Prepared> prepared = [] {
    Recipe recipe;
    recipe.model = GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx";
    recipe.dims = {{"batch", 4}};
    recipe.loss = "ce:logits,labels";
    set_pipeline(recipe, default_pipeline());
    return std::move(prepare(recipe)).value();
  }();
  return prepared->compiled;
}

TEST(Explain, AFusedNodeNamesThePassItsOnnxNodesAndItsGradient) {
  const auto all = explain(gpt(), "/blocks.0/gelu/Mul_5");
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_GE(all->size(), 1u);
  const Explained& e = all->front();
  EXPECT_GE(e.plan_step, 0);
  bool fused = false;
  for (const Explained::Event& event : e.events)
    fused = fused || (event.pass == "fuse-gelu" && event.record->matched);
  EXPECT_TRUE(fused);
  const std::string text = explained_text(gpt(), e);
  EXPECT_NE(text.find("+ fuse-gelu: "), std::string::npos) << text;
  EXPECT_NE(text.find("in backward: "), std::string::npos) << text;
}

TEST(Explain, KernelsAndGlobsFindAllThatAreCalledSo) {
  const std::string kernel = gpt().plan.steps[0].kernel;
  const auto by_kernel = explain(gpt(), kernel);
  ASSERT_TRUE(by_kernel.ok());
  for (const Explained& e : *by_kernel)
    EXPECT_EQ(gpt().plan.steps[static_cast<std::size_t>(e.plan_step)].kernel, kernel);
  const auto by_glob = explain(gpt(), "/blocks.*/gelu/Mul_5");
  ASSERT_TRUE(by_glob.ok());
  EXPECT_EQ(by_glob->size(), 4u);
}

// Also of a node of the model of which the passes left nothing.
TEST(Explain, EveryOnnxNodeHasAHistory) {
  const auto is_match = [](const Explained::Event& event) { return event.record->matched; };
  const Explained* gone = nullptr;
  std::vector<std::vector<Explained>> all;
  for (const SourceNode& source : gpt().train.graph.sources) {
    auto found = explain(gpt(), source.name);
    ASSERT_TRUE(found.ok()) << found.error().message;
    all.push_back(std::move(found).value());
  }
  for (const std::vector<Explained>& found : all)
    for (const Explained& e : found)
      if (e.node == kNone && std::any_of(e.events.begin(), e.events.end(), is_match)) gone = &e;
  ASSERT_NE(gone, nullptr);
  EXPECT_EQ(gone->plan_step, -1);
  const std::string text = explained_text(gpt(), *gone);
  EXPECT_EQ(text.rfind(gone->name + "  gone: ", 0), 0u) << text;
  EXPECT_NE(text.find("\n  + "), std::string::npos) << text;
  const Json json = explained_json(gpt(), *gone);
  EXPECT_EQ(json["node"], gone->name);
  EXPECT_EQ(json["gone"], true);
  EXPECT_FALSE(json["events"].empty());
}

TEST(Explain, AnUnknownNameHasItsNearest) {
  const auto none = explain(gpt(), "/blocks.0/gelu/Mull");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::usage);
  EXPECT_NE(none.error().message.find("did you mean /blocks.0/gelu/Mul?"), std::string::npos)
      << none.error().message;
}

TEST_F(Commands, PlanExplains) {
  const Outcome o = run({"plan", model("gpt-char/model.onnx"), "--dim", "batch=4", "--loss",
                         "ce:logits,labels", "--explain", "/blocks.*/gelu/Mul_5", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  std::string line;
  int found = 0;
  while (std::getline(lines, line)) {
    const nlohmann::json e = nlohmann::json::parse(line)["explain"];
    EXPECT_GE(e["onnx_nodes"].size(), 2u);
    EXPECT_EQ(e["gone"], false);
    EXPECT_NE(e["passes"].get<std::string>().find("fuse-gelu"), std::string::npos);
    ++found;
  }
  EXPECT_EQ(found, 4);
}

}  // namespace
}  // namespace gradloom
