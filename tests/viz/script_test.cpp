#include "viz/draw/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

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
drag graph 1 2 ctrl
click a middle alt
key f 2 f
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
  ASSERT_EQ(script->size(), 21u);
  EXPECT_EQ((*script)[1].args[0], "node layers.0/attn");
  EXPECT_EQ((*script)[4].x, 10);
  EXPECT_EQ((*script)[4].y, -20);
  EXPECT_EQ((*script)[5].args.back(), "ctrl");
  EXPECT_EQ((*script)[7].args.size(), 3u);
  EXPECT_EQ((*script)[8].x, -3);
  EXPECT_EQ((*script)[9].args[0], " two words \"and quotes\"");
  EXPECT_EQ((*script)[12].verb, ScriptVerb::kWaitUntil);
  EXPECT_EQ((*script)[12].args[1], "3.2 MiB");
  EXPECT_EQ((*script)[13].verb, ScriptVerb::kWaitIdle);
  EXPECT_EQ((*script)[13].x, 20);
  EXPECT_EQ((*script)[14].line, 16);
  EXPECT_EQ((*script)[17].y, 900);
}

TEST(Script, ErrorsNameTheLine) {
  for (const char* line : {"jump a",
                           "click",
                           "click a b",
                           "drag a 1",
                           "drag a x y",
                           "random x 5",
                           "random 1",
                           "random 1 0",
                           "move 4",
                           "drag a 1 2 up",
                           "key ctrl+banana",
                           "key f banana",
                           "click a middel",
                           "drag a 1 2 ctrl hyper",
                           "wait",
                           "wait soon",
                           "wait until",
                           "wait idle x",
                           "theme blue",
                           "scale 9",
                           "scale x",
                           "size 10 10",
                           "click \"open",
                           "expect"}) {
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

// What is not on the sheet is said by another row of the same action, or of its numbered family.
TEST(Keys, EveryBindingIsOnTheSheet) {
  const auto family = [](std::string_view action) {
    return std::isdigit(static_cast<unsigned char>(action.back())) ? action.substr(0, action.rfind('.'))
                                                                   : action;
  };
  for (const KeyBinding& hidden : key_map()) {
    if (hidden.help != nullptr) continue;
    const auto said = std::any_of(key_map().begin(), key_map().end(), [&](const KeyBinding& b) {
      return b.help != nullptr && b.gesture != nullptr && family(b.action) == family(hidden.action);
    });
    EXPECT_TRUE(said) << hidden.action << " " << hidden.chord;
  }
}

TEST(Keys, MapIsConsistent) {
  for (const KeyBinding& a : key_map()) {
    const std::string chord = a.chord;
    if (chord.empty()) {
      EXPECT_NE(a.gesture, nullptr) << a.action;
      continue;
    }
    EXPECT_TRUE(parse_chord(chord).has_value()) << chord;
    const auto meet = [&](const KeyBinding& b) {  // both would hear the chord
      const std::string_view here = a.where, there = b.where;
      const auto global = [](std::string_view where) { return where == "Everywhere" || where == "Runs"; };
      return here == there || global(here) || global(there);
    };
    for (const KeyBinding& b : key_map()) {
      if (&a != &b && meet(b)) {
        EXPECT_NE(parse_chord(chord), parse_chord(b.chord)) << a.action << " and " << b.action;
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
