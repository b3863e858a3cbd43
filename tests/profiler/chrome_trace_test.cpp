#include "profiler/chrome_trace.h"
#include "tests/profiler/trace_documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace gradloom {
namespace {

using json = nlohmann::json;

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

TEST(ChromeTrace, StreamsOfAGpuAndTheLaunchesHaveTracks) {
  const TraceDocument d = gpu_document();
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

TEST(ChromeTrace, EachRankIsAProcess) {
  const TraceDocument d = ranks_document();
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

TEST(ChromeTrace, EachThreadHasATrack) {
  TraceDocument d = document();
  const TraceRow& row = d.rows[1];
  d.threads = {{0, row.plan_step, row.micro, row.step, row.start_ns, row.duration_ns, 900},
               {1, row.plan_step, row.micro, row.step, row.start_ns + 10, 700, 650}};
  const json trace = json::parse(chrome_trace_json(d));
  std::map<std::string, int> tracks;
  for (const json& e : trace["traceEvents"])
    if (e["name"] == "thread_name") tracks[e["args"]["name"]] = e["tid"];
  ASSERT_TRUE(tracks.count("thread 1") == 1 && tracks.count("thread 2") == 1) << trace.dump(1);
  int found = 0;
  for (const json& e : trace["traceEvents"]) {
    if (e.value("cat", "") != "thread" || e["tid"] != tracks["thread 2"]) continue;
    ++found;
    EXPECT_EQ(e["name"], d.kernels[static_cast<std::size_t>(row.plan_step)].op);
    EXPECT_EQ(e["dur"], 0.7);
    EXPECT_EQ(e["args"]["busy_us"], 0.65);
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace gradloom
