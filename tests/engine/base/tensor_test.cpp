#include "engine/base/tensor.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "engine/base/input_file.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

TEST(Tensor, IsZeroFilledAndAligned) {
  const Tensor t(DType::f32, {3, 5});
  EXPECT_EQ(t.count(), 15);
  EXPECT_EQ(t.bytes(), 60u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0u);
  for (std::int64_t i = 0; i < 15; ++i) EXPECT_EQ(t.at(i), 0.0);
}

TEST(Tensor, CopiesShareUntilWritten) {
  Tensor a = Tensor::from_i64({1, 2, 3});
  Tensor b = a;
  EXPECT_EQ(a.data(), b.data());
  b.mutable_as<std::int64_t>()[0] = 9;
  EXPECT_EQ(a.int_at(0), 1);
  EXPECT_EQ(b.int_at(0), 9);
}

TEST(Tensor, CastTruncatesAndClamps) {
  const Tensor t = Tensor::from_f64(DType::f64, {5}, {1.9, -1.9, std::nan(""), 1e30, -1e30});
  const Tensor i = t.cast(DType::i64);
  EXPECT_EQ(i.to_i64(), (std::vector<std::int64_t>{1, -1, 0, std::numeric_limits<std::int64_t>::max(),
                                                   std::numeric_limits<std::int64_t>::min()}));
  EXPECT_EQ(Tensor::from_i64({0, 5, -1}).cast(DType::boolean).to_i64(), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(Tensor::from_i64({(std::int64_t{1} << 53) + 1}).cast(DType::i64).int_at(0),
            (std::int64_t{1} << 53) + 1);
}

TEST(Tensor, Bf16RoundsToNearestEven) {
  const Tensor t = Tensor::from_f64(DType::bf16, {3}, {1.0, 1.00390625, 3.0e38});
  EXPECT_EQ(t.at(0), 1.0);
  EXPECT_EQ(t.at(1), 1.0);  // halfway between 1 and 1.0078125: even
  EXPECT_NEAR(t.at(2), 3.0e38, 2e36);
}

TEST(Tensor, SmallTypesTakeAByteAndRound) {
  const Tensor f8 = Tensor::from_f64(DType::f8e4m3fn, {4}, {1.0625, 1.1875, -1e9, std::nan("")});
  EXPECT_EQ(f8.bytes(), 4u);
  EXPECT_EQ(f8.at(0), 1);  // halfway between 1 and 1.125: even
  EXPECT_EQ(f8.at(1), 1.25);
  EXPECT_EQ(f8.at(2), -448);
  EXPECT_TRUE(std::isnan(f8.at(3)));
  EXPECT_EQ(f8.cast(DType::i32).to_i64(), (std::vector<std::int64_t>{1, 1, -448, 0}));
  const Tensor i4 = Tensor::from_f64(DType::i4, {4}, {-8, 7, -9, 2.9});
  EXPECT_EQ(i4.to_i64(), (std::vector<std::int64_t>{-8, 7, 7, 2}));
  EXPECT_EQ(i4.cast(DType::u4).to_i64(), (std::vector<std::int64_t>{8, 7, 7, 2}));
  EXPECT_EQ(i4.cast(DType::f8e5m2).to_f64(), (std::vector<double>{-8, 7, 7, 2}));
}

TEST(Tensor, ElementCountChecksOverflowAndSign) {
  EXPECT_EQ(*checked_element_count({2, 3}, 4), 6);
  EXPECT_EQ(checked_element_count({std::int64_t{1} << 40, std::int64_t{1} << 40}, 1).error().code,
            Errc::limit);
  EXPECT_EQ(checked_element_count({std::int64_t{1} << 61}, 8).error().code, Errc::limit);
  EXPECT_EQ(checked_element_count({2, -3}, 4).error().code, Errc::bad_input);
  EXPECT_EQ(*checked_element_count({0, std::int64_t{1} << 40}, 4), 0);
  // Strides are products of the dims after them, also beside a 0.
  for (const Shape& shape : {Shape{0, std::int64_t{1} << 40, std::int64_t{1} << 40},
                             Shape{std::int64_t{1} << 40, std::int64_t{1} << 40, 0}})
    EXPECT_EQ(checked_element_count(shape, 1).error().code, Errc::limit);
}

TEST(Tensor, NamesRoundTrip) {
  for (DType t : {DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::bf16, DType::f16,
                  DType::u8, DType::i4, DType::u4, DType::i2, DType::u2, DType::f8e4m3fn, DType::f8e4m3fnuz,
                  DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1, DType::f8e8m0})
    EXPECT_EQ(*dtype_from_name(dtype_name(t)), t);
  EXPECT_EQ(dtype_from_name("float99").error().code, Errc::usage);
  EXPECT_EQ(to_string(Type{DType::f32, {8, -1, 3}}), "f32[8, ?1, 3]");
}

// A file that begins with a byte that belongs to nothing, then 0, 1, 2, ... in f32.
struct NumbersInAFile {
  static constexpr std::int64_t kCount = 700'001, kOffset = 4;  // more than two pieces
  TemporaryFolder folder;
  std::string path = folder / "numbers";
  Tensor tensor;

  NumbersInAFile() {
    write(path);
    auto file = InputFile::open(path);
    EXPECT_TRUE(file.ok());
    tensor =
        Tensor::in_file({DType::f32, {kCount}}, std::make_shared<const InputFile>(std::move(*file)), kOffset);
  }
  static std::vector<float> numbers() {
    std::vector<float> numbers(kCount);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    return numbers;
  }
  static void write(const std::string& path) {
    const std::vector<float> all = numbers();
    std::ofstream out(path, std::ios::binary);
    out.write("abcd", kOffset).write(reinterpret_cast<const char*>(all.data()), kCount * 4);
  }
  // Writes into it, at a time that a clock tells from the one before.
  void change(std::int64_t at) const {
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(at).write("!", 1);
    timespec times[2] = {{0, UTIME_OMIT}, {1, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
};

TEST(TensorInAFile, IsReadPieceByPieceAndStaysThere) {
  const NumbersInAFile in;
  EXPECT_TRUE(in.tensor.defined());
  float some[3] = {};
  ASSERT_TRUE(in.tensor.read(4 * 500'000, some, sizeof some).ok());
  EXPECT_EQ(some[0], 500'000.0f);
  EXPECT_EQ(some[2], 500'002.0f);
  std::vector<float> seen;
  int pieces = 0;
  ASSERT_TRUE(in.tensor
                  .visit([&](const std::byte* piece, std::size_t from, std::size_t bytes) -> Result<bool> {
                    EXPECT_EQ(from, seen.size() * 4);
                    const auto* numbers = reinterpret_cast<const float*>(piece);
                    seen.insert(seen.end(), numbers, numbers + bytes / 4);
                    ++pieces;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(seen, NumbersInAFile::numbers());
  EXPECT_EQ(pieces, 3);
  const Result<Tensor> loaded = in.tensor.loaded();
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded->in_memory());
  EXPECT_FALSE(in.tensor.in_memory());
  EXPECT_TRUE(in.tensor.reshaped({1, NumbersInAFile::kCount}).defined());
  EXPECT_TRUE(bit_equal(*loaded, in.tensor)) << "an address brings them into memory";
}

TEST(TensorInAFile, AVisitEndsWhereItIsToldTo) {
  const NumbersInAFile in;
  int pieces = 0;
  const auto once = [&](const std::byte*, std::size_t, std::size_t) -> Result<bool> {
    ++pieces;
    return false;
  };
  ASSERT_TRUE(in.tensor.visit(once).ok());
  EXPECT_EQ(pieces, 1);
  const auto fails = [](const std::byte*, std::size_t, std::size_t) -> Result<bool> {
    return Error{Errc::device, "full"};
  };
  EXPECT_EQ(in.tensor.visit(fails).error().code, Errc::device);
}

TEST(TensorInAFile, TheFirstWriteMakesACopyInMemory) {
  const NumbersInAFile in;
  Tensor copy = in.tensor;
  copy.mutable_as<float>()[0] = -1;
  EXPECT_TRUE(copy.in_memory());
  EXPECT_EQ(copy.at(0), -1);
  EXPECT_EQ(in.tensor.at(0), 0);
  EXPECT_EQ(in.tensor.at(NumbersInAFile::kCount - 1), NumbersInAFile::kCount - 1.0);
}

TEST(TensorInAFile, AFileThatWasWrittenToIsAnError) {
  const NumbersInAFile in;
  in.change(NumbersInAFile::kOffset);
  char byte = 0;
  const Status read = in.tensor.read(0, &byte, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::io);
  EXPECT_NE(read.error().message.find("has changed since"), std::string::npos) << read.error().message;
  EXPECT_FALSE(in.tensor.loaded().ok());
}

TEST(TensorInAFile, AFileThatIsCutIsAnError) {
  const NumbersInAFile in;
  std::filesystem::resize_file(in.path, 100);
  EXPECT_EQ(in.tensor.loaded().error().code, Errc::io);
}

TEST(TensorInAFile, AnotherFileUnderItsNameIsNoHarm) {
  const NumbersInAFile in;
  std::ofstream(in.folder / "other") << "other";
  std::filesystem::rename(in.folder / "other", in.path);
  EXPECT_TRUE(in.tensor.loaded().ok());
}

TEST(Tensor, ViewsOfForeignMemoryAreCopiedBeforeTheyAreWritten) {
  const std::shared_ptr<std::byte[]> memory(new std::byte[8]());
  Tensor view = Tensor::over({DType::i64, {1}}, memory);
  const std::int64_t number = 7;
  std::memcpy(memory.get(), &number, sizeof number);
  EXPECT_EQ(view.int_at(0), 7);
  view.mutable_as<std::int64_t>()[0] = 8;
  EXPECT_EQ(std::to_integer<int>(memory[0]), 7);
}

}  // namespace
}  // namespace gradloom
