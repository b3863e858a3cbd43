// The examples that end each command's help are true: a shell runs them all, one after the other, in one folder.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/command.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class Examples : public Commands {
 protected:
  // In the folder, with the program on the path and no display.
  Outcome shell(const std::string& line) const {
    const std::string program = fs::path(GRADLOOM_COMMAND).parent_path().string();
    const std::string whole =
        "cd " + path("work") + " && unset DISPLAY WAYLAND_DISPLAY && export XDG_DATA_HOME=" + path("data") +
        " && PATH=" + program + ":$PATH && " + line + " > " + path("stdout") + " 2> " + path("stderr");
    const int status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout")),
            read_file(path("stderr"))};
  }
  // The files that the examples name, and what does not come from other examples.
  void SetUp() override {
    fs::create_directory(path("work"));
    fs::copy_file(model("mlp/model.onnx"), path("work/model.onnx"));
    fs::copy(model("mlp"), path("work/folder"), fs::copy_options::recursive);
    std::ofstream(path("work/kineto.json"))
        << R"([{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":9},)"
           R"({"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5}])";
  }
};

TEST_F(Examples, EveryCommandHasSomeAndTheyEndItsHelp) {
  for (const CommandDef& def : all_commands()) {
    ASSERT_NE(def.examples[0], nullptr) << def.name;
    const std::string help = run({def.name, "--help"}).out, text = examples_text(def);
    ASSERT_GE(help.size(), text.size());
    EXPECT_NE(help.find(text), std::string::npos) << help;
    EXPECT_LE(help.size() - help.find(text) - text.size(), 2u) << "nothing but the last line's end follows";
    for (const char* example : def.examples)
      EXPECT_TRUE(example == nullptr || std::string(example).starts_with("gradloom " + std::string(def.name)))
          << def.name << ": " << example;
  }
}

TEST_F(Examples, AShellRunsThem) {
  std::vector<const CommandDef*> order;
  for (const CommandDef& def : all_commands()) order.push_back(&def);
  // The session that others read.
  std::stable_partition(order.begin(), order.end(),
                        [](const CommandDef* def) { return def->name == std::string("train"); });
  for (const CommandDef* def : order)
    for (const char* example : def->examples) {
      if (example == nullptr) continue;
      std::string line = example;
      if (def->name == std::string("open") && line.find("--headless") == std::string::npos)
        line += " --headless";
      const Outcome o = shell(line);
      EXPECT_EQ(o.code, 0) << line << "\n" << o.err;
    }
  for (const char* made : {"s.db", "base.json", "fast.json", "trace.pftrace", "trace.sqlite", "graph.svg",
                           "report.html", "graph.png"})
    EXPECT_TRUE(fs::exists(path("work/") + made)) << made;
}

}  // namespace
}  // namespace gradloom
