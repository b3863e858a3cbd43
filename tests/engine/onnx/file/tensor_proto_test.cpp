#include "engine/onnx/file/tensor_file.h"
#include "engine/onnx/file/tensor_proto.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using onnx::TensorProto;

Result<Tensor> read(const TensorProto& proto, const std::string& folder = "") {
  static const Limits limits;
  return TensorReader(limits, folder).read(proto);
}

TensorProto tensor_proto(int data_type, std::vector<std::int64_t> dims) {
  TensorProto proto;
  proto.set_data_type(data_type);
  for (const std::int64_t dim : dims) proto.add_dims(dim);
  return proto;
}

void expect_refused(const TensorProto& proto, Errc code, const std::string& text) {
  const Result<Tensor> tensor = read(proto);
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.error().code, code) << tensor.error().message;
  EXPECT_NE(tensor.error().message.find(text), std::string::npos) << tensor.error().message;
}

TEST(TensorProtoReading, RoundTripsEveryType) {
  for (const DType dtype :
       {DType::f32,        DType::f64,    DType::i32,        DType::i64,    DType::u8,    DType::boolean,
        DType::f16,        DType::bf16,   DType::i8,         DType::i16,    DType::u16,   DType::u32,
        DType::u64,        DType::i4,     DType::u4,         DType::i2,     DType::u2,    DType::f8e4m3fn,
        DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1, DType::f8e8m0}) {
    const Tensor tensor = Tensor::from_f64(dtype, {2, 3}, {0, 1, 0, 1, 1, 1});
    TensorProto proto;
    write_tensor(tensor, &proto);
    const Result<Tensor> back = read(proto);
    ASSERT_TRUE(back.ok()) << dtype_name(dtype) << ": " << back.error().message;
    EXPECT_TRUE(bit_equal(*back, tensor)) << dtype_name(dtype);
  }
}

TEST(TensorProtoReading, TypedLists) {
  TensorProto f32 = tensor_proto(TensorProto::FLOAT, {2});
  f32.add_float_data(1.5f);
  f32.add_float_data(-2);
  EXPECT_EQ(read(f32)->to_f64(), (std::vector<double>{1.5, -2}));
  TensorProto i8 = tensor_proto(TensorProto::INT8, {2});
  i8.add_int32_data(-128);
  i8.add_int32_data(127);
  EXPECT_EQ(read(i8)->to_i64(), (std::vector<std::int64_t>{-128, 127}));
  TensorProto flag = tensor_proto(TensorProto::BOOL, {2});
  flag.add_int32_data(7);
  flag.add_int32_data(0);
  EXPECT_EQ(read(flag)->to_i64(), (std::vector<std::int64_t>{1, 0}));
  TensorProto u32 = tensor_proto(TensorProto::UINT32, {1});
  u32.add_uint64_data(4294967295u);
  EXPECT_EQ(read(u32)->int_at(0), 4294967295);
}

TEST(TensorProtoReading, HalfTypesAreBits) {
  TensorProto f16 = tensor_proto(TensorProto::FLOAT16, {2});
  f16.add_int32_data(0x3c00);
  f16.add_int32_data(0xfc00);
  EXPECT_EQ(read(f16)->at(0), 1.0);
  EXPECT_EQ(read(f16)->at(1), -std::numeric_limits<double>::infinity());
  TensorProto bf16 = tensor_proto(TensorProto::BFLOAT16, {1});
  bf16.set_raw_data(std::string("\x40\xc0", 2));
  EXPECT_EQ(read(bf16)->at(0), -3.0);
}

constexpr int kU4 = 21, kI4 = 22, kF4e2m1 = 23, kU2 = 25, kI2 = 26, kF8e4m3fn = 17;

TEST(TensorProtoReading, PackedElementsBeginInTheLowestBits) {
  const auto numbers = [](int type, std::int64_t count, const std::string& bytes) {
    TensorProto raw = tensor_proto(type, {count}), list = raw;
    raw.set_raw_data(bytes);
    for (const char c : bytes) list.add_int32_data(static_cast<unsigned char>(c));
    EXPECT_TRUE(bit_equal(*read(raw), *read(list)));
    return read(raw)->to_f64();
  };
  // Bits behind the last element say nothing.
  EXPECT_EQ(numbers(kI4, 3, "\x98\xf7"), (std::vector<double>{-8, -7, 7}));
  EXPECT_EQ(numbers(kU4, 3, "\x98\xf7"), (std::vector<double>{8, 9, 7}));
  EXPECT_EQ(numbers(kF4e2m1, 3, "\x97\xf1"), (std::vector<double>{6, -0.5, 0.5}));
  EXPECT_EQ(numbers(kI2, 5, "\xe4\xfe"), (std::vector<double>{0, 1, -2, -1, -2}));
  EXPECT_EQ(numbers(kU2, 5, "\xe4\xfe"), (std::vector<double>{0, 1, 2, 3, 2}));
  EXPECT_EQ(numbers(kF8e4m3fn, 2, "\x38\xfe"), (std::vector<double>{1, -448}));
  EXPECT_EQ(read(tensor_proto(kI4, {3, 0}))->count(), 0);
}

TEST(TensorProtoReading, PacksWhatItWrites) {
  const auto written = [](DType dtype, const std::vector<double>& values) {
    TensorProto proto;
    write_tensor(Tensor::from_f64(dtype, {static_cast<std::int64_t>(values.size())}, values), &proto);
    return proto.raw_data();
  };
  EXPECT_EQ(written(DType::i4, {-8, -7, 7}), "\x98\x07");
  EXPECT_EQ(written(DType::u2, {0, 1, 2, 3, 2}), "\xe4\x02");
  EXPECT_EQ(written(DType::f4e2m1, {6, -0.5, 0.5}), "\x97\x01");
  EXPECT_EQ(written(DType::f8e4m3fn, {1, -448}), "\x38\xfe");
}

TEST(TensorProtoReading, RefusesWrongPackedSizes) {
  TensorProto raw = tensor_proto(kI4, {3});
  for (const char* bytes : {"a", "abc"}) {
    raw.set_raw_data(bytes);
    expect_refused(raw, Errc::bad_input, "i4[3] needs 2 bytes");
  }
  TensorProto list = tensor_proto(kU2, {5});
  for (int i = 0; i < 5; ++i) list.add_int32_data(1);  // one each
  expect_refused(list, Errc::bad_input, "needs 2 packed elements, the file has 5");
  TensorProto range = tensor_proto(kF4e2m1, {2});
  range.add_int32_data(256);
  expect_refused(range, Errc::bad_input, "range");
  expect_refused(tensor_proto(kI2, {(std::int64_t{1} << 62) + 1, 4}), Errc::limit, "63 bits");
  expect_refused(tensor_proto(kI2, {std::int64_t{1} << 62}), Errc::bad_input,
                 "packed elements, the file has 0");
}

TEST(TensorProtoReading, NanInfAndDenormalsKeepTheirBits) {
  TensorProto proto = tensor_proto(TensorProto::FLOAT, {3});
  const std::string bits("\x01\x00\xc0\x7f\x00\x00\x80\xff\x01\x00\x00\x00", 12);
  proto.set_raw_data(bits);
  const Result<Tensor> tensor = read(proto);
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(std::string(static_cast<const char*>(tensor->data()), 12), bits);
}

TEST(TensorProtoReading, ScalarsAndEmptyTensors) {
  TensorProto scalar = tensor_proto(TensorProto::DOUBLE, {});
  scalar.add_double_data(4);
  EXPECT_EQ(read(scalar)->shape(), Shape{});
  EXPECT_EQ(read(scalar)->at(0), 4);
  EXPECT_EQ(read(tensor_proto(TensorProto::FLOAT, {3, 0}))->count(), 0);
}

TEST(TensorProtoReading, RefusesWrongSizes) {
  expect_refused(tensor_proto(TensorProto::FLOAT, {2}), Errc::bad_input, "needs 2 elements");
  TensorProto raw = tensor_proto(TensorProto::FLOAT, {1000000000});
  raw.set_raw_data("abc");
  expect_refused(raw, Errc::bad_input, "the file has 3");
  TensorProto empty = tensor_proto(TensorProto::FLOAT, {0});
  empty.set_raw_data("abcd");
  expect_refused(empty, Errc::bad_input, "needs 0 bytes");
  TensorProto wrong_list = tensor_proto(TensorProto::FLOAT, {1});
  wrong_list.add_int64_data(1);
  expect_refused(wrong_list, Errc::bad_input, "the file has 0");
  TensorProto twice = tensor_proto(TensorProto::FLOAT, {1});
  twice.add_float_data(1);
  twice.set_raw_data("abcd");
  expect_refused(twice, Errc::bad_input, "twice");
  TensorProto range = tensor_proto(TensorProto::UINT8, {1});
  range.add_int32_data(256);
  expect_refused(range, Errc::bad_input, "range");
}

TEST(TensorProtoReading, RefusesWrongShapes) {
  expect_refused(tensor_proto(TensorProto::FLOAT, {2, -1}), Errc::bad_input, "negative");
  expect_refused(tensor_proto(TensorProto::FLOAT, {std::int64_t{1} << 40, std::int64_t{1} << 40}),
                 Errc::limit, "63 bits");
  expect_refused(tensor_proto(TensorProto::FLOAT, std::vector<std::int64_t>(33, 1)), Errc::limit, "rank");
}

TEST(TensorProtoReading, RefusesUnsupportedTypesByName) {
  expect_refused(tensor_proto(TensorProto::STRING, {0}), Errc::bad_input, "string");
  expect_refused(tensor_proto(TensorProto::COMPLEX64, {0}), Errc::bad_input, "complex64");
  expect_refused(tensor_proto(27, {0}), Errc::bad_input, "float6e2m3");
  expect_refused(tensor_proto(28, {0}), Errc::bad_input, "float6e3m2");
  expect_refused(tensor_proto(999, {0}), Errc::bad_input, "999");
  expect_refused(tensor_proto(-1, {0}), Errc::bad_input, "-1");
}

TensorProto external_proto(const std::string& location, const std::string& offset = "",
                           const std::string& length = "") {
  TensorProto proto = tensor_proto(TensorProto::FLOAT, {2});
  proto.set_data_location(TensorProto::EXTERNAL);
  const auto entry = [&](const std::string& key, const std::string& value) {
    if (value.empty()) return;
    proto.add_external_data()->set_key(key);
    proto.mutable_external_data(proto.external_data_size() - 1)->set_value(value);
  };
  entry("location", location);
  entry("offset", offset);
  entry("length", length);
  return proto;
}

TEST(ExternalData, IsReadInsideTheFolder) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "sub");
  const float values[] = {9, 1, 2};
  test::write_bytes(folder / "sub/weights.bin", std::string(reinterpret_cast<const char*>(values), 12));
  const Result<Tensor> tensor = read(external_proto("sub/weights.bin", "4", "8"), folder.path());
  ASSERT_TRUE(tensor.ok()) << tensor.error().message;
  EXPECT_EQ(tensor->to_f64(), (std::vector<double>{1, 2}));
  EXPECT_TRUE(read(external_proto("./sub//weights.bin"), folder.path()).ok());
}

TEST(ExternalData, PackedElementsShareBytes) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "w", "\x01\x98\xf7");
  TensorProto proto = external_proto("w", "1", "2");
  proto.set_data_type(kI4);
  proto.set_dims(0, 3);
  const Result<Tensor> tensor = read(proto, folder.path());
  ASSERT_TRUE(tensor.ok()) << tensor.error().message;
  EXPECT_EQ(tensor->to_i64(), (std::vector<std::int64_t>{-8, -7, 7}));
  proto.set_dims(0, 5);
  const Result<Tensor> beyond = read(proto, folder.path());
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.error().message.find("the type needs 3"), std::string::npos) << beyond.error().message;
}

TEST(ExternalData, OffsetsAndLengthsMustFit) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "w", std::string(8, 'x'));
  for (const auto& [offset, length] :
       std::vector<std::pair<std::string, std::string>>{{"1", ""},
                                                        {"9223372036854775807", ""},
                                                        {"-1", ""},
                                                        {"0", "4"},
                                                        {"0x0", ""},
                                                        {"99999999999999999999", ""},
                                                        {"", "8.0"}}) {
    const Result<Tensor> tensor = read(external_proto("w", offset, length), folder.path());
    ASSERT_FALSE(tensor.ok()) << offset << " " << length;
    EXPECT_EQ(tensor.error().code, Errc::bad_input) << tensor.error().message;
  }
  EXPECT_FALSE(read(external_proto("w")).ok()) << "without a folder";
  EXPECT_FALSE(read(external_proto(""), folder.path()).ok());
}

TEST(ExternalData, NothingOutsideTheFolderIsRead) {
  const TemporaryFolder outer;
  std::filesystem::create_directory(outer / "model");
  std::filesystem::create_directory(outer / "model/dir");
  std::filesystem::create_directory(outer / "other");
  test::write_bytes(outer / "secret", "SECRETXX");
  test::write_bytes(outer / "other/secret", "SECRETXX");
  std::filesystem::create_symlink(outer / "secret", outer / "model/link");
  std::filesystem::create_directory_symlink(outer / "other", outer / "model/linked");
  std::filesystem::create_hard_link(outer / "secret", outer / "model/hard");
  ASSERT_EQ(mkfifo((outer / "model/fifo").c_str(), 0600), 0);
  for (const std::string& location :
       {std::string("../secret"), std::string("dir/../../secret"), outer / "secret",
        std::string("C:\\secret"), std::string("\\\\host\\secret"), std::string("C:secret"),
        std::string("sec\0ret", 7), std::string("link"), std::string("linked/secret"), std::string("hard"),
        std::string("fifo"), std::string("dir"), std::string("dir/"), std::string("/proc/self/mem"),
        std::string("missing"), std::string("."), std::string("..")}) {
    const Result<Tensor> tensor = read(external_proto(location), outer / "model");
    ASSERT_FALSE(tensor.ok()) << location;
    EXPECT_EQ(tensor.error().message.find("SECRET"), std::string::npos);
  }
}

// A link put in the place of a file while files are opened: what is read is the file's or nothing.
TEST(ExternalData, NoSwapInBetweenLeadsOutside) {
  const TemporaryFolder outside, folder;
  test::write_bytes(outside / "secret", std::string(8, 's'));
  test::write_bytes(folder / "kept", std::string(8, 'k'));
  std::atomic<bool> stop = false;
  std::thread swapper([&] {
    for (int i = 0; !stop; ++i) {
      const std::string next = folder / "next";
      ::unlink(next.c_str());
      if (i % 2 == 0 ? ::symlink((outside / "secret").c_str(), next.c_str())
                     : ::link((folder / "kept").c_str(), next.c_str()))
        break;
      ::rename(next.c_str(), (folder / "w").c_str());
      if (i % 2 == 0) continue;
      ::unlink((folder / "w").c_str());  // rename does nothing between two names of one file
      test::write_bytes(folder / "w", std::string(8, 'w'));
    }
  });
  // On a busy machine all rounds may be over before the file was there for the first time.
  const auto last = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  int read_count = 0;
  for (int i = 0; i < 10000 || (read_count == 0 && std::chrono::steady_clock::now() < last); ++i) {
    const Result<InputFile> file = InputFile::open_inside(folder.path(), "w");
    if (!file.ok()) continue;
    std::string bytes(8, '\0');
    if (!file->read_at(0, bytes.data(), 8).ok()) continue;
    ++read_count;
    ASSERT_NE(bytes[0], 's') << "round " << i;
  }
  stop = true;
  swapper.join();
  EXPECT_GT(read_count, 0);
}

TEST(TensorProtoReading, RefersToLargeContentsInAFile) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "w", std::string(8192, '\1'));
  const Limits limits;
  TensorReader reader(limits, folder.path());
  const auto external = [](int data_type, std::int64_t count) {
    TensorProto proto = external_proto("w", "0");
    proto.set_data_type(data_type);
    proto.set_dims(0, count);
    return proto;
  };
  const Result<Tensor> large = reader.refer(external(TensorProto::FLOAT, 2048));
  ASSERT_TRUE(large.ok()) << large.error().message;
  EXPECT_FALSE(large->in_memory());
  const Result<Tensor> read = reader.read(external(TensorProto::FLOAT, 2048));
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->in_memory());
  EXPECT_TRUE(bit_equal(*large, *read));
  EXPECT_TRUE(reader.refer(external(TensorProto::FLOAT, 16))->in_memory()) << "small";
  EXPECT_TRUE(reader.refer(external(TensorProto::BOOL, 8192))->in_memory()) << "made 0 and 1";
  EXPECT_TRUE(reader.refer(external(22, 16384))->in_memory()) << "INT4 is unpacked";
}

TEST(TensorProtoReading, KeepsOnlySoManyFilesOpen) {
  const TemporaryFolder folder;
  const Limits limits;
  TensorReader reader(limits, folder.path());
  int in_files = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "w" + std::to_string(i);
    test::write_bytes(folder / name, std::string(4096, '\1'));
    TensorProto proto = external_proto(name, "0");
    proto.set_dims(0, 1024);
    proto.set_data_type(TensorProto::FLOAT);
    const Result<Tensor> tensor = reader.refer(proto);
    ASSERT_TRUE(tensor.ok()) << tensor.error().message;
    in_files += tensor->in_memory() ? 0 : 1;
    EXPECT_EQ(tensor->at(1023), reader.read(proto)->at(0));
  }
  EXPECT_EQ(in_files, 256);
}

TEST(TensorFiles, RoundTrip) {
  const TemporaryFolder folder;
  const NamedTensor written{"w.grad", Tensor::from_f64(DType::f32, {2, 2}, {1, 2, 3, 4})};
  ASSERT_TRUE(write_tensor_file(folder / "grad_0.pb", written).ok());
  const Result<NamedTensor> back = read_tensor_file(folder / "grad_0.pb");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->name, "w.grad");
  EXPECT_TRUE(bit_equal(back->tensor, written.tensor));
}

TEST(TensorFiles, DamagedFilesAreRefusedAtEveryLength) {
  const TemporaryFolder folder;
  ASSERT_TRUE(
      write_tensor_file(folder / "t.pb", {"name", Tensor::from_f64(DType::f64, {3}, {1, 2, 3})}).ok());
  const std::string bytes = test::read_bytes(folder / "t.pb");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    test::write_bytes(folder / "cut.pb", bytes.substr(0, n));
    EXPECT_FALSE(read_tensor_file(folder / "cut.pb").ok()) << n;
  }
  EXPECT_EQ(read_tensor_file(folder / "none.pb").error().code, Errc::io);
}

TEST(TensorFiles, ExternalDataIsRefused) {
  const TemporaryFolder folder;
  test::write_bytes(folder / "w", std::string(8, 'x'));
  test::write_bytes(folder / "t.pb", external_proto("w").SerializeAsString());
  EXPECT_FALSE(read_tensor_file(folder / "t.pb").ok());
}

}  // namespace
}  // namespace gradloom
