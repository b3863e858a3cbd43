#include "engine/base/npz.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/npy_header.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using Arrays = std::map<std::string, Tensor>;

// np.savez(x=float32 [[1.5, -2], [0, inf]], n=int64 [1, -1], t=True) by NumPy 1.24.
constexpr const char* kStored =
    "504b030414000000000000002100e87301b3900000009000000005001400782e6e70790100100090000000000000009000000000"
    "000000934e554d50"
    "59010076007b276465736372273a20273c6634272c2027666f727472616e5f6f72646572273a2046616c73652c20277368617065"
    "273a2028322c2032"
    "292c207d202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020"
    "2020202020202020"
    "20200a0000c03f000000c0000000000000807f504b03041400000000000000210004fb5fef9000000090000000050014006e2e6e"
    "7079010010009000"
    "0000000000009000000000000000934e554d5059010076007b276465736372273a20273c6938272c2027666f727472616e5f6f72"
    "646572273a204661"
    "6c73652c20277368617065273a2028322c292c207d20202020202020202020202020202020202020202020202020202020202020"
    "2020202020202020"
    "2020202020202020202020202020202020202020200a0100000000000000ffffffffffffffff504b030414000000000000002100"
    "822df8d381000000"
    "8100000005001400742e6e70790100100081000000000000008100000000000000934e554d5059010076007b276465736372273a"
    "20277c6231272c20"
    "27666f727472616e5f6f72646572273a2046616c73652c20277368617065273a2028292c207d2020202020202020202020202020"
    "2020202020202020"
    "202020202020202020202020202020202020202020202020202020202020202020202020202020200a01504b0102140314000000"
    "000000002100e873"
    "01b39000000090000000050000000000000000000000800100000000782e6e7079504b010214031400000000000000210004fb5f"
    "ef90000000900000"
    "000500000000000000000000008001c70000006e2e6e7079504b0102140314000000000000002100822df8d38100000081000000"
    "0500000000000000"
    "0000000080018e010000742e6e7079504b0506000000000300030099000000460200000000";

// np.savez_compressed(z=float64 zeros (4, 3), i=int32 arange(6) as (2, 3)) by NumPy 1.24.
constexpr const char* kDeflated =
    "504b0304140000000800000021004881c96249000000e0000000050014007a2e6e707901001000e0000000000000004900000000"
    "0000009bec17ea1b"
    "10c9c850c650ad9e925a9c5ca46ea5a06e9366a1aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a"
    "263a0ac69a3a0ab5"
    "0a64032e061a0300504b03041400000008000000210050b44d84550000009800000005001400692e6e7079010010009800000000"
    "0000005500000000"
    "0000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a2aea3a09e965f54529498179f5f94920a12774bcc294e058a"
    "17672416a402f91a"
    "463a0ac69a3a0ab50a64032e06206004622620660662162066056200504b01021403140000000800000021004881c96249000000"
    "e000000005000000"
    "00000000000000008001000000007a2e6e7079504b010214031400000008000000210050b44d8455000000980000000500000000"
    "0000000000000080"
    "0180000000692e6e7079504b05060000000002000200660000000c0100000000";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

Result<Arrays> read_bytes_as_npz(const std::string& bytes, const std::string& name = "a.npz") {
  const TemporaryFolder folder;
  test::write_bytes(folder / name, bytes);
  return read_npz(folder / name);
}

void expect_refused(const std::string& bytes, const std::string& text) {
  const Result<Arrays> arrays = read_bytes_as_npz(bytes);
  ASSERT_FALSE(arrays.ok());
  EXPECT_TRUE(arrays.error().code == Errc::bad_input || arrays.error().code == Errc::limit)
      << arrays.error().message;
  EXPECT_NE(arrays.error().message.find(text), std::string::npos) << arrays.error().message;
}

std::string npy(const std::string& dict, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dict.size() & 0xff);
  bytes += static_cast<char>(dict.size() >> 8);
  return bytes + dict + data;
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
    bytes.replace(at, from.size(), to);
  return bytes;
}

TEST(Npz, HeadersDecideWhatIsRead) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "a.npz", from_hex(kStored));
  const Result<Arrays> some = read_npz(
      folder / "a.npz", [](const std::string& name, const Type&) -> Result<bool> { return name == "x"; });
  ASSERT_TRUE(some.ok()) << some.error().message;
  ASSERT_EQ(some->size(), 3u);
  for (const auto& [name, array] : *some) EXPECT_EQ(array.defined(), name == "x") << name;
  const Result<Arrays> none =
      read_npz(folder / "a.npz", [](const std::string&, const Type& type) -> Result<bool> {
        return Error{Errc::bad_input, "not " + to_string(type)};
      });
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("not "), std::string::npos) << none.error().message;
}

TEST(Npz, ReadsWhatNumpyStored) {
  const Result<Arrays> arrays = read_bytes_as_npz(from_hex(kStored));
  ASSERT_TRUE(arrays.ok()) << arrays.error().message;
  ASSERT_EQ(arrays->size(), 3u);
  EXPECT_EQ(to_string(arrays->at("x").type()), "f32[2, 2]");
  EXPECT_EQ(arrays->at("x").to_f64(),
            (std::vector<double>{1.5, -2, 0, std::numeric_limits<double>::infinity()}));
  EXPECT_EQ(arrays->at("n").to_i64(), (std::vector<std::int64_t>{1, -1}));
  EXPECT_EQ(to_string(arrays->at("t").type()), "bool[]");
  EXPECT_EQ(arrays->at("t").int_at(0), 1);
}

TEST(Npz, ReadsWhatNumpyDeflated) {
  const Result<Arrays> arrays = read_bytes_as_npz(from_hex(kDeflated));
  ASSERT_TRUE(arrays.ok()) << arrays.error().message;
  EXPECT_EQ(to_string(arrays->at("z").type()), "f64[4, 3]");
  EXPECT_EQ(arrays->at("z").to_f64(), std::vector<double>(12, 0.0));
  EXPECT_EQ(to_string(arrays->at("i").type()), "i32[2, 3]");
  EXPECT_EQ(arrays->at("i").to_i64(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Npz, RoundTripsEveryType) {
  const TemporaryFolder folder;
  Arrays written;
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8, DType::boolean,
                            DType::f16, DType::i8, DType::i16, DType::u16, DType::u32, DType::u64}) {
    written[std::string("layer.0/") + dtype_name(dtype)] =
        Tensor::from_f64(dtype, {3, 2}, {0, 1, 1, 0, 1, 1});
  }
  written["empty"] = Tensor(DType::f32, {0, 7});
  written["scalar"] = Tensor::scalar(DType::f64, -0.1);
  ASSERT_TRUE(write_npz(folder / "a.npz", written).ok());
  const Result<Arrays> back = read_npz(folder / "a.npz");
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_EQ(back->size(), written.size());
  for (const auto& [name, tensor] : written) EXPECT_TRUE(bit_equal(back->at(name), tensor)) << name;
}

TEST(Npz, WritesTheSameBytesAgainAndReplacesTheFile) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_npz(folder / "a.npz", {{"old", Tensor::from_i64({1})}}).ok());
  ASSERT_TRUE(write_npz(folder / "a.npz", {{"w", Tensor::from_i64({1, 2})}}).ok());
  ASSERT_TRUE(write_npz(folder / "b.npz", {{"w", Tensor::from_i64({1, 2})}}).ok());
  EXPECT_EQ(test::read_bytes(folder / "a.npz"), test::read_bytes(folder / "b.npz"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2)
      << "no temporary file stays";
  EXPECT_EQ(write_npz(folder / "none/a.npz", {}).error().code, Errc::io);
}

TEST(Npz, WritesBf16AsF32) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_npz(folder / "a.npz", {{"w", Tensor::from_f64(DType::bf16, {2}, {1.5, -3})}}).ok());
  const Result<Arrays> back = read_npz(folder / "a.npz");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_string(back->at("w").type()), "f32[2]");
  EXPECT_EQ(back->at("w").to_f64(), (std::vector<double>{1.5, -3}));
}

TEST(Npz, WritesSmallTypesAsTheNextOfNumpy) {
  const TemporaryFolder folder;
  const auto small = [](DType type) { return Tensor::from_f64(type, {2}, {1, 0.5}); };
  ASSERT_TRUE(write_npz(folder / "a.npz", {{"f8", small(DType::f8e4m3fn)},
                                           {"f4", small(DType::f4e2m1)},
                                           {"e8", small(DType::f8e8m0)},
                                           {"i4", Tensor::from_f64(DType::i4, {2}, {-8, 7})},
                                           {"u2", Tensor::from_f64(DType::u2, {2}, {0, 3})}})
                  .ok());
  const Result<Arrays> back = read_npz(folder / "a.npz");
  ASSERT_TRUE(back.ok()) << back.error().message;
  for (const char* name : {"f8", "f4", "e8"}) {
    EXPECT_EQ(to_string(back->at(name).type()), "f32[2]") << name;
    EXPECT_EQ(back->at(name).to_f64(), (std::vector<double>{1, 0.5})) << name;
  }
  EXPECT_EQ(to_string(back->at("i4").type()), "i8[2]");
  EXPECT_EQ(back->at("i4").to_i64(), (std::vector<std::int64_t>{-8, 7}));
  EXPECT_EQ(to_string(back->at("u2").type()), "u8[2]");
  EXPECT_EQ(back->at("u2").to_i64(), (std::vector<std::int64_t>{0, 3}));
}

TEST(Npz, AnEmptyArchiveHasNoArrays) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_npz(folder / "a.npz", {}).ok());
  const Result<Arrays> back = read_npz(folder / "a.npz");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->empty());
}

TEST(Npz, ReadsPlainNpyFiles) {
  const std::string bytes =
      npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n", std::string("\1\0\0\0\2\0\0\0", 8));
  const Result<Arrays> arrays = read_bytes_as_npz(bytes, "tokens.npy");
  ASSERT_TRUE(arrays.ok()) << arrays.error().message;
  EXPECT_EQ(arrays->at("tokens").to_i64(), (std::vector<std::int64_t>{1, 2}));
}

TEST(Npz, RefusesArraysItCannotHold) {
  const auto dict = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  expect_refused(npy(dict("<f4", "True", "(1, 1)"), "abcd"), "Fortran");
  expect_refused(npy(dict(">f4", "False", "(1,)"), "abcd"), ">f4");
  expect_refused(npy(dict("|O", "False", "(1,)"), "abcd"), "|O");
  expect_refused(npy(dict("<c8", "False", "(1,)"), "abcdefgh"), "<c8");
  expect_refused(npy(dict("<f4", "False", "(2,)"), "abcd"), "needs 8 bytes");
  expect_refused(npy(dict("<f4", "False", "(0,)"), "abcd"), "needs 0 bytes");
  expect_refused(npy(dict("<f4", "False", "(99999999999999999999,)"), "abcd"), "damaged header");
  expect_refused(npy(dict("<f4", "False", "(4611686018427387904, 8)"), "abcd"), "63 bits");
  expect_refused(npy(dict("<f4", "False", "(-1,)"), "abcd"), "damaged header");
  expect_refused(npy("{'descr': '<f4', 'shape': (1,), }", "abcd"), "damaged header");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': (1,)}", "abcd"), "'x'");
  expect_refused(npy("{'shape': (1,), 'shape': (1,)}", "abcd"), "damaged header");
  expect_refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "abcd"),
                 "damaged header");
  expect_refused(std::string("\x93NUMPY\x09\x00\x01\x00 ", 11), "version 9");
}

TEST(Npz, RefusesWhatIsNotAnArchive) {
  expect_refused("", "neither");
  expect_refused("hello world, this is text of some length", "no end record");
  EXPECT_EQ(read_npz("/nonexistent/a.npz").error().code, Errc::io);
  const TemporaryFolder folder;
  EXPECT_FALSE(read_npz(folder.path()).ok());
}

TEST(Npz, RefusesEveryPrefix) {
  for (const char* file : {kStored, kDeflated}) {
    const std::string bytes = from_hex(file);
    const TemporaryFolder folder;
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      test::write_bytes(folder / "a.npz", bytes.substr(0, n));
      EXPECT_FALSE(read_npz(folder / "a.npz").ok()) << n;
    }
  }
}

TEST(Npz, NoChangedByteCrashes) {
  for (const char* file : {kStored, kDeflated}) {
    const std::string bytes = from_hex(file);
    const TemporaryFolder folder;
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      for (const unsigned char value : {0x00, 0x01, 0x7f, 0xff}) {
        std::string damaged = bytes;
        damaged[n] = static_cast<char>(value);
        test::write_bytes(folder / "a.npz", damaged);
        const Result<Arrays> arrays = read_npz(folder / "a.npz");
        EXPECT_TRUE(arrays.ok() || arrays.error().code == Errc::bad_input ||
                    arrays.error().code == Errc::limit);
      }
    }
  }
}

TEST(Npz, ChecksumsAreChecked) {
  expect_refused(
      replaced(from_hex(kStored), std::string("\x00\x00\xc0\x3f", 4), std::string("\x00\x00\xc1\x3f", 4)),
      "checksum");
}

TEST(Npz, RefusesOverlappingEntries) {
  // The second directory entry points at the first one's data.
  std::string bytes = from_hex(kStored);
  const std::size_t second = bytes.find("PK\x01\x02", bytes.find("PK\x01\x02") + 1);
  std::memset(bytes.data() + second + 42, 0, 4);
  expect_refused(bytes, "overlaps");
}

TEST(Npz, RefusesSizesThatDeflateCannotReach) {
  std::string bytes = from_hex(kDeflated);
  const std::size_t entry = bytes.find("PK\x01\x02");
  const std::uint32_t huge = 0x7fffffff;
  std::memcpy(bytes.data() + entry + 24, &huge, 4);
  expect_refused(bytes, "cannot be that large");
}

TEST(Npz, RefusesTheSameNameTwice) {
  expect_refused(replaced(from_hex(kStored), "n.npy", "x.npy"), "occurs twice");
}

TEST(Npz, RefusesEncryptedAndUnknownMethods) {
  std::string bytes = from_hex(kStored);
  const std::size_t entry = bytes.find("PK\x01\x02");
  bytes[entry + 8] = 1;
  expect_refused(bytes, "encrypted");
  bytes[entry + 8] = 0;
  bytes[entry + 10] = 12;
  expect_refused(bytes, "method 12");
}

TEST(NpyHeader, IsAlignedAndReadsBack) {
  for (const Type& type : {Type{DType::f32, {}}, Type{DType::i64, {5}}, Type{DType::u8, {1, 2, 3}}}) {
    const std::string header = npy_header(type);
    EXPECT_EQ(header.size() % 64, 0u);
    const Result<Type> back = parse_npy_header(header.substr(10));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, type);
  }
}

}  // namespace
}  // namespace gradloom
