#include "profiler/chrome_trace.h"
#include "tests/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace gradloom {
namespace {

using json = nlohmann::json;

KernelInfo info(std::int32_t plan_step, const char* op, const char* phase,
                std::vector<std::uint32_t> sources) {
  KernelInfo k;
  k.plan_step = plan_step;
  k.kernel = std::string(op) + " avx512";
  k.node = "node" + std::to_string(plan_step);
  k.op = op;
  k.phase = phase;
  k.scope = "layers.0/attn";
  k.passes = plan_step == 0 ? "fuse-gelu,fuse-elementwise" : "";
  for (const std::uint32_t source : sources) k.onnx_nodes.push_back("/n" + std::to_string(source));
  k.sources = std::move(sources);
  k.flops = 1e9;
  k.bytes_read = 100;
  k.bytes_written = 28;
  return k;
}

// Two steps of two micro-batches: forward 0 (nodes 0 1), forward 1 (node 2), backward of 2, backward of 1,
// backward of 0; optimizer.
TraceDocument document(const std::string& device = "cpu") {
  TraceDocument d;
  d.run_id = 5;
  d.model = "m \"quoted\" \x01\xff.onnx";
  d.device = device;
  d.environment = {{"cpu_model", "test"}};
  d.kernels = {info(0, "Gelu", "forward", {0, 1}), info(1, "Mul", "loss", {2}),
               info(2, "Mul", "backward", {2}),    info(3, "Gelu", "backward", {1}),
               info(4, "Erf", "backward", {0}),    info(5, "Optimizer", "optimizer", {})};
  d.live_bytes = {10, 20, 30, 20, 10, 0};
  std::int64_t now = 1'700'000'000'123'456'789;
  for (std::int64_t step : {2, 5}) {
    std::vector<KernelSample> samples;
    const std::int64_t start = now;
    for (std::int32_t micro = 0; micro < 2; ++micro) {
      for (std::int32_t k = 0; k < 5; ++k, now += 1501) samples.push_back({k, micro, now, 1501});
    }
    samples.push_back({5, 0, now, 999});
    now += 1'000'000;
    append_samples(samples, d.kernels, step, d.rows);
    d.steps.push_back({step, start, 17'000});
  }
  return d;
}

struct Span {
  std::int64_t start, end;
};
// Exact nanoseconds of a microsecond number with three decimals.
std::int64_t ns(const json& us) { return std::llround(us.get<double>() * 1000); }

void expect_nested(const json& trace) {
  std::map<std::pair<int, int>, std::vector<Span>> lanes;
  for (const json& e : trace["traceEvents"]) {
    ASSERT_TRUE(e["pid"].is_number_unsigned() && e["tid"].is_number_unsigned());
    if (e["ph"] != "X") continue;
    ASSERT_GE(ns(e["ts"]), 0);
    ASSERT_GE(ns(e["dur"]), 0);
    lanes[{e["pid"], e["tid"]}].push_back({ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])});
  }
  EXPECT_FALSE(lanes.empty());
  for (auto& [lane, spans] : lanes) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    std::vector<Span> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back().end <= span.start) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end, open.back().end) << "lane " << lane.second;
      }
      open.push_back(span);
    }
  }
}

TEST(ChromeTrace, TheHostOfALoopHasALaneOfItsOwn) {
  TraceDocument d = document();
  const std::int64_t at = d.steps[0].start_ns - 5000;
  d.host = nested_spans({{"data", "a \"set\"", at + 100, 2000}, {"engine", "net forward", at + 4000, 9000}},
                        2, at, at + 30'000);
  const json trace = json::parse(chrome_trace_json(d));
  expect_nested(trace);
  std::map<std::string, json> host;
  for (const json& e : trace["traceEvents"])
    if (e.value("cat", "") == "host") host[e["name"]] = e;
  ASSERT_EQ(host.size(), 3u);
  EXPECT_EQ(ns(host["step 2"]["ts"]), 0) << "the trace begins with the step";
  EXPECT_EQ(ns(host["a \"set\""]["dur"]), 2000);
  EXPECT_EQ(host["net forward"]["args"]["kind"], "engine");
  EXPECT_EQ(host["net forward"]["tid"], host["step 2"]["tid"]);
  d.rows.clear();
  expect_nested(json::parse(chrome_trace_json(d)));
}

TEST(ChromeTrace, ParsesAndNests) {
  const TraceDocument d = document();
  const json trace = json::parse(chrome_trace_json(d));
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'700'000'000'123'456'789);
  EXPECT_EQ(trace["distributedInfo"]["rank"], 0);
  EXPECT_EQ(trace["gradloom"]["run_id"], 5);
  expect_nested(trace);
  std::map<std::string, int> counts;
  std::set<std::string> steps;
  for (const json& e : trace["traceEvents"]) {
    const std::string ph = e["ph"];
    ++counts[ph + ":" + e.value("cat", "")];
    if (e.value("cat", "") == "user_annotation" &&
        e["name"].get<std::string>().rfind("ProfilerStep#", 0) == 0)
      steps.insert(e["name"]);
  }
  EXPECT_EQ(counts["X:cpu_op"], 22);
  EXPECT_EQ(steps, (std::set<std::string>{"ProfilerStep#2", "ProfilerStep#5"}));
  EXPECT_EQ(counts["C:"], 11) << "memory of the first step";
  // Per micro-batch: Gelu -> two backward kernels, Mul -> one.
  EXPECT_EQ(counts["s:fwdbwd"], 2 * 2 * 3);
  EXPECT_EQ(counts["f:fwdbwd"], 2 * 2 * 3);
}

TEST(ChromeTrace, ArgumentsAndExactTimes) {
  const TraceDocument d = document();
  const json trace = json::parse(chrome_trace_json(d));
  std::vector<json> ops;
  for (const json& e : trace["traceEvents"]) {
    if (e.value("cat", "") == "cpu_op") ops.push_back(e);
  }
  const json& first = ops[0];
  EXPECT_EQ(first["name"], "Gelu");
  EXPECT_EQ(first["args"]["onnx_node"], "/n0 /n1");
  EXPECT_EQ(first["args"]["scope"], "layers.0/attn");
  EXPECT_EQ(first["args"]["phase"], "forward");
  EXPECT_EQ(first["args"]["pass_chain"], "fuse-gelu,fuse-elementwise");
  EXPECT_EQ(first["args"]["flops"], 1e9);
  EXPECT_EQ(first["args"]["bytes"], 128);
  EXPECT_EQ(first["args"]["run_id"], 5);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(ns(ops[i]["ts"]), d.rows[i].start_ns - d.rows[0].start_ns);
    EXPECT_EQ(ns(ops[i]["dur"]), d.rows[i].duration_ns);
  }
}

TEST(ChromeTrace, ArrowsJoinForwardToBackwardOfOneNode) {
  const json trace = json::parse(chrome_trace_json(document()));
  std::map<std::int64_t, json> starts;
  std::map<std::int64_t, json> by_time;
  for (const json& e : trace["traceEvents"]) {
    if (e.value("cat", "") == "cpu_op") by_time[ns(e["ts"])] = e;
    if (e["ph"] == "s") starts[e["id"].get<std::int64_t>()] = e;
  }
  int checked = 0;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "f") continue;
    EXPECT_EQ(e["bp"], "e");
    const json& from = by_time.at(ns(starts.at(e["id"].get<std::int64_t>())["ts"]));
    const json& to = by_time.at(ns(e["ts"]));
    EXPECT_EQ(from["args"]["step"], to["args"]["step"]);
    EXPECT_EQ(from["args"]["micro"], to["args"]["micro"]);
    EXPECT_EQ(to["args"]["phase"], "backward");
    EXPECT_NE(from["args"]["phase"], "backward");
    EXPECT_NE(from["args"]["onnx_node"].get<std::string>().find(to["args"]["onnx_node"].get<std::string>()),
              std::string::npos);
    ++checked;
  }
  EXPECT_EQ(checked, 12);
}

TEST(ChromeTrace, OverlappingKernelsOfADeviceTakeLanes) {
  TraceDocument d = document("cuda:0");
  for (TraceRow& row : d.rows) row.duration_ns = 2000;  // longer than the distance of their starts
  d.kernels[3].stream = 1;
  for (TraceRow& row : d.rows) row.stream = row.plan_step == 3 ? 1 : 0;
  const json trace = json::parse(chrome_trace_json(d));
  expect_nested(trace);
  std::set<int> lanes, named;
  for (const json& e : trace["traceEvents"]) {
    if (e.value("cat", "") == "kernel") {
      lanes.insert(e["tid"].get<int>());
      EXPECT_EQ(e["args"]["stream"], e["args"]["plan_step"] == 3 ? 1 : 0);
    }
    if (e["name"] == "thread_name") named.insert(e["tid"].get<int>());
  }
  EXPECT_GE(lanes.size(), 3u);
  for (const int lane : lanes) EXPECT_TRUE(named.count(lane)) << lane;
}

// As other profilers see them: a kernel that runs twice in a step is launched twice.
TEST(ChromeTrace, EveryExecutionHasItsOwnLaunch) {
  TraceDocument d;
  d.device = "cuda:0";
  d.kernels = {info(0, "Gelu", "forward", {0})};
  append_samples({{0, 0, 1'000'000, 50'000}, {0, 0, 1'100'000, 50'000}}, d.kernels, 1, d.rows);
  d.steps.push_back({1, 900'000, 300'000});
  for (const std::int64_t start_ns : {910'000, 950'000})
    d.activities.push_back({Activity::Kind::api, -1, 0, 0, 1, start_ns, 5'000, 0, "cudaLaunchKernel"});
  std::map<std::int64_t, std::int64_t> from, to;  // times of the ends by arrow
  const json trace = json::parse(chrome_trace_json(d));
  for (const json& e : trace["traceEvents"])
    if (e.value("cat", "") == "ac2g") (e["ph"] == "s" ? from : to)[e["id"].get<std::int64_t>()] = ns(e["ts"]);
  ASSERT_EQ(from.size(), 2u);
  std::set<std::pair<std::int64_t, std::int64_t>> arrows;
  for (const auto& [id, start] : from) arrows.emplace(start, to.at(id));
  EXPECT_EQ(arrows, (std::set<std::pair<std::int64_t, std::int64_t>>{{10'000, 100'000}, {50'000, 200'000}}));
}

// Per micro-batch: the batch goes up on stream 1 and over on stream 0, then one launch starts its five
// kernels; the optimizer has its own.
TEST(ChromeTrace, StreamsOfAGpuAndTheLaunchesHaveTracks) {
  TraceDocument d = document("cuda:0");
  for (const TraceRow& row : d.rows) {
    const bool first = row.plan_step == 0;
    if (first || row.plan_step == 5)
      d.activities.push_back({Activity::Kind::api, -1, row.plan_step, row.micro, row.step, row.start_ns - 100,
                              50, 0, "launch of the recorded step"});
    if (!first) continue;
    d.activities.push_back({Activity::Kind::copy, 1, -1, 0, row.step, row.start_ns - 900, 300, 4096, "copy"});
    if (row.micro > 0) continue;  // before the second one the stream is busy
    d.activities.push_back({Activity::Kind::fill, 0, -1, 0, row.step, row.start_ns - 30, 30, 64, "fill"});
  }
  d.activities.push_back(
      {Activity::Kind::api, -1, 77, 0, 2, d.rows[0].start_ns + 10, 5, 0, "launch of what was not traced"});
  const json trace = json::parse(chrome_trace_json(d));
  expect_nested(trace);
  std::map<std::string, int> counts;
  std::map<std::string, std::set<int>> lanes;
  std::map<int, std::string> names;
  std::map<std::int64_t, json> starts, kernels, launches;
  for (const json& e : trace["traceEvents"]) {
    const std::string category = e.value("cat", "");
    ++counts[e["ph"].get<std::string>() + ":" + category];
    if (e["ph"] == "X") lanes[category].insert(e["tid"].get<int>());
    if (e["name"] == "thread_name") names[e["tid"].get<int>()] = e["args"]["name"];
    if (category == "kernel") kernels[ns(e["ts"])] = e;
    if (category == "cuda_runtime") launches[ns(e["ts"])] = e;
    if (category == "gpu_memcpy") {
      EXPECT_EQ(e["args"]["bytes"], 4096);
    }
    if (e["ph"] == "s" && category == "ac2g") starts[e["id"].get<std::int64_t>()] = e;
  }
  EXPECT_EQ(counts["X:kernel"], 22);
  EXPECT_EQ(counts["X:gpu_memcpy"], 4);
  EXPECT_EQ(counts["X:gpu_memset"], 2);
  EXPECT_EQ(counts["X:cuda_runtime"], 7);
  EXPECT_EQ(counts["s:ac2g"], 6) << "what was not traced has no arrow";
  EXPECT_EQ(counts["f:ac2g"], 6);
  EXPECT_EQ(lanes["kernel"], lanes["gpu_memset"]);
  EXPECT_EQ(names[*lanes["kernel"].begin()], "stream 0 (compute)");
  EXPECT_EQ(names[*lanes["gpu_memcpy"].begin()], "stream 1 (upload)");
  EXPECT_EQ(names[*lanes["cuda_runtime"].begin()], "CPU launches");
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "f" || e.value("cat", "") != "ac2g") continue;
    const json &from = launches.at(ns(starts.at(e["id"].get<std::int64_t>())["ts"])),
               &to = kernels.at(ns(e["ts"]));
    for (const char* key : {"step", "micro", "plan_step", "correlation"})
      EXPECT_EQ(from["args"][key], to["args"][key]) << key;
  }
}

TEST(ChromeTrace, EmptyTraceIsValid) {
  const json trace = json::parse(chrome_trace_json({}));
  EXPECT_TRUE(trace["traceEvents"].is_array());
}

class TraceFiles : public ::testing::Test {
 protected:
  std::string read(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");  // reads plain files too
    std::string out(1 << 20, '\0');
    out.resize(static_cast<std::size_t>(gzread(file, out.data(), 1 << 20)));
    gzclose(file);
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(TraceFiles, TheNameChoosesTheFormat) {
  const TraceDocument d = document();
  for (const char* name : {"t.json", "t.json.gz", "t.csv", "t.csv.gz", "plain"}) {
    const std::string path = folder_ / name;
    ASSERT_TRUE(write_trace(d, path).ok()) << name;
    const bool csv = std::string(name).find("csv") != std::string::npos,
               gz = std::string(name).find(".gz") != std::string::npos;
    EXPECT_EQ(read(path), csv ? trace_csv(d) : chrome_trace_json(d)) << name;
    std::ifstream raw(path, std::ios::binary);
    EXPECT_EQ(raw.get() == 0x1f, gz) << name;
  }
  EXPECT_EQ(write_trace(d, folder_ / "none/t.json").error().code, Errc::io);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()),
                          std::filesystem::directory_iterator()),
            5)
      << "no leftovers";
}

TEST(TraceCsv, OneLinePerPlanStepAndNoFormulas) {
  TraceDocument d = document();
  d.kernels[1].node = "=cmd|' /C calc'!A0";
  d.kernels[2].node = "a,\"b\"";
  const std::string csv = trace_csv(d);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
  EXPECT_NE(csv.find("\n0,node0,Gelu avx512,Gelu,forward,layers.0/attn,/n0 "
                     "/n1,fuse-elementwise,1e+09,128,4,6004,1501.0,1501,1501,1501,0.0\n"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\n1,'=cmd"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"a,\"\"b\"\"\""), std::string::npos) << csv;
}

TEST(ChromeTrace, EachRankIsAProcess) {
  TraceDocument d = document();
  d.ranks = {{"a"}, {"b"}};
  for (TraceRow row : d.rows) {
    row.rank = 1;
    row.start_ns -= 700;
    d.other_ranks.push_back(row);
  }
  const std::int64_t start = d.rows[0].start_ns;
  d.exchanges = {{0, 3, 0, 2, start + 5000, 900, 300, 64}, {1, 3, 0, 2, start + 5300, 600, 0, 64}};
  const json trace = json::parse(chrome_trace_json(d));
  expect_nested(trace);
  EXPECT_EQ(trace["distributedInfo"], (json{{"rank", 0}, {"world_size", 2}}));
  std::map<int, int> kernels, waits, exchanges, steps;
  std::map<int, std::string> names;
  for (const json& e : trace["traceEvents"]) {
    const int process = e["pid"];
    if (e["ph"] == "M" && e["name"] == "process_name") names[process] = e["args"]["name"];
    if (e["ph"] != "X") continue;
    const std::string category = e["cat"], name = e["name"];
    kernels[process] += category == "cpu_op";
    steps[process] += name.rfind("ProfilerStep#", 0) == 0;
    exchanges[process] += name == "exchange";
    waits[process] += name == "wait for the last rank";
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{1, "gradloom cpu, rank 0 of 2 on a"},
                                               {2, "gradloom cpu, rank 1 of 2 on b"}}));
  EXPECT_EQ(kernels, (std::map<int, int>{{1, 22}, {2, 22}}));
  EXPECT_EQ(steps, (std::map<int, int>{{1, 2}, {2, 2}}));
  EXPECT_EQ(exchanges, (std::map<int, int>{{1, 1}, {2, 1}}));
  EXPECT_EQ(waits, (std::map<int, int>{{1, 1}, {2, 0}}));

  const json one = json::parse(chrome_trace_json(of_rank(d, 1)));
  expect_nested(one);
  EXPECT_EQ(one["distributedInfo"], (json{{"rank", 1}, {"world_size", 2}}));
  for (const json& e : one["traceEvents"]) EXPECT_EQ(e["pid"], 2);
}

}  // namespace
}  // namespace gradloom
