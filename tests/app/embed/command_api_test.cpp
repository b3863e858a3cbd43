// gradloom_command: what a command prints, line by line.
#include "app/embed/gradloom.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

using Words = std::vector<std::string>;

class CommandApi : public Commands {
 protected:
  struct Heard {
    std::vector<std::pair<int, std::string>> lines;
    std::int32_t* stop = nullptr;  // set with the first line
  };
  static void on_log(void* user, int level, const char* line) {
    Heard& heard = *static_cast<Heard*>(user);
    heard.lines.emplace_back(level, line);
    if (heard.stop != nullptr) *heard.stop = 1;
  }
  static int command(const Words& words, Heard* heard, bool json, const std::int32_t* stop = nullptr) {
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    const gradloom_callbacks callbacks{sizeof callbacks, heard, on_log, json ? 1 : 0, nullptr};
    return gradloom_command(static_cast<int>(words.size()), pointers.data(),
                            heard == nullptr ? nullptr : &callbacks, stop);
  }
  Words mlp(const std::string& name, const Words& more = {}) const {
    Words words{name, model("mlp") + "/model.onnx", "--dim", "batch=8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(CommandApi, SaysWhatTheCommandPrints) {
  for (const bool as_json : {false, true}) {
    Heard heard;
    ASSERT_EQ(command(mlp("plan"), &heard, as_json), GRADLOOM_OK) << gradloom_last_error();
    Words printed = mlp("plan");
    if (as_json) printed.push_back("--json");
    const Outcome o = run(printed);
    std::string said;
    for (const auto& [level, line] : heard.lines) {
      if (level == GRADLOOM_LOG_NOTE) continue;
      EXPECT_EQ(level, as_json ? GRADLOOM_LOG_JSON : GRADLOOM_LOG_TEXT);
      said += line + "\n";
    }
    const auto without_times = [](std::string text) {  // of compiling
      for (std::size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string::npos;)
        text.erase(at, text.find_first_not_of("0123456789.e-", at) - at);
      return text;
    };
    EXPECT_EQ(without_times(said), without_times(o.out));
  }
  Heard flag;  // --json among the words
  Words words = mlp("inspect");
  words.push_back("--json");
  ASSERT_EQ(command(words, &flag, false), GRADLOOM_OK);
  EXPECT_EQ(json::parse(flag.lines.back().second)["parameters"], 13098);
  EXPECT_EQ(command(mlp("plan"), nullptr, false), GRADLOOM_OK);  // nobody listens
}

TEST_F(CommandApi, ADocumentComesInLines) {
  Heard heard;
  ASSERT_EQ(command({"recipe", "--markdown"}, &heard, false), GRADLOOM_OK) << gradloom_last_error();
  std::string said;
  for (const auto& [level, line] : heard.lines) said += line + "\n";
  EXPECT_EQ(said, run({"recipe", "--markdown"}).out);
}

TEST_F(CommandApi, ErrorsAreTheCommands) {
  EXPECT_EQ(command({"plan", path("none.onnx")}, nullptr, false), GRADLOOM_IO);
  EXPECT_NE(std::string(gradloom_last_error()).find("none.onnx"), std::string::npos);
  EXPECT_EQ(command({"plan", model("mlp") + "/model.onnx"}, nullptr, false), GRADLOOM_USAGE);
  EXPECT_NE(std::string(gradloom_last_error()).find("--dim batch=N"), std::string::npos)
      << gradloom_last_error();
  EXPECT_EQ(command({"plan", "--no-such"}, nullptr, false), GRADLOOM_USAGE);
  EXPECT_EQ(command({"trian"}, nullptr, false), GRADLOOM_USAGE);
  EXPECT_EQ(command({"open"}, nullptr, false), GRADLOOM_USAGE);
  EXPECT_EQ(command({}, nullptr, false), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_command(1, nullptr, nullptr, nullptr), GRADLOOM_USAGE);
}

TEST_F(CommandApi, AnotherThreadEndsIt) {
  std::int32_t stop = 0;
  Heard heard;
  heard.stop = &stop;
  const Words words = mlp("tune", {"--seconds", "600", "--session", path("t.db")});
  const int code = command(words, &heard, true, &stop);
  EXPECT_TRUE(code == GRADLOOM_OK || code == GRADLOOM_INTERRUPTED) << code << gradloom_last_error();
  EXPECT_FALSE(heard.lines.empty());
}

}  // namespace
}  // namespace gradloom
