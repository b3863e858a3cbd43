#include "profiler/perfetto_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "profiler/chrome_trace.h"
#include "tests/profiler/trace_documents.h"
#include "tests/proto_json.h"

namespace gradloom {
namespace {

using json = nlohmann::json;

std::string perfetto(const TraceDocument& d) {
  std::string text;
  EXPECT_TRUE(write_perfetto_trace(d, [&](std::string_view piece) -> Status {
                text += piece;
                return {};
              }).ok());
  return text;
}

// What both formats must tell alike. Times in ns.
struct Told {
  std::vector<json> slices;           // process, lane, start, duration, category, name, arguments; sorted
  std::vector<json> arrows;           // process, lane and start of both ends; sorted
  std::vector<json> live_bytes;       // process, time, bytes
  std::map<std::string, json> names;  // "1" of processes, "1/0" of lanes
  void sort() {
    for (std::vector<json>* list : {&slices, &arrows, &live_bytes}) std::sort(list->begin(), list->end());
  }
};

Told told_by_chrome(const TraceDocument& d) {
  Told told;
  std::map<std::int64_t, json> from, to;
  const auto ns = [](const json& us) { return std::llround(us.get<double>() * 1000); };
  const json trace = json::parse(chrome_trace_json(d));
  for (const json& e : trace["traceEvents"]) {
    const std::string kind = e["ph"], process = e["pid"].dump();
    if (kind == "X")
      told.slices.push_back({e["pid"], e["tid"], ns(e["ts"]), ns(e["dur"]), e["cat"], e["name"],
                             e.value("args", json::object())});
    if (kind == "s" || kind == "f")
      (kind == "s" ? from : to)[e["id"].get<std::int64_t>()] = {e["pid"], e["tid"], ns(e["ts"])};
    if (kind == "C") told.live_bytes.push_back({e["pid"], ns(e["ts"]), e["args"]["live"]});
    if (kind == "M")
      told.names[e["name"] == "process_name" ? process : process + "/" + e["tid"].dump()] = e["args"]["name"];
  }
  for (const auto& [id, end] : from) told.arrows.push_back({end, to.at(id)});
  told.sort();
  return told;
}

std::int64_t number(const json& of, const char* field) {
  return of.contains(field) ? of[field].is_string() ? std::stoll(of[field].get<std::string>())
                                                    : of[field].get<std::int64_t>()
                            : 0;
}

class PerfettoReader {
 public:
  Told read(const std::string& bytes) {
    const json trace = reader_.read("Trace", bytes);
    EXPECT_EQ(number(trace["packet"][0], "sequence_flags"), 3) << "texts of before are forgotten";
    for (const json& packet : trace["packet"]) {
      EXPECT_EQ(packet["trusted_packet_sequence_id"], 1);
      if (packet.contains("interned_data")) learn(packet["interned_data"]);
      if (packet.contains("track_descriptor")) add_track(packet["track_descriptor"]);
      if (packet.contains("track_event")) add_event(number(packet, "timestamp"), packet["track_event"]);
    }
    for (const auto& [track, slices] : open_)
      EXPECT_TRUE(slices.empty()) << track << " has slices without end";
    for (const auto& [id, end] : from_) told_.arrows.push_back({end, to_.at(id)});
    told_.sort();
    return told_;
  }

 private:
  struct Track {
    std::int64_t process = 0, lane = -1;  // -1: the process itself
  };

  void learn(const json& data) {
    for (const auto& [kind, entries] : data.items())
      for (const json& entry : entries) {
        EXPECT_TRUE(texts_[kind].emplace(number(entry, "iid"), entry["name"]).second);
        EXPECT_TRUE(distinct_[kind].insert(entry["name"]).second) << entry << " is there twice";
      }
  }

  void add_track(const json& d) {
    const std::int64_t uuid = number(d, "uuid");
    EXPECT_NE(uuid, 0);
    EXPECT_EQ(tracks_.count(uuid), 0u);
    if (d.contains("process")) {
      tracks_[uuid] = {number(d["process"], "pid")};
      told_.names[d["process"]["pid"].dump()] = d["process"]["process_name"];
      return;
    }
    tracks_[uuid] = {tracks_.at(number(d, "parent_uuid")).process, number(d, "sibling_order_rank")};
    if (!d.contains("counter"))
      told_.names[std::to_string(tracks_[uuid].process) + "/" + std::to_string(tracks_[uuid].lane)] =
          d["name"];
  }

  void add_event(std::int64_t now, const json& e) {
    const std::int64_t uuid = number(e, "track_uuid");
    const Track& track = tracks_.at(uuid);
    EXPECT_GE(now, last_ns_[uuid]) << "of one track, in the order of time";
    last_ns_[uuid] = now;
    if (e["type"] == "TYPE_COUNTER") {
      told_.live_bytes.push_back({track.process, now, number(e, "counter_value")});
    } else if (e["type"] == "TYPE_SLICE_END") {
      ASSERT_FALSE(open_[uuid].empty());
      told_.slices.push_back(open_[uuid].back());
      told_.slices.back()[3] = now - told_.slices.back()[2].get<std::int64_t>();
      open_[uuid].pop_back();
    } else {
      ASSERT_EQ(e["type"], "TYPE_SLICE_BEGIN");
      open_[uuid].push_back(
          {track.process, track.lane, now, 0,
           texts_["event_categories"].at(std::stoll(e["category_iids"].at(0).get<std::string>())),
           texts_["event_names"].at(number(e, "name_iid")), arguments(e)});
      for (const json& id : e.value("flow_ids", json::array())) from_[id] = {track.process, track.lane, now};
      for (const json& id : e.value("terminating_flow_ids", json::array()))
        to_[id] = {track.process, track.lane, now};
    }
  }

  json arguments(const json& e) {
    json made = json::object();
    for (const json& a : e.value("debug_annotations", json::array())) {
      json& value = made[texts_["debug_annotation_names"].at(number(a, "name_iid")).get<std::string>()];
      if (a.contains("string_value_iid"))
        value = texts_["debug_annotation_string_values"].at(number(a, "string_value_iid"));
      else if (a.contains("double_value"))
        value = a["double_value"];
      else
        value = number(a, "int_value");
    }
    return made;
  }

  ProtoReader reader_{"profiler/perfetto.proto"};
  std::map<std::string, std::map<std::int64_t, json>> texts_;
  std::map<std::string, std::set<json>> distinct_;
  std::map<std::int64_t, Track> tracks_;
  std::map<std::int64_t, std::int64_t> last_ns_;
  std::map<std::int64_t, std::vector<json>> open_;
  std::map<json, json> from_, to_;
  Told told_;
};

void expect_alike(const TraceDocument& d) {
  const Told a = told_by_chrome(d), b = PerfettoReader().read(perfetto(d));
  EXPECT_FALSE(a.slices.empty());
  EXPECT_EQ(a.slices, b.slices);
  EXPECT_EQ(a.arrows, b.arrows);
  EXPECT_EQ(a.live_bytes, b.live_bytes);
  EXPECT_EQ(a.names, b.names);
}

TEST(PerfettoTrace, TellsWhatTheChromeTraceTells) {
  expect_alike(document());
  expect_alike(gpu_document());
  expect_alike(ranks_document());
  expect_alike(of_rank(ranks_document(), 1));
}

TEST(PerfettoTrace, TheHostOfALoop) {
  TraceDocument d = document();
  const std::int64_t at = d.steps[0].start_ns - 5000;
  d.host = nested_spans({{"data", "a \"set\"", at + 100, 2000}, {"engine", "net", at + 4000, 9000}}, 2, at,
                        at + 30'000);
  expect_alike(d);
  d.rows.clear();
  expect_alike(d);
}

TEST(PerfettoTrace, TextsStandInItOnceAndItIsSmall) {
  TraceDocument d = document();
  const TraceDocument two = d;
  for (std::int64_t i = 1; i < 200; ++i)
    for (TraceRow row : two.rows) {
      row.start_ns += i * 10'000'000;
      row.step += i * 10;
      d.rows.push_back(row);
    }
  const std::string bytes = perfetto(d);
  for (const char* text : {"layers.0/attn", "Gelu avx512", "pass_chain", "cpu_op", "/n0 /n1"}) {
    const std::size_t at = bytes.find(text);
    EXPECT_NE(at, std::string::npos) << text;
    EXPECT_EQ(bytes.find(text, at + 1), std::string::npos) << text;
  }
  EXPECT_LT(bytes.size() * 2, chrome_trace_json(d).size());
}

// Names of any bytes and length, times at the end of what a session holds, kernels that no plan has, and slices of one lane that cross.
TEST(PerfettoTrace, HostileContents) {
  TraceDocument d = gpu_document();
  d.kernels[0].kernel = std::string(1 << 16, '\xff');
  d.kernels[1].node = std::string("\0\n\xc3(", 4);
  d.kernels[2].flops = std::numeric_limits<double>::infinity();
  d.kernels[3].flops = std::nan("");
  d.rows[0].plan_step = 1'000'000;
  d.rows[1].plan_step = -7;
  d.rows[2].bytes = -1;
  d.rows.back().start_ns = std::int64_t{1} << 61;
  d.rows.back().duration_ns = std::int64_t{1} << 60;
  d.activities[0].name = "";
  const Told a = told_by_chrome(d), b = PerfettoReader().read(perfetto(d));
  EXPECT_EQ(a.slices.size(), b.slices.size());
  EXPECT_EQ(a.names, b.names);
  TraceDocument crossing = document();
  crossing.host = {
      {"step", "", 1000, 5000, 1, -1}, {"data", "a", 3000, 9000, 1, 0}, {"data", "b", 3000, 0, 1, 0}};
  const Told cut = PerfettoReader().read(perfetto(crossing));
  const auto crossed =
      std::find_if(cut.slices.begin(), cut.slices.end(), [](const json& s) { return s[5] == "a"; });
  ASSERT_NE(crossed, cut.slices.end());
  EXPECT_EQ((*crossed)[3], 3000) << "it ends where the slice around it does";
}

TEST(PerfettoTrace, AnErrorOfTheFileEndsIt) {
  const Status written = write_perfetto_trace(document(), [](std::string_view) -> Status {
    return Error{Errc::io, "full"};
  });
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().message, "full");
}

}  // namespace
}  // namespace gradloom
