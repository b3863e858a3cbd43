// A run of another profiler in the window: its timeline comes to the front, and nothing is drawn that it does not have.
#include "app/import_trace.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopImport : public WindowScript {
 protected:
  void SetUp() override {
    std::ofstream(file("t.json"))
        << R"([{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":1,"tid":1,"ts":0,"dur":100},)"
           R"({"ph":"X","cat":"user_annotation","name":"blocks.0","pid":1,"tid":1,"ts":5,"dur":40},)"
           R"({"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":10,"dur":30},)"
           R"({"ph":"X","cat":"user_annotation","name":"Optimizer.step#SGD.step","pid":1,"tid":1,"ts":60,"dur":30},)"
           R"({"ph":"X","cat":"cpu_op","name":"aten::add_","pid":1,"tid":1,"ts":65,"dur":10}])";
    ImportRequest request;
    request.session = file("s.db");
    const auto run = import_trace(request, {file("t.json")});
    ASSERT_TRUE(run.ok()) << run.error().message;
  }
};

TEST_F(DesktopImport, ItsTimelineComesToTheFront) {
  EXPECT_EQ(open(file("s.db"),
                 "wait idle\n"
                 "expect loop.verdict \"the kernels' times add up to 40.0 %*\"\n"
                 "expect timeline.canvas 1\n"
                 "expect bar.blocks.0/aten::mm\n"
                 "expect bar.SGD.step\n"
                 "hover loop.optimizer\n"
                 "wait 2\n"
                 "click tab.Kernels\n"
                 "wait idle\n"
                 "click tab.Memory\n"
                 "wait idle\n"
                 "click tab.Graph\n"
                 "wait idle\n"),
            0)
      << error_;
}

}  // namespace
}  // namespace gradloom
