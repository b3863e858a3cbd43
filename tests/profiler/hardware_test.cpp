#include "profiler/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace gradloom {
namespace {

constexpr const char* kMeasured =
    R"({"device":"cpu","name":"a processor","memory_bytes":1000000,"launch_ns":500,
        "memory":[{"bytes":1048576,"bytes_per_second":2e11},{"bytes":65536,"bytes_per_second":5e11}],
        "products":[{"type":"f32","size":512,"flops_per_second":4e11},{"type":"bf16","size":512,"flops_per_second":8e11}]})";

TEST(Hardware, DataSheetsAreWhole) {
  std::set<std::string> ids;
  for (const Hardware& h : known_hardware()) {
    EXPECT_TRUE(ids.insert(h.id).second) << h.id;
    EXPECT_GT(h.memory_bytes, 1e10) << h.id;
    EXPECT_GT(h.processors, 0) << h.id;
    EXPECT_GT(h.bytes_per_ns(1e9), 100) << h.id;
    // Units for products are why 16 bit are faster, and nothing is faster in f64.
    EXPECT_GE(h.product_flops_per_ns("f16"), 2 * h.product_flops_per_ns("f32")) << h.id;
    EXPECT_LE(h.product_flops_per_ns("f64"), h.product_flops_per_ns("f32")) << h.id;
    // Where there are products of 8 bits they are twice as fast as those of 16.
    if (const double f8 = h.product_flops_per_ns("f8e4m3fn"); f8 > 0) {
      EXPECT_NEAR(f8, 2 * h.product_flops_per_ns("bf16"), 0.02 * f8) << h.id;
    }
    EXPECT_EQ(find_hardware(h.id)->name, h.name);
  }
  EXPECT_EQ(find_hardware("t4")->product_flops_per_ns("bf16"), 0);  // it has none
  EXPECT_EQ(find_hardware("a100")->product_flops_per_ns("f8e4m3fn"), 0);
  EXPECT_EQ(find_hardware("h200")->product_flops_per_ns("f8e4m3fn"), 1979e3);
}

TEST(Hardware, ACardIsFoundByTheNameOfItsDevice) {
  for (const auto& [name, id] : {std::pair("NVIDIA H100 80GB HBM3", "h100"),
                                 {"NVIDIA A100-SXM4-80GB", "a100"},
                                 {"NVIDIA A10G", "a10g"},
                                 {"Tesla T4", "t4"},
                                 {"Tesla V100-SXM2-32GB, AMD EPYC 7742, 8 threads", "v100"},
                                 {"NVIDIA GeForce RTX 4090", "rtx4090"},
                                 {"AMD Instinct MI300X", "mi300x"},
                                 {"AMD Instinct MI250X / MI250", "mi250x"}}) {
    ASSERT_NE(hardware_of_device(name), nullptr) << name;
    EXPECT_EQ(hardware_of_device(name)->id, id);
  }
  for (const Hardware& h : known_hardware()) EXPECT_EQ(hardware_of_device(h.name), &h);
  for (const char* name :
       {"", "AMD EPYC 9654, 2 threads, x86-64-v4", "NVIDIA RTX 4000 Ada", "Radeon RX 7900"})
    EXPECT_EQ(hardware_of_device(name), nullptr) << name;
}

TEST(Hardware, AMeasuredOneServesSmallKernelsFromItsCaches) {
  const auto h = parse_hardware(kMeasured, "here.json");
  ASSERT_TRUE(h.ok()) << h.error().message;
  EXPECT_EQ(h->name, "a processor");
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(10), 500);  // less than was measured: no slower
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(65536), 500);
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(1048575), 500);
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(1048576), 200);
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(1e12), 200);
  EXPECT_DOUBLE_EQ(h->product_flops_per_ns("bf16"), 800);
  EXPECT_DOUBLE_EQ(h->vectors, 400);
  EXPECT_DOUBLE_EQ(h->launch_ns, 500);
}

TEST(Hardware, HasKernelsInEachTypeWhereTheyWereMeasured) {
  EXPECT_TRUE(parse_hardware(kMeasured, "old.json")->types.empty());
  const std::string head =
      std::string(kMeasured).substr(0, std::string(kMeasured).rfind('}')) + ",\"types\":";
  const auto h = parse_hardware(head + R"([{"op":"Add","type":"bf16","size":4096,"ns":250.5}]})", "x");
  ASSERT_TRUE(h.ok()) << h.error().message;
  EXPECT_EQ(h->types, (std::vector<TypeTime>{{"Add", "bf16", 4096, 250.5}}));
  std::string many = "[";
  for (int i = 0; i < 2000; ++i)
    many += std::string(i ? "," : "") + R"({"op":"Add","type":"bf16","size":1,"ns":1})";
  for (const std::string& rows :
       {std::string("7"), std::string("[7]"), std::string(R"([{"op":"Add","size":1,"ns":1}])"),
        std::string(R"([{"op":"Add","type":3,"size":1,"ns":1}])"),
        std::string(R"([{"op":"Add","type":"f32","size":0,"ns":1}])"),
        std::string(R"([{"op":"Add","type":"f32","size":1}])"), many + "]"})
    EXPECT_EQ(parse_hardware(head + rows + "}", "x").error().code, Errc::bad_input) << rows.substr(0, 60);
}

TEST(Hardware, NoCacheIsSlowerThanWhatHoldsMore) {
  const auto h = parse_hardware(
      R"({"memory":[{"bytes":100,"bytes_per_second":1e9},{"bytes":1000,"bytes_per_second":3e9},)"
      R"({"bytes":10000,"bytes_per_second":2e9}],"products":[{"type":"f32","flops_per_second":1e9}]})",
      "x");
  ASSERT_TRUE(h.ok());
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(100), 3);
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(5000), 3);
  EXPECT_DOUBLE_EQ(h->bytes_per_ns(10000), 2);
}

TEST(Hardware, IsFoundByFileToo) {
  const auto path = std::filesystem::temp_directory_path() / "gradloom-hardware.json";
  std::ofstream(path) << kMeasured;
  EXPECT_EQ(find_hardware(path.string())->name, "a processor");
  std::filesystem::remove(path);
  EXPECT_EQ(find_hardware(path.string()).error().code, Errc::io);
  const Error unknown = find_hardware("h300").error();
  EXPECT_EQ(unknown.code, Errc::usage);
  EXPECT_NE(unknown.message.find("h200"), std::string::npos) << unknown.message;
}

TEST(Hardware, OtherFilesAreRefused) {
  std::string many = R"({"memory":[)";
  for (int i = 0; i < 100; ++i) many += (i ? "," : "") + std::string(R"({"bytes":1,"bytes_per_second":1})");
  many += R"(],"products":[{"type":"f32","flops_per_second":1}]})";
  for (
      const std::string& text :
      {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"memory":[],"products":[]})"),
       std::string(R"({"memory":[1],"products":[1]})"),
       std::string(
           R"({"memory":[{"bytes":1,"bytes_per_second":0}],"products":[{"type":"f32","flops_per_second":1}]})"),
       std::string(
           R"({"memory":[{"bytes":1,"bytes_per_second":1e40}],"products":[{"type":"f32","flops_per_second":1}]})"),
       std::string(
           R"({"memory":[{"bytes":1,"bytes_per_second":1}],"products":[{"type":"f99","flops_per_second":1}]})"),
       std::string(
           R"({"memory":[{"bytes":1,"bytes_per_second":1}],"products":[{"type":7,"flops_per_second":1}]})"),
       many}) {
    const auto h = parse_hardware(text, "x.json");
    ASSERT_FALSE(h.ok()) << text;
    EXPECT_EQ(h.error().code, Errc::bad_input) << text;
    EXPECT_EQ(h.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace gradloom
