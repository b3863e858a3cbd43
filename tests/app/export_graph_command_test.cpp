// plan --export-graph: what it writes is a model that the program itself trains, with the same losses.
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ExportGraph : public Commands {
 protected:
  static std::vector<std::string> job(const std::string& file, const std::string& loss) {
    return {file,
            "--dim",
            "batch=4",
            "--loss",
            loss,
            "--data",
            "npz:" + model("gpt-char/batches.npz"),
            "--optimizer",
            "sgd{lr=0.1}"};
  }
  static std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  std::vector<double> losses(std::vector<std::string> args) const {
    args.insert(args.begin(), "train");
    const Outcome ran = run(with(std::move(args), {"--steps", "3", "--json"}));
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::vector<double> all;
    for (const json& line : ran.lines())
      if (line.contains("loss") && line.contains("step")) all.push_back(line["loss"]);
    return all;
  }
  Outcome plan(const std::vector<std::string>& more) const {
    std::vector<std::string> args = job(model("gpt-char/model.onnx"), "ce:logits,labels");
    args.insert(args.begin(), "plan");
    return run(with(std::move(args), more));
  }
};

TEST_F(ExportGraph, TheForwardPartTrainsAsTheModelDoes) {
  const std::string file = path("forward.onnx");
  const Outcome made = plan({"--export-graph", file, "--part", "forward", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const json told = made.lines().at(0);
  EXPECT_EQ(told["part"], "forward");
  EXPECT_GT(told["functions"], 0);
  EXPECT_TRUE(told["without_form"].empty()) << told.dump();
  const std::vector<double> want = losses(job(model("gpt-char/model.onnx"), "ce:logits,labels"));
  std::vector<std::string> again = {file, "--data", "npz:" + model("gpt-char/batches.npz"), "--optimizer",
                                    "sgd{lr=0.1}"};
  const std::vector<double> got = losses(again);
  ASSERT_EQ(want.size(), 3u);
  ASSERT_EQ(got.size(), 3u);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]);
}

TEST_F(ExportGraph, StepAndGradientsAreOtherParts) {
  const Outcome step = plan({"--export-graph", path("step.onnx"), "--json"}),
                gradients = plan({"--export-graph", path("gradients.onnx"), "--part", "gradients", "--json"});
  ASSERT_EQ(step.code, 0) << step.err;
  ASSERT_EQ(gradients.code, 0) << gradients.err;
  EXPECT_EQ(step.lines().at(0)["part"], "step");
  const Outcome shown = run({"inspect", path("gradients.onnx"), "--json"});
  EXPECT_EQ(shown.code, 0) << shown.err;
}

TEST_F(ExportGraph, BadPartsAndPlacesAreErrors) {
  const Outcome part = plan({"--export-graph", path("a.onnx"), "--part", "half"});
  EXPECT_EQ(part.code, 2);
  EXPECT_NE(part.err.find("'half'"), std::string::npos) << part.err;
  EXPECT_FALSE(fs::exists(path("a.onnx")));
  EXPECT_EQ(plan({"--export-graph", path("nowhere/a.onnx")}).code, 5);
}

}  // namespace
}  // namespace gradloom
