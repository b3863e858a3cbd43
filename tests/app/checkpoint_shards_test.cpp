#include "app/checkpoint_shards.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "app/checkpoint_folder.h"
#include "tests/app/checkpoint_support.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// Of two ranks: w.exp_avg is cut, w.exp_avg_sq is rank 1's alone, e is on both and rank 0's to write.
class Shards : public testing::Test {
 protected:
  void SetUp() override { write(folder_.path(), 7); }

  static void write(const std::string& folder, std::int64_t step) {
    const auto part = [](Shape shape, std::vector<double> numbers, Shape whole, std::int64_t begin) {
      return StatePart{Tensor::from_f64(DType::f32, std::move(shape), numbers), std::move(whole), begin};
    };
    const auto number = static_cast<double>(step);
    const StateParts first{{"w.exp_avg", part({4}, {1, 2, 3, 4}, {2, 3}, 0)},
                           {"e", part({1}, {number}, {1}, 0)}},
        second{{"w.exp_avg", part({2}, {5, number}, {2, 3}, 4)}, {"w.exp_avg_sq", part({2}, {7, 8}, {2}, 0)}};
    std::vector<WrittenFile> rows;
    for (int rank = 0; rank < 2; ++rank) {
      const auto row = write_shard(folder, rank, 2, rank == 0 ? first : second, {{"step", "7"}});
      ASSERT_TRUE(row.ok()) << row.error().message;
      rows.push_back(*row);
    }
    Checkpoint c = small_checkpoint(step);
    const Status written = write_checkpoint(folder, c, rows);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  // Of all that is in the folder.
  static Status read_all(const std::string& folder) {
    const auto read = read_checkpoint(folder);
    if (!read) return read.error();
    return read->shards->check_all();
  }
  std::string shard(int rank) const { return folder_ / shard_name(rank, 2); }
  TemporaryFolder folder_;
};

TEST_F(Shards, AreReadAsOneFile) {
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_NE(read->shards, nullptr);
  EXPECT_TRUE(read->shards->check_all().ok());
  const auto& tensors = read->optimizer.tensors;
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors.at("w.exp_avg").type(), (Type{DType::f32, {2, 3}}));
  EXPECT_EQ(tensors.at("w.exp_avg").loaded()->to_f64(), (std::vector<double>{1, 2, 3, 4, 5, 7}));
  EXPECT_EQ(tensors.at("w.exp_avg_sq").loaded()->to_f64(), (std::vector<double>{7, 8}));
  EXPECT_EQ(read->optimizer.metadata, (std::map<std::string, std::string>{{"step", "7"}}));
  EXPECT_FALSE(tensors.at("w.exp_avg").in_memory());
  float across[3] = {};
  ASSERT_TRUE(tensors.at("w.exp_avg").read(8, across, sizeof across).ok());
  EXPECT_EQ(across[0], 3);
  EXPECT_EQ(across[1], 4);
  EXPECT_EQ(across[2], 5);
}

TEST_F(Shards, BecomeACheckpointOfOneRank) {
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok());
  const TemporaryFolder other;
  ASSERT_TRUE(join_checkpoint(*read, other / "j").ok());
  const auto joined = read_checkpoint(other / "j");
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(joined->shards, nullptr);
  EXPECT_EQ(joined->step, read->step);
  for (const auto& [name, tensor] : read->optimizer.tensors)
    EXPECT_TRUE(bit_equal(*tensor.loaded(), *joined->optimizer.tensors.at(name).loaded())) << name;
  EXPECT_EQ(join_checkpoint(*read, other / "j").error().code, Errc::usage) << "it is there";
  EXPECT_EQ(std::distance(fs::directory_iterator(other.path()), fs::directory_iterator()), 1);
}

// A rank checks the shards in which its elements lie, no other.
TEST_F(Shards, AreCheckedWhereTheyAreNeeded) {
  std::string bytes = bytes_of(shard(1));
  bytes.back() ^= 1;
  write_bytes(shard(1), bytes);
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->shards->check("w.exp_avg", 0, 4).ok());
  EXPECT_TRUE(read->shards->check("e", 0, 1).ok());
  for (const Status& status :
       {read->shards->check("w.exp_avg", 3, 2), read->shards->check("w.exp_avg_sq", 0, 1)}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, shard(1) + ": is damaged: its checksum is wrong");
  }
}

TEST_F(Shards, NoChangedBitAndNoCutIsSilent) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 400; ++i) {
    const std::string path = shard(i % 2), whole = bytes_of(path);
    std::string damaged = whole;
    if (i % 4 < 2)
      damaged[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    else
      damaged.resize(random() % whole.size());
    write_bytes(path, damaged);
    const Status read = read_all(folder_.path());
    EXPECT_FALSE(read.ok()) << path << ", change " << i;
    if (!read.ok()) {
      EXPECT_EQ(read.error().code, Errc::bad_input);
      EXPECT_NE(read.error().message.find(path + ": "), std::string::npos) << read.error().message;
    }
    write_bytes(path, whole);
  }
  EXPECT_TRUE(read_all(folder_.path()).ok());
}

TEST_F(Shards, OfOthersAreNamed) {
  const auto expect_refused = [&](int rank, const std::string& text) {
    const Status read = read_all(folder_.path());
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, Errc::bad_input);
    EXPECT_EQ(read.error().message.rfind(shard(rank) + ": " + text, 0), 0u) << read.error().message;
  };
  const std::string first = bytes_of(shard(0)), second = bytes_of(shard(1));
  const TemporaryFolder other;
  write(other.path(), 8);
  fs::copy_file(other / shard_name(1, 2), shard(1), fs::copy_options::overwrite_existing);
  expect_refused(1, "is damaged: its checksum is wrong");
  fs::remove(shard(1));
  expect_refused(1, "is missing");
  write_bytes(shard(0), second);
  write_bytes(shard(1), first);
  expect_refused(0, "is damaged: ");
}

// Parts that somebody wrote with right checksums do not have to fit together.
TEST_F(Shards, ThatDoNotFitTogetherAreRefused) {
  const auto expect_refused = [&](StatePart one, StatePart two, const std::string& text) {
    const TemporaryFolder folder;
    std::vector<WrittenFile> rows;
    for (int rank = 0; rank < 2; ++rank)
      rows.push_back(*write_shard(folder.path(), rank, 2, {{"w", rank == 0 ? one : two}}, {}));
    const auto read = ShardedStates::open(folder.path(), rows);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, Errc::bad_input);
    EXPECT_NE(read.error().message.find(text), std::string::npos) << read.error().message;
  };
  const auto f32 = [](std::int64_t count) { return Tensor(DType::f32, {count}); };
  expect_refused({f32(2), {6}, 0}, {f32(3), {6}, 2}, "is not whole");
  expect_refused({f32(2), {6}, 0}, {f32(3), {6}, 3}, "does not fit");
  expect_refused({f32(4), {6}, 0}, {f32(3), {6}, 3}, "does not fit");
  expect_refused({f32(2), {6}, 0}, {f32(4), {3, 2}, 2}, "does not fit");
  expect_refused({f32(2), {6}, 0}, {Tensor(DType::f16, {4}), {6}, 2}, "does not fit");
  expect_refused({f32(2), {6}, 0}, {f32(3), {6}, 4}, "are none of [6]");
  expect_refused({f32(6), {6}, 0}, {f32(6), {6}, 0}, "does not fit");
}

}  // namespace
}  // namespace gradloom
