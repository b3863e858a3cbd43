#include "engine/base/text.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/glob.h"

namespace gradloom {
namespace {

TEST(Text, NumbersRoundTrip) {
  for (double v : {0.1, 1e-3, 1.0, 123456789.123, 5e-324, 1.7976931348623157e308})
    EXPECT_EQ(std::strtod(number_text(v).c_str(), nullptr), v);
  EXPECT_EQ(number_text(0.1), "0.1");
}

TEST(Text, UnitsAreReadable) {
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(3.2 * 1024 * 1024), "3.20 MiB");
  EXPECT_EQ(duration_text(950), "950 ns");
  EXPECT_EQ(duration_text(1.234e6), "1.23 ms");
  EXPECT_EQ(duration_text(12.3e9), "12.3 s");
  EXPECT_EQ(count_text(2.68e9, "FLOP"), "2.68 GFLOP");
  EXPECT_EQ(count_text(24, "FLOP"), "24 FLOP");
  EXPECT_EQ(count_text(0, "FLOP"), "0 FLOP");
  EXPECT_EQ(count_text(2.5, "FLOP/s"), "2.50 FLOP/s");
  EXPECT_EQ(count_text(4, ""), "4");
  EXPECT_EQ(count_text(1204, ""), "1.20 k");
  EXPECT_EQ(plural_text(1, "tensor"), "1 tensor");
  EXPECT_EQ(plural_text(0, "tensor"), "0 tensors");
  EXPECT_EQ(plural_text(2, "tensor"), "2 tensors");
}

TEST(Text, ForeignNamesAreEscaped) {
  EXPECT_EQ(escaped("layers.0/µ"), "layers.0/µ");
  EXPECT_EQ(escaped("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
  EXPECT_EQ(escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(escaped("x\xe2\x80\xaey"), "x\\xe2\\x80\\xaey");  // right-to-left override
  EXPECT_EQ(escaped("\xc0\xaf"), "\\xc0\\xaf");               // overlong slash
}

TEST(Text, BytesAsHexadecimal) {
  const std::vector<std::uint8_t> bytes{0, 255, 16, 9};
  EXPECT_EQ(hex_from_bytes(bytes), "00ff1009");
  EXPECT_EQ(bytes_from_hex("00ff1009"), bytes);
  EXPECT_EQ(bytes_from_hex(""), std::vector<std::uint8_t>());
  for (const char* bad : {"0", "0g", "FF", " 1", "0x"}) EXPECT_FALSE(bytes_from_hex(bad)) << bad;
}

TEST(Text, Globs) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("layers.*.weight", "layers.0.attn.weight"));
  EXPECT_TRUE(glob_match("?te.*", "wte.weight"));
  EXPECT_FALSE(glob_match("layers.*.bias", "layers.0.weight"));
  EXPECT_FALSE(glob_match("", "a"));
  const std::vector<std::string> globs{"wte.*", "ln_?"};
  EXPECT_TRUE(fits_any(globs, "ln_f"));
  EXPECT_FALSE(fits_any(globs, "head.weight"));
  EXPECT_FALSE(fits_any({}, "head.weight"));
}

// What stands for itself, and stars that are met by stars.
TEST(Text, GlobsTakeEscapedCharactersAsTheyAre) {
  EXPECT_TRUE(glob_match("w\\*", "w*"));
  EXPECT_FALSE(glob_match("w\\*", "wte"));
  EXPECT_FALSE(glob_match("w\\?", "wx"));
  EXPECT_TRUE(glob_match("\\\\*", "\\wte"));
  EXPECT_TRUE(glob_match("a\\b", "a\\b")) << "before any other character it is itself";
  EXPECT_TRUE(glob_match("a\\", "a\\"));
  EXPECT_TRUE(glob_match("*b", "*ab"));
  EXPECT_TRUE(glob_match("*\\*", "ab*"));
  EXPECT_FALSE(glob_match("*\\*", "ab*c"));
  for (const std::string name : {"w*", "layers.?", "a\\*b", "\\", "\\?\\\\*", "plain", ""}) {
    EXPECT_TRUE(glob_match(glob_of(name), name)) << glob_of(name);
    for (const std::string other : {"w", "wx", "layers.0", "a\\xb", "ab", "\\x", "\\?\\", "x"})
      EXPECT_FALSE(glob_match(glob_of(name), other)) << glob_of(name) << " fits " << other;
  }
}

// The nearest of what was meant for a name as it is is that name, whatever stands in it.
TEST(Text, NearestToGlobReadsEscapes) {
  const std::vector<std::string> names{"w", "w*", "w**", "\\w", "layers.0.weight"};
  for (const std::string& name : names) EXPECT_EQ(nearest_to_glob(glob_of(name), names), name);
  EXPECT_EQ(nearest_to_glob("w*?", names), "w");
  EXPECT_EQ(nearest_to_glob("layer.?.weight*", names), "layers.0.weight");
  EXPECT_EQ(nearest_to_glob("w\\*\\**", names), "w**") << "the last one is any text";
  EXPECT_EQ(nearest_to_glob("\\w", names), "\\w") << "before any other character it is itself";
  EXPECT_EQ(nearest_to_glob("*", {}), "");
}

TEST(Text, NearestNameByEdits) {
  const std::vector<std::string> names{"cse", "default", "fuse-gelu"};
  EXPECT_EQ(nearest_name("defaut", names), "default");
  EXPECT_EQ(nearest_name("fuse-glue", names), "fuse-gelu");
  EXPECT_EQ(nearest_name("", names), "cse")
      << "the first of several is the one with the fewest letters to add";
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(unknown_name("pass", "csee", names),
            "unknown pass 'csee' (known: cse, default, fuse-gelu); did you mean cse?");
  EXPECT_EQ(unknown_name("pass", "qqqqqqqq\n", names),
            "unknown pass 'qqqqqqqq\\x0a' (known: cse, default, fuse-gelu)");
}

}  // namespace
}  // namespace gradloom
