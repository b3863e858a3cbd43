// Files of strangers: each ends in one error, or in what is usable of them.
#include "profiler/import/chrome_events.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/profiler/import/trace_text.h"

namespace gradloom::test {
namespace {

std::string one(const std::string& fields) {
  return R"({"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,)" + fields + "}]}";
}

Errc code_of(const std::string& text) {
  const auto read = read_text(text);
  return read.ok() ? Errc::bug : read.error().code;
}

TEST(ChromeEvents, TimesAreExactToTheNanosecond) {
  const auto read = read_chrome_events(
      TraceFile(
          R"([{"ph":"X","cat":"cpu_op","name":"a::a","pid":1,"tid":1,"ts":1712195495519689.123,"dur":0.25},)"
          R"({"ph":"X","cat":"cpu_op","name":"a::b","pid":1,"tid":1,"ts":1712195495519690,"dur":1e1}])")
          .path(),
      {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->events.size(), 2u);
  EXPECT_EQ(read->events[0].duration_ns, 250);
  EXPECT_EQ(read->events[1].start_ns, 877);
  EXPECT_EQ(read->events[1].duration_ns, 10'000);
}

TEST(ChromeEvents, BrokenFilesAreBadInput) {
  const std::string whole = one(R"("ts":1,"dur":2)");
  for (std::size_t cut : {1u, 20u, 60u})
    EXPECT_EQ(code_of(whole.substr(0, whole.size() - cut)), Errc::bad_input) << cut;
  for (const char* text : {"", "{", "[]", "{}", "null", "3", "\"x\"", "[1,2,[]]", "{\"traceEvents\":3}",
                           "hello", "[{\"ph\":\"X\"}]", "{\"traceEvents\":[{}]}", "\xff\xfe"})
    EXPECT_EQ(code_of(text), Errc::bad_input) << text;
  const auto read = read_text(whole.substr(0, whole.size() - 3));
  EXPECT_NE(read.error().message.find("t.json: it is no whole JSON: it breaks off or goes wrong at byte"),
            std::string::npos)
      << read.error().message;
  EXPECT_EQ(read_json_trace("/nowhere/t.json").error().code, Errc::io);
  EXPECT_EQ(read_json_trace("/").error().code, Errc::io);
}

TEST(ChromeEvents, EventsWithoutTimesAreCounted) {
  for (const char* fields :
       {R"("ts":1,"dur":-2)", R"("ts":1)", R"("ts":"1","dur":2)", R"("ts":1e300,"dur":2)",
        R"("ts":null,"dur":[2])", R"("ts":18446744073709551615,"dur":1)", R"("ts":1,"dur":1e99)"}) {
    EXPECT_EQ(code_of(one(fields)), Errc::bad_input) << fields;
    const auto events = read_chrome_events(TraceFile(one(fields)).path(), {});
    ASSERT_TRUE(events.ok()) << fields;
    EXPECT_EQ(events->unreadable, 1) << fields;
  }
  KinetoText trace;
  trace.op("aten::mm", 1, 2).op("aten::mm", 3, -2);
  const auto read = read_text(trace.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->notes.back(), "1 event without a time");
}

TEST(ChromeEvents, ArgumentsOfAnyTypeAreTaken) {
  for (const char* args :
       {R"("Sequence number":"x")", R"("Input Dims":3)", R"("Input Dims":[[[[[[1]]]]]])",
        R"("Input type":{"a":[1]})", R"("Input Dims":[["a",1e400,-3]],"Input type":[1,null])",
        R"("correlation":1e30,"External id":[],"bytes":-5,"device":-7,"stream":99999999999)"}) {
    const auto read = read_text(one(std::string(R"("ts":1,"dur":2,"args":{)") + args + "}"));
    if (std::string(args).find("1e400") != std::string::npos) {
      EXPECT_EQ(read.error().code, Errc::bad_input) << "a number that no double holds";
      continue;
    }
    ASSERT_TRUE(read.ok()) << args << ": " << read.error().message;
    EXPECT_EQ(read->kernels.size(), 1u);
  }
}

TEST(ChromeEvents, NamesOfStrangersAreKeptWhole) {
  const auto read = read_text(
      R"([{"ph":"X","cat":"cpu_op","name":"a::\u001b[31m\u0000b\n","pid":-1,"tid":"x","ts":0,"dur":1}])");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->kernels[0].info.op, std::string("a::\x1b[31m\0b\n", 11));
  const auto cut = read_text(R"([{"ph":"X","cat":"cpu_op","name":"a::)" + std::string(100'000, 'x') +
                             R"(","pid":1,"tid":1,"ts":0,"dur":1}])");
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->kernels[0].info.op.size(), kMostImportName);
}

TEST(ChromeEvents, LimitsAreTold) {
  EXPECT_EQ(code_of(std::string(100, '[') + std::string(100, ']')), Errc::limit) << "deep";
  EXPECT_EQ(code_of("[\"" + std::string(17 << 20, 'x') + "\"]"), Errc::limit) << "a string";
  EXPECT_EQ(code_of("[" + std::string(5000, '1') + "]"), Errc::bad_input) << "a number";
}

TEST(ChromeEvents, ManySpansInsideOneAnother) {
  std::string text = R"({"traceEvents":[)";
  constexpr int kDeep = 300'000;
  for (int i = 0; i < kDeep; ++i)
    text += fmt::format(R"({}{{"ph":"X","cat":"{}","name":"m{}","pid":1,"tid":1,"ts":{},"dur":{}}})",
                        i == 0 ? "" : ",", i % 2 == 0 ? "user_annotation" : "cpu_op", i % 100, i,
                        2 * (kDeep - i));
  const auto read = read_text(text + "]}");
  ASSERT_TRUE(read.ok()) << read.error().message;
  std::int64_t total = 0;
  for (const KernelSample& sample : read->steps[0].samples) total += sample.duration_ns;
  EXPECT_LE(total, read->steps[0].duration_ns);
  for (const ImportedKernel& kernel : read->kernels) EXPECT_LE(kernel.info.scope.size(), 1024u);
}

TEST(ChromeEvents, GzipIsReadAndItsDamageTold) {
  KinetoText trace;
  for (int i = 0; i < 200; ++i) trace.op("aten::mm", i, 0.5);
  const TraceFile file("", "t.json.gz");
  const gzFile out = gzopen(file.path().c_str(), "wb");
  const std::string text = trace.text();
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  const auto read = read_json_trace(file.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->steps[0].samples.size(), 200u);
  std::ifstream in(file.path(), std::ios::binary);
  std::string packed{std::istreambuf_iterator<char>(in), {}};
  const TraceFile half(packed.substr(0, packed.size() / 2));
  EXPECT_EQ(read_json_trace(half.path()).error().code, Errc::bad_input);
  packed[packed.size() / 2] ^= 0x55;
  EXPECT_EQ(read_json_trace(TraceFile(packed).path()).error().code, Errc::bad_input);
}

TEST(ChromeEvents, ABombEndsEarly) {
  const TraceFile file("", "t.json.gz");
  const gzFile out = gzopen(file.path().c_str(), "wb1");
  std::string same = "[";
  while (same.size() < 1 << 20) same += "0,0,0,0,0,0,0,0,";
  for (int i = 0; i < 80; ++i, same[0] = ' ') gzwrite(out, same.data(), static_cast<unsigned>(same.size()));
  gzclose(out);
  const auto read = read_json_trace(file.path());
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("200 times its size"), std::string::npos) << read.error().message;
  EXPECT_EQ(code_of("[" + std::string(1 << 20, ' ') + "]"), Errc::bad_input) << "blanks";
}

}  // namespace
}  // namespace gradloom::test
