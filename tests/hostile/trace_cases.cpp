// Row T: traces of other profilers.
#include <zlib.h>

#include <cstdlib>

#include "tests/hostile/corpus.h"

namespace gradloom::hostile {
namespace {

constexpr int kBad = 3, kLimit = 4;

std::string op(const std::string& name, const std::string& times) {
  return R"({"ph":"X","cat":"cpu_op","name":")" + name + R"(","pid":1,"tid":1,)" + times + "}";
}

std::string packed(const std::string& text) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

std::vector<Case> trace_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const std::string& bytes, int code, const std::string& says) {
    cases.push_back({"T",
                     name,
                     [bytes](const Place& place) { place.write("t.json", bytes); },
                     {{{"import", "t.json", "--session", "s.db"}, code, says}}});
  };
  const std::string good = op("aten::mm", R"("ts":1,"dur":2)");
  add("empty", "", kBad, "breaks off");
  add("cut", "{\"traceEvents\":[" + good + ",{\"ph\":\"X\",\"na", kBad, "breaks off");
  add("no events", R"({"traceEvents":{}})", kBad, "no list of events");
  add("events of numbers", "[1,2.5,true,null,\"x\",[[]]]", kBad, "neither operators nor kernels");
  add("negative durations", "[" + op("aten::mm", R"("ts":1,"dur":-2)") + "]", kBad,
      "neither operators nor kernels");
  add("times of 300 digits", "[" + op("aten::mm", R"("ts":)" + std::string(300, '9') + R"(,"dur":1)") + "]",
      kBad, "neither operators nor kernels");
  add("a number without end", "[" + std::string(3'000'000, '7') + "]", kBad, "more than 1024 letters");
  add("a name of 20 MiB", "[" + op(std::string(20 << 20, 'n'), R"("ts":1,"dur":2)") + "]", kLimit,
      "a string of more than 16 MiB");
  add("a million levels", std::string(1'000'000, '[') + std::string(1'000'000, ']'), kLimit, "nests deeper");
  add("escapes in names", "[" + op("aten::\\u001b[2J\\n\\u202e", R"("ts":1,"dur":2)") + "]", 0,
      "1 kernel in 1 execution");
  std::string nested = "[";
  for (int i = 0; i < 60'000; ++i)
    nested += (i == 0 ? "" : ",") +
              op(i % 2 == 0 ? "aten::mm" : "m" + std::to_string(i),
                 R"("ts":)" + std::to_string(i) + R"(,"dur":)" + std::to_string(120'000 - 2 * i));
  add("60000 spans inside one another", nested + "]", 0, "in 60000 executions");
  add("320 MB of blanks in a small archive", packed(std::string(320 << 20, ' ')), kLimit,
      "200 times its size");
  add("half an archive", packed("[" + good + "]").substr(0, 40), kBad, "compression ends in the middle");
  add("an empty database", std::string("SQLite format 3\0", 16) + std::string(600, '\0'), kBad, "t.json");
  return cases;
}

}  // namespace gradloom::hostile
