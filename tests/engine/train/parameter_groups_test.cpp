#include "engine/train/parameter_groups.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

std::string refusal(const std::string& text) {
  const auto group = parse_group(text);
  return group.ok() ? "" : group.error().message;
}

TEST(ParameterGroups, SayWhatTheirTextSays) {
  const auto group = parse_group("layers.*{lr=1e-4,weight_decay=0,freeze=off}");
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->glob, "layers.*");
  EXPECT_EQ(group->lr, 1e-4);
  EXPECT_FALSE(group->lr_factor.has_value());
  EXPECT_EQ(group->weight_decay, 0);
  EXPECT_EQ(group->freeze, false);
}

TEST(ParameterGroups, ErrorsNameTheGroup) {
  EXPECT_EQ(refusal("w"),
            "group 'w' has no option: GLOB{lr=N,lr_factor=N,weight_decay=N,number=N,freeze=on}");
  EXPECT_EQ(refusal("w{lr=1,lr_factor=2}"), "group 'w' has both lr and lr_factor");
  EXPECT_EQ(refusal("w{freeze=on,lr=1}"), "group 'w' is frozen: its other options would do nothing");
  EXPECT_EQ(refusal("w{freeze=yes}"), "group 'w': freeze expects on or off, got 'yes'");
  for (const char* value : {"-1", "nan", "inf", "x", ""})
    EXPECT_EQ(refusal(std::string("w{lr=") + value + "}"),
              std::string("group 'w': lr expects a number of at least 0, got '") + value + "'");
  EXPECT_EQ(refusal("w{momentum=1}"),
            "unknown option of group 'w' 'momentum' (known: lr, lr_factor, weight_decay, number, freeze)");
  for (const char* value : {"-1", "4096", "1.5", "x", ""})
    EXPECT_EQ(refusal(std::string("w{number=") + value + "}"),
              std::string("group 'w': number expects 0 to 4095, got '") + value + "'");
  EXPECT_EQ(refusal("w{number=1,lr=1}"),
            "group 'w' has a number: its rate is set by the program that trains");
  EXPECT_EQ(refusal("w{number=1,freeze=on}"), "group 'w' is frozen: its other options would do nothing");
  EXPECT_FALSE(refusal("{lr=1}").empty());
  EXPECT_FALSE(refusal("w{lr=1").empty());
}

TEST(ParameterGroups, OfEachOptionTheLastThatFitsHolds) {
  const std::vector<ParameterGroup> groups{
      *parse_group("*{lr=0.5,weight_decay=0.1}"), *parse_group("b*{freeze=on}"),
      *parse_group("*.bias{weight_decay=0,lr_factor=3}"), *parse_group("bb{freeze=off}")};
  const ParameterOptions weight = options_of(groups, "a.weight", 0.25),
                         bias = options_of(groups, "a.bias", 0.25);
  EXPECT_EQ(weight.lr_factor, 2);
  EXPECT_EQ(weight.weight_decay, 0.1);
  EXPECT_FALSE(weight.frozen);
  EXPECT_EQ(bias.lr_factor, 3);
  EXPECT_EQ(bias.weight_decay, 0);
  EXPECT_TRUE(options_of(groups, "b.bias", 0.25).frozen);
  EXPECT_FALSE(options_of(groups, "bb", 0.25).frozen);
  const ParameterOptions none = options_of({}, "a", 0);
  EXPECT_EQ(none.lr_factor, 1);
  EXPECT_FALSE(none.weight_decay.has_value() || none.frozen);
}

TEST(ParameterGroups, TheLastNumberThatFitsHolds) {
  const std::vector<ParameterGroup> groups{*parse_group("b{lr_factor=2}"), *parse_group("*{number=0}"),
                                           *parse_group("b*{number=4,weight_decay=0}")};
  EXPECT_EQ(group_numbers(groups), 5);
  EXPECT_EQ(group_numbers({}), 0);
  EXPECT_EQ(options_of(groups, "a", 0).number, 0);
  EXPECT_EQ(options_of(groups, "b", 0).number, 4);
  EXPECT_EQ(options_of(groups, "b", 0).lr_factor, 1);
  EXPECT_EQ(options_of(groups, "b", 0).weight_decay, 0);
}

TEST(ParameterGroups, ARateNeedsOneToBeAFactorOf) {
  const std::vector<ParameterGroup> rate{*parse_group("w{lr=1}")}, factor{*parse_group("w{lr_factor=2}")};
  EXPECT_TRUE(check_groups(rate, 0.1).ok());
  EXPECT_TRUE(check_groups(factor, 0).ok());
  const Status refused = check_groups(rate, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "group 'w' has an lr, which the optimizer's lr=0 cannot be scaled to");
}

}  // namespace
}  // namespace gradloom
