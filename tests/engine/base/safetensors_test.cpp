#include "engine/base/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

std::string little(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  return little(header.size()) + header + data;
}

Result<Safetensors> read_bytes_as_safetensors(const std::string& bytes) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "a.safetensors", bytes);
  return read_safetensors(folder / "a.safetensors");
}

void expect_bad_file(const std::string& bytes, const std::string& text, Errc code = Errc::bad_input) {
  const auto read = read_bytes_as_safetensors(bytes);
  ASSERT_FALSE(read.ok()) << text;
  EXPECT_EQ(read.error().code, code) << read.error().message;
  EXPECT_NE(read.error().message.find(text), std::string::npos) << read.error().message;
}

// One f32 vector of two elements.
std::string vector_entry(const std::string& name, int begin, int end) {
  return "\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

const std::string kTwo("\0\0\xc0\x3f\0\0\0\xc0", 8);  // 1.5, -2

Safetensors every_type() {
  Safetensors all;
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16, DType::i8,
        DType::u64, DType::u32, DType::u16, DType::u8, DType::f8e4m3fn, DType::f8e5m2, DType::f8e8m0})
    all.tensors[std::string("of ") + dtype_name(dtype)] =
        Tensor::from_f64(dtype, {2, 2}, {1, 2, 4, 0.5}).cast(dtype);
  all.tensors["of bool"] = Tensor::from_f64(DType::boolean, {3}, {1, 0, 1});
  all.tensors["scalar"] = Tensor::scalar(DType::f64, 0.1);
  all.tensors["empty"] = Tensor(DType::f32, {0, 3});
  all.metadata = {{"format", "pt"}, {"quote\"", "line\nbreak"}};
  return all;
}

// The bytes of the format's own document for {"x": [1.5, -2], with metadata}.
TEST(Safetensors, ReadsWhatTheFormatDescribes) {
  const auto read = read_bytes_as_safetensors(
      file_of(R"({"__metadata__":{"format":"pt"},)" + vector_entry("a.weight", 0, 8) + "}   ", kTwo));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->metadata.at("format"), "pt");
  const Tensor& x = read->tensors.at("a.weight");
  EXPECT_EQ(x.type(), (Type{DType::f32, {2}}));
  EXPECT_EQ(x.to_f64(), (std::vector<double>{1.5, -2}));
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  const TemporaryFolder folder;
  const Safetensors all = every_type();
  ASSERT_TRUE(write_safetensors(folder / "a", all).ok());
  const auto read = read_safetensors(folder / "a");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->metadata, all.metadata);
  ASSERT_EQ(read->tensors.size(), all.tensors.size());
  for (const auto& [name, tensor] : all.tensors)
    EXPECT_TRUE(bit_equal(read->tensors.at(name), tensor)) << name;
  // From file to file in pieces, the same bytes.
  std::string again;
  const auto sink = [&](std::string_view piece) -> Status {
    again += piece;
    return {};
  };
  ASSERT_TRUE(write_safetensors(sink, *read).ok());
  std::ifstream file(folder / "a", std::ios::binary);
  EXPECT_TRUE(again == std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(Safetensors, ElementsAreAlignedAndTheHeaderIsPadded) {
  std::string bytes;
  ASSERT_TRUE(write_safetensors(
                  [&](std::string_view piece) -> Status {
                    bytes += piece;
                    return {};
                  },
                  every_type())
                  .ok());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  EXPECT_EQ(header_bytes % 8, 0u);
  const std::string header = bytes.substr(8, header_bytes);
  // Wide elements first: no narrow tensor stands before a wide one.
  EXPECT_LT(header.find("of i64"), header.find("of f32"));
  EXPECT_LT(header.find("of f32"), header.find("of bf16"));
  EXPECT_LT(header.find("of bf16"), header.find("of u8"));
}

TEST(Safetensors, TypesThatTheFormatLacksAreWritten) {
  const TemporaryFolder folder;
  Safetensors all;
  all.tensors["i"] = Tensor::from_f64(DType::i4, {3}, {-8, 0, 7});
  all.tensors["f"] = Tensor::from_f64(DType::f4e2m1, {3}, {-6, 0.5, 3});
  ASSERT_TRUE(write_safetensors(folder / "a", all).ok());
  const auto read = read_safetensors(folder / "a");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->tensors.at("i").dtype(), DType::i8);
  EXPECT_TRUE(bit_equal(read->tensors.at("i").cast(DType::i4), all.tensors["i"]));
  EXPECT_EQ(read->tensors.at("f").to_f64(), all.tensors["f"].to_f64());
}

TEST(Safetensors, BooleansAreZeroOrOne) {
  const auto read = read_bytes_as_safetensors(
      file_of(R"({"b":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})", std::string("\0\1\2\xff", 4)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->tensors.at("b").to_i64(), (std::vector<std::int64_t>{0, 1, 1, 1}));
}

TEST(Safetensors, RefusesWhatIsNoSuchFile) {
  expect_bad_file("", "shorter than 8 bytes");
  expect_bad_file("PK\3\4 a zip of no interest at all", "its header would end behind it");
  expect_bad_file(file_of("", ""), "no JSON object");
  expect_bad_file(file_of("[]", ""), "no JSON object");
  expect_bad_file(file_of(" {}", ""), "no JSON object");
  expect_bad_file(file_of("{", ""), "damaged header");
  expect_bad_file(file_of("{}x", ""), "damaged header");
  expect_bad_file(file_of("{\"a\xff\":{}}", ""), "damaged header");
  expect_bad_file(little(~std::uint64_t{0}) + "{}", "its header would end behind it");
  const TemporaryFolder folder;
  EXPECT_EQ(read_safetensors(folder / "none").error().code, Errc::io);
  EXPECT_EQ(read_safetensors(folder.path()).error().code, Errc::bad_input);
}

TEST(Safetensors, RefusesHeadersThatSaySomethingElse) {
  const auto entry = [](const std::string& fields) { return file_of("{\"x\":{" + fields + "}}", kTwo); };
  const std::string places = R"("data_offsets":[0,8])", shape = R"("shape":[2])", type = R"("dtype":"F32")";
  expect_bad_file(entry(shape + "," + places), "'x' lacks dtype");
  expect_bad_file(entry(type + "," + places), "'x' lacks dtype, shape");
  expect_bad_file(entry(type + "," + shape), "'x' lacks dtype, shape or data_offsets");
  expect_bad_file(entry(R"("dtype":"C64",)" + shape + "," + places), "'C64', which is not supported");
  expect_bad_file(entry(type + R"(,"shape":[-2],)" + places), "damaged header");
  expect_bad_file(entry(type + R"(,"shape":[2.0],)" + places), "damaged header");
  expect_bad_file(entry(type + R"(,"shape":2,)" + places), "damaged header");
  expect_bad_file(entry(type + R"(,"shape":[[2]],)" + places), "damaged header");
  expect_bad_file(entry(type + "," + type + "," + shape + "," + places), "damaged header");
  expect_bad_file(entry(type + "," + shape + "," + places + R"(,"extra":1)"), "unknown key 'extra'");
  expect_bad_file(entry(type + "," + shape + R"(,"data_offsets":[0])"), "needs the places");
  expect_bad_file(entry(type + "," + shape + R"(,"data_offsets":[8,0])"), "needs the places");
  expect_bad_file(file_of(R"({"x":3})", ""), "damaged header");
  expect_bad_file(file_of(R"({"__metadata__":{"a":1}})", ""), "damaged header");
  expect_bad_file(file_of(R"({"__metadata__":{"a":{}}})", ""), "damaged header");
  expect_bad_file(file_of(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "'a' twice");
}

TEST(Safetensors, RefusesSizesThatDoNotAgree) {
  const auto shaped = [](const std::string& shape) {
    return file_of(R"({"x":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,8]}})", kTwo);
  };
  expect_bad_file(shaped("[3]"), "is f32[3] and needs 12 bytes, but has 8");
  expect_bad_file(shaped("[4611686018427387904,4]"), "63 bits", Errc::limit);
  expect_bad_file(shaped("[18446744073709551615]"), "63 bits", Errc::limit);
  expect_bad_file(shaped("[" + std::string(64, '1').insert(1, ",") + "]"), "damaged header");
  std::string ones = "[1";
  for (int i = 0; i < 32; ++i) ones += ",1";
  expect_bad_file(shaped(ones + "]"), "more than 32 dims", Errc::limit);
}

TEST(Safetensors, RefusesHolesOverlapsAndBytesOfNothing) {
  const auto two = [](int begin, int end, const std::string& data) {
    return file_of("{" + vector_entry("x", 0, 8) + "," + vector_entry("y", begin, end) + "}", data);
  };
  EXPECT_TRUE(read_bytes_as_safetensors(two(8, 16, kTwo + kTwo)).ok());
  expect_bad_file(two(4, 12, kTwo + kTwo), "tensor 'y' overlaps");
  expect_bad_file(two(0, 8, kTwo), "overlaps");
  expect_bad_file(two(12, 20, kTwo + kTwo + "gaps"), "tensor 'y' leaves a hole");
  expect_bad_file(two(8, 16, kTwo + kTwo + "z"), "1 bytes at its end belong to no tensor");
  expect_bad_file(two(8, 16, kTwo + "half"), "truncated: tensor 'y'");
  expect_bad_file(file_of("{" + vector_entry("x", 0, 8) + "," + vector_entry("x", 8, 16) + "}", kTwo + kTwo),
                  "two tensors of one name");
}

TEST(Safetensors, RefusesTooMuch) {
  std::string many = "{";
  for (std::int64_t i = 0; i <= kMostSafetensors; ++i)
    many +=
        (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_bad_file(file_of(many + "}", ""), "more than 500000 tensors", Errc::limit);
  expect_bad_file(file_of("{\"" + std::string(5000, 'n') + "\":{}}", ""), "name of 5000 bytes", Errc::limit);
  const TemporaryFolder folder;  // sparse: the header's length is believed only as far as the format goes
  test::write_bytes(folder / "a", little(kMostSafetensorsHeaderBytes + 1) + "{");
  std::filesystem::resize_file(folder / "a", 200'000'000);
  const auto read = read_safetensors(folder / "a");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::limit) << read.error().message;
}

TEST(Safetensors, RefusesEveryPrefixAndSurvivesEveryChangedByte) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  Safetensors small;
  small.tensors = {{"a", Tensor::from_f64(DType::f32, {2}, {1, 2})}, {"b", Tensor::scalar(DType::i64, 3)}};
  small.metadata = {{"format", "pt"}};
  ASSERT_TRUE(write_safetensors(path, small).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    test::write_bytes(path, bytes.substr(0, n));
    EXPECT_FALSE(read_safetensors(path).ok()) << n;
  }
  for (std::size_t n = 0; n < bytes.size(); ++n)
    for (const int value : {0x00, 0x01, 0x22, 0x7f, 0xff}) {
      std::string damaged = bytes;
      damaged[n] = static_cast<char>(value);
      test::write_bytes(path, damaged);
      const auto read = read_safetensors(path);
      EXPECT_TRUE(read.ok() || read.error().code == Errc::bad_input || read.error().code == Errc::limit) << n;
    }
}

TEST(Safetensors, AFailedWriteLeavesTheOldFile) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "a", "old");
  Safetensors bad;
  bad.tensors["\xff\xfe"] = Tensor::scalar(DType::f32, 1);
  const Status written = write_safetensors(folder / "a", bad);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find("is not UTF-8"), std::string::npos) << written.error().message;
  std::ifstream file(folder / "a");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "old");
}

TEST(Safetensors, AChangedFileIsAnErrorWhenItsContentsAreRead) {
  const TemporaryFolder folder;
  Safetensors one;
  one.tensors["a"] = Tensor::from_f64(DType::f32, {2}, {1, 2});
  ASSERT_TRUE(write_safetensors(folder / "a", one).ok());
  const auto read = read_safetensors(folder / "a");
  ASSERT_TRUE(read.ok());
  std::filesystem::resize_file(folder / "a", 9);
  const auto loaded = read->tensors.at("a").loaded();
  ASSERT_FALSE(loaded.ok());
}

}  // namespace
}  // namespace gradloom
