// Modules of traces under the names of a model.
#include "app/match_modules.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

ImportedTrace trace_of(const std::vector<std::string>& scopes) {
  ImportedTrace trace;
  for (const std::string& scope : scopes) {
    ImportedKernel kernel;
    kernel.info.scope = scope;
    kernel.info.node = (scope.empty() ? "" : scope + "/") + "aten::mm";
    kernel.info.phase = "forward";
    trace.kernels.push_back(kernel);
    trace.operators.push_back({kernel.info.node, "aten::mm", "", scope});
  }
  return trace;
}

std::vector<std::string> scopes_of(const ImportedTrace& trace) {
  std::vector<std::string> scopes;
  for (const ImportedKernel& kernel : trace.kernels) scopes.push_back(kernel.info.scope);
  return scopes;
}

using Scopes = std::vector<std::string>;

const Scopes kModel{"blocks.0/norm", "blocks.0/up", "blocks.1/norm",
                    "blocks.1/up",   "head/head.0", "head/head.2"};

TEST(MatchModules, TheSameAttributesAreTheSameModules) {
  ImportedTrace trace = trace_of({"blocks.0.up", "blocks.0", "head.2", "", "elsewhere", "blocks.1/up"});
  const ModuleMatch match = match_modules(trace, kModel);
  EXPECT_EQ(match.all, 5);
  EXPECT_EQ(match.matched, 4);
  EXPECT_EQ(match.others, Scopes{"elsewhere"});
  EXPECT_EQ(scopes_of(trace),
            (Scopes{"blocks.0/up", "blocks.0", "head/head.2", "", "elsewhere", "blocks.1/up"}));
  EXPECT_EQ(trace.kernels[0].info.node, "blocks.0/up/aten::mm");
  EXPECT_EQ(trace.operators[2].name, "head/head.2/aten::mm");
  EXPECT_EQ(trace.kernels[3].info.node, "aten::mm");
}

TEST(MatchModules, OneModuleAroundAllMayBeMissing) {
  ImportedTrace wrapped = trace_of({"module.blocks.0.up", "module.blocks.1.norm", "module"});
  EXPECT_EQ(match_modules(wrapped, kModel).matched, 2);
  EXPECT_EQ(scopes_of(wrapped), (Scopes{"blocks.0/up", "blocks.1/norm", "module"}));
  ImportedTrace bare = trace_of({"up", "norm"});
  EXPECT_EQ(match_modules(bare, {"model/up", "model/norm"}).matched, 2);
  EXPECT_EQ(scopes_of(bare), (Scopes{"model/up", "model/norm"}));
}

TEST(MatchModules, ClassesAreMatchedByPlace) {
  ImportedTrace trace =
      trace_of({"Net_0/Block_0/LayerNorm_0", "Net_0/Block_0/Linear_0", "Net_0/Block_1/LayerNorm_1",
                "Net_0/Block_1/Linear_1", "Net_0/Sequential_0/Linear_2", "Net_0/Sequential_0/Linear_3"});
  const ModuleMatch match = match_modules(trace, kModel);
  EXPECT_EQ(match.matched, 6);
  EXPECT_EQ(scopes_of(trace), kModel);
}

TEST(MatchModules, WhereNumbersDifferNothingIsGuessed) {
  ImportedTrace trace = trace_of({"Net_0/Block_0/Linear_0", "Net_0/Linear_1"});
  EXPECT_EQ(match_modules(trace, kModel).matched, 0);
  EXPECT_EQ(scopes_of(trace), (Scopes{"Net_0/Block_0/Linear_0", "Net_0/Linear_1"}));
  ImportedTrace none = trace_of({"", ""});
  EXPECT_EQ(match_modules(none, kModel).all, 0);
}

}  // namespace
}  // namespace gradloom
