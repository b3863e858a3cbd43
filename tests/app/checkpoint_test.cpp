#include "app/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "engine/base/hash.h"
#include "tests/app/checkpoint_support.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    const Status written = write_checkpoint(folder_.path(), small_checkpoint(7));
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  void expect_refused(const std::string& text) const {
    const auto read = read_checkpoint(folder_.path());
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, Errc::bad_input) << read.error().message;
    EXPECT_NE(read.error().message.find(text), std::string::npos) << read.error().message;
  }
  // A state of our own making, with a checksum that is right.
  void write_state(std::string text) const {
    const std::size_t tail = text.rfind(",\n  \"checksum\"");
    text.resize(tail);
    write_bytes(folder_ / "state.json", text + ",\n  \"checksum\": \"" + hash_hex(text) + "\"\n}\n");
  }
  std::string state() const { return bytes_of(folder_ / "state.json"); }
  std::string replaced(const std::string& from, const std::string& to) const {
    std::string text = state();
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  TemporaryFolder folder_;
};

constexpr const char* kFiles[] = {"state.json", "model.safetensors", "optimizer.safetensors", "recipe.json"};

TEST_F(Checkpoints, WhatIsWrittenReadsBack) {
  const Checkpoint expected = small_checkpoint(7);
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->path, folder_.path());
  EXPECT_EQ(read->step, 7);
  EXPECT_EQ(read->next_batch, 14);
  EXPECT_EQ(read->seed, ~std::uint64_t{0});
  EXPECT_EQ(read->made_steps, 6);
  EXPECT_EQ(read->loss_scale, expected.loss_scale);
  EXPECT_EQ(read->early_stop, expected.early_stop);
  EXPECT_EQ(read->recipe, expected.recipe);
  EXPECT_TRUE(bit_equal(read->model.tensors.at("w"), expected.model.tensors.at("w")));
  EXPECT_TRUE(bit_equal(read->optimizer.tensors.at("w.exp_avg"), expected.optimizer.tensors.at("w.exp_avg")));
  EXPECT_EQ(read->model.metadata, expected.model.metadata);
}

TEST_F(Checkpoints, WhatWasReadOutlivesItsFiles) {
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok());
  for (const char* name : kFiles) std::filesystem::remove(folder_ / name);
  EXPECT_TRUE(bit_equal(*read->model.tensors.at("w").loaded(), small_checkpoint(7).model.tensors.at("w")));
}

TEST_F(Checkpoints, NoChangedBitIsSilent) {
  std::mt19937_64 random(20261124);
  const char* const wanted = getenv("GRADLOOM_TEST_FLIPS");
  const int flips = wanted != nullptr ? atoi(wanted) : 400;
  for (int i = 0; i < flips; ++i) {
    const std::string path = folder_ / kFiles[random() % 4], whole = bytes_of(path);
    std::string damaged = whole;
    damaged[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    write_bytes(path, damaged);
    const auto read = read_checkpoint(folder_.path());
    EXPECT_FALSE(read.ok()) << path << ", flip " << i;
    if (!read.ok()) {
      EXPECT_EQ(read.error().code, Errc::bad_input) << read.error().message;
    }
    write_bytes(path, whole);
  }
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
}

TEST_F(Checkpoints, NoCutIsSilent) {
  for (const char* name : kFiles) {
    const std::string path = folder_ / name, whole = bytes_of(path);
    for (std::size_t n = 0; n < whole.size(); n += 13) {
      write_bytes(path, whole.substr(0, n));
      EXPECT_FALSE(read_checkpoint(folder_.path()).ok()) << name << " cut at " << n;
    }
    write_bytes(path, whole + "\n");
    EXPECT_FALSE(read_checkpoint(folder_.path()).ok()) << name << " with a byte more";
    write_bytes(path, whole);
  }
}

TEST_F(Checkpoints, FilesThatAreMissingOrOfAnotherCheckpointAreNamed) {
  const std::string model = folder_ / "model.safetensors", whole = bytes_of(model);
  std::filesystem::remove(model);
  expect_refused("model.safetensors: is missing");
  const TemporaryFolder other;
  ASSERT_TRUE(write_checkpoint(other.path(), small_checkpoint(8)).ok());
  std::filesystem::copy_file(other / "model.safetensors", model);
  expect_refused("model.safetensors: is damaged: its checksum is wrong");
  write_bytes(model, whole);
  std::filesystem::remove(folder_ / "state.json");
  expect_refused("state.json is missing");
  std::filesystem::create_directory(folder_ / "state.json");
  EXPECT_FALSE(read_checkpoint(folder_.path()).ok());
}

TEST_F(Checkpoints, StatesOfOthersAreRefused) {
  for (const char* text : {"", "{}", "[]", "not JSON", "{\"step\": 3}", "\xff\xfe"}) {
    write_bytes(folder_ / "state.json", text);
    expect_refused("state.json: is not of a checkpoint, or damaged");
  }
  write_bytes(folder_ / "state.json", std::string(100'000, '['));
  expect_refused("state.json: is not of a checkpoint");
  write_bytes(folder_ / "state.json", std::string(2 << 20, ' '));
  EXPECT_EQ(read_checkpoint(folder_.path()).error().code, Errc::limit);
}

// Whoever writes a right checksum may still say nonsense.
TEST_F(Checkpoints, StatesThatSayNonsenseAreRefused) {
  const std::string whole = state();
  const auto changed = [&](const std::string& from, const std::string& to, const std::string& text) {
    write_bytes(folder_ / "state.json", whole);
    write_state(replaced(from, to));
    expect_refused(text);
  };
  write_state(whole);
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
  changed("\"gradloom_checkpoint\": 1", "\"gradloom_checkpoint\": 3", "written by a newer Gradloom");
  changed("\"step\": 7", "\"step\": -7", "\"step\" is of another kind");
  changed("\"step\": 7", "\"step\": 7.5", "\"step\" is of another kind");
  changed("\"step\": 7", "\"step\": 18446744073709551615", "\"step\" does not fit in 63 bits");
  changed("\"step\": 7", "\"stop\": 7", "lacks \"step\"");
  changed("\"next_batch\": 14", "\"next_batch\": \"14\"", "\"next_batch\" is of another kind");
  changed("\"scale\": 0.1", "\"scale\": null", "\"scale\" is of another kind");
  changed("\"model.safetensors\": {", "\"../model.safetensors\": {", "lacks \"model.safetensors\"");
}

}  // namespace
}  // namespace gradloom
