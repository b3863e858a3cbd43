// Tokens of several bytes, epochs of windows, and what is wrong with files of them.
#include <algorithm>
#include <set>

#include "sessions/data.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using TokensTest = SessionTest;

const std::vector<InputSpec> kInputs = {{"tokens", {DType::i64, {2, 3}}, 100'000, false},
                                        {"labels", {DType::i64, {2, 3}}, 100'000, true}};

std::string little(const std::vector<std::uint32_t>& tokens, int bytes) {
  std::string text;
  for (const std::uint32_t token : tokens)
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(token >> (8 * i));
  return text;
}

TEST_F(TokensTest, WidthsOfTwoAndFourBytes) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 14; ++i) tokens.push_back(1000 + i);
  for (const int bytes : {2, 4}) {
    write_all(file("t.bin"), little(tokens, bytes));
    const std::string spec = "tokens{bytes=" + std::to_string(bytes) + "}:" + file("t.bin");
    const auto source = make_batches(spec, kInputs, 0, {.epochs = true});
    ASSERT_TRUE(source.ok()) << error_of(source);
    EXPECT_EQ((*source)->count(), 2);
    EXPECT_EQ((*source)->tokens(), 6);
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t first = 1000 + i % 2 * 6;
      const auto batch = *(*source)->batch(i);
      EXPECT_EQ(batch.at("tokens").to_i64(),
                (std::vector<std::int64_t>{first, first + 1, first + 2, first + 3, first + 4, first + 5}));
      EXPECT_EQ(batch.at("labels").to_i64(), (std::vector<std::int64_t>{first + 1, first + 2, first + 3,
                                                                        first + 4, first + 5, first + 6}));
    }
    const auto random = make_batches(spec, kInputs, 0);
    ASSERT_TRUE(random.ok());
    EXPECT_EQ((*random)->count(), 0);
    const auto batch = *(*random)->batch(3);
    for (std::int64_t j = 0; j < 6; ++j)
      EXPECT_EQ(batch.at("labels").int_at(j), batch.at("tokens").int_at(j) + 1);
  }
}

TEST_F(TokensTest, AShuffledEpochHasEveryWindowOnce) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 3 * 40 + 1; ++i) tokens.push_back(i);
  write_all(file("t.bin"), little(tokens, 2));
  const auto source = make_batches("tokens{bytes=2}:" + file("t.bin"), kInputs, 9, {.shuffle = true}),
             again = make_batches("tokens{bytes=2}:" + file("t.bin"), kInputs, 9, {.shuffle = true});
  ASSERT_TRUE(source.ok()) << error_of(source);
  EXPECT_EQ((*source)->count(), 20);
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t i = 0; i < 40; ++i) {
    const auto batch = *(*source)->batch(i);
    for (const std::int64_t row : {0, 3})
      epochs[static_cast<std::size_t>(i / 20)].push_back(batch.at("tokens").int_at(row));
    if (i == 33) {
      EXPECT_TRUE(bit_equal((*again)->batch(i)->at("tokens"), batch.at("tokens")));
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& starts : epochs) {
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 0; i < starts.size(); ++i) EXPECT_EQ(starts[i], static_cast<std::int64_t>(3 * i));
  }
}

TEST_F(TokensTest, WhatAShuffledEpochLeavesOutComesInAnother) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 3 * 3 + 1; ++i) tokens.push_back(i);
  write_all(file("t.bin"), little(tokens, 2));
  const auto source = make_batches("tokens{bytes=2}:" + file("t.bin"), kInputs, 9, {.shuffle = true});
  ASSERT_TRUE(source.ok()) << error_of(source);
  EXPECT_EQ((*source)->count(), 1) << "of two windows: the third is left over";
  std::set<std::int64_t> starts;
  for (std::int64_t i = 0; i < 40; ++i)
    for (const std::int64_t row : {0, 3}) starts.insert((*source)->batch(i)->at("tokens").int_at(row));
  EXPECT_EQ(starts, (std::set<std::int64_t>{0, 3, 6}));
}

TEST_F(TokensTest, Errors) {
  const auto message = [&](const std::string& contents, const std::string& kind, std::int64_t limit,
                           DataOrder order = {}) {
    write_all(file("t.bin"), contents);
    std::vector<InputSpec> inputs = kInputs;
    inputs[0].limit = inputs[1].limit = limit;
    const auto source = make_batches(kind + file("t.bin"), inputs, 0, order);
    EXPECT_FALSE(source.ok());
    return error_of(source);
  };
  EXPECT_NE(
      message("12345", "tokens{bytes=2}:", 100).find("5 bytes are no whole number of tokens of 2 bytes"),
      std::string::npos);
  EXPECT_NE(message(little({1, 2, 3}, 2), "tokens{bytes=2}:", 100)
                .find("3 tokens, but a window and its labels need 4"),
            std::string::npos);
  EXPECT_NE(message(little({1, 2, 3, 4}, 2), "tokens{bytes=2}:", 100, {.epochs = true})
                .find("4 tokens, but a batch and its labels need 7"),
            std::string::npos);
  EXPECT_NE(message(little({1, 2, 300, 4, 5}, 4), "tokens{bytes=4}:", 300)
                .find("token 300 at 2 is not below 300, the limit of input tokens"),
            std::string::npos);
  EXPECT_NE(message("x", "tokens{bytes=3}:", 9).find("1, 2 or 4 bytes"), std::string::npos);
  EXPECT_NE(message("x", "tokens{bytes=8}:", 9).find("bytes"), std::string::npos);
  // A file that changes under a training is an error, not other data.
  write_all(file("t.bin"), little({1, 2, 3, 4, 5, 6, 7}, 2));
  const auto source = make_batches("tokens{bytes=2}:" + file("t.bin"), kInputs, 0);
  ASSERT_TRUE(source.ok());
  write_all(file("t.bin"), "short");
  EXPECT_FALSE((*source)->batch(0).ok());
}

}  // namespace
}  // namespace gradloom::test
