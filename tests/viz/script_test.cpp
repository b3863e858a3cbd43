#include "viz/draw/script.h"

#include <gtest/gtest.h>

#include "viz/draw/keys.h"

namespace gradloom {
namespace {

TEST(Script, ParsesEveryCommand) {
  const auto script = parse_script(R"(# a comment
click run.start
doubleclick "node layers.0/attn"   # trailing comment
rightclick a
hover a
drag graph 10 -20 right
wheel graph -3
type  two words "and quotes"
key ctrl+shift+p
wait 5
wait until plan.peak "3.2 MiB"
wait idle 20
expect pass.cse on
absent toast.0

screenshot out/a.png
size 1600 900
theme light
scale 1.5
drop model.onnx
)");
  ASSERT_TRUE(script.ok()) << script.error().message;
  ASSERT_EQ(script->size(), 18u);
  EXPECT_EQ((*script)[1].args[0], "node layers.0/attn");
  EXPECT_EQ((*script)[4].x, 10);
  EXPECT_EQ((*script)[4].y, -20);
  EXPECT_EQ((*script)[5].x, -3);
  EXPECT_EQ((*script)[6].args[0], " two words \"and quotes\"");
  EXPECT_EQ((*script)[9].verb, ScriptVerb::kWaitUntil);
  EXPECT_EQ((*script)[9].args[1], "3.2 MiB");
  EXPECT_EQ((*script)[10].verb, ScriptVerb::kWaitIdle);
  EXPECT_EQ((*script)[10].x, 20);
  EXPECT_EQ((*script)[11].line, 13);
  EXPECT_EQ((*script)[14].y, 900);
}

TEST(Script, ErrorsNameTheLine) {
  for (const char* line : {"jump a", "click", "click a b", "drag a 1", "drag a x y", "drag a 1 2 up",
                           "key ctrl+banana", "wait", "wait soon", "wait until", "wait idle x", "theme blue",
                           "scale 9", "scale x", "size 10 10", "click \"open", "expect"}) {
    const auto script = parse_script(std::string("wait 1\n\n") + line + "\n");
    ASSERT_FALSE(script.ok()) << line;
    EXPECT_EQ(script.error().code, Errc::usage);
    EXPECT_EQ(script.error().message.rfind("script line 3: ", 0), 0u) << script.error().message;
  }
}

TEST(Keys, Chords) {
  EXPECT_EQ(parse_chord("ctrl+shift+p"), (Chord{'P', true, true, false}));
  EXPECT_EQ(parse_chord("F"), (Chord{'F', false, false, false}));
  EXPECT_TRUE(parse_chord("f12").has_value());
  EXPECT_FALSE(parse_chord("f13").has_value());
  EXPECT_FALSE(parse_chord("hyper+a").has_value());
  EXPECT_FALSE(parse_chord("").has_value());
  EXPECT_EQ(parse_chord("?")->shift, true);
  EXPECT_EQ(chord_label("ctrl+shift+p"), "Ctrl+Shift+P");
}

TEST(Keys, MapIsConsistent) {
  for (const KeyBinding& a : key_map()) {
    const std::string chord = a.chord;
    if (chord.empty()) {
      EXPECT_NE(a.gesture, nullptr) << a.action;
      continue;
    }
    EXPECT_TRUE(parse_chord(chord).has_value()) << chord;
    for (const KeyBinding& b : key_map()) {
      if (&a != &b) {
        EXPECT_NE(parse_chord(chord), parse_chord(b.chord)) << a.action << " and " << b.action;
        EXPECT_STRNE(a.action, b.action);
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
