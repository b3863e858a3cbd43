#include "profiler/perfetto_trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/names.h"
#include "engine/base/protobuf_message.h"

namespace gradloom {
namespace {

// Numbers of fields.
namespace trace {
constexpr std::uint32_t packet = 1;
}
namespace packet {
constexpr std::uint32_t timestamp = 8, sequence = 10, track_event = 11, interned_data = 12,
                        sequence_flags = 13, track_descriptor = 60;
constexpr std::int64_t state_cleared = 1, needs_state = 2;  // sequence_flags
}  // namespace packet
namespace interned {
constexpr std::uint32_t categories = 1, names = 2, annotation_names = 3, annotation_texts = 29;
constexpr std::uint32_t iid = 1, text = 2;  // of each
}  // namespace interned
namespace event {
constexpr std::uint32_t category_iids = 3, debug_annotations = 4, type = 9, name_iid = 10, track_uuid = 11,
                        counter_value = 30, flow_ids = 47, terminating_flow_ids = 48;
constexpr std::int64_t slice_begin = 1, slice_end = 2, counter = 4;  // type
}  // namespace event
namespace annotation {
constexpr std::uint32_t name_iid = 1, int_value = 4, double_value = 5, string_value_iid = 17;
}
namespace track {
constexpr std::uint32_t uuid = 1, name = 2, process = 3, parent_uuid = 5, counter = 8, child_ordering = 11,
                        sibling_order_rank = 12;
constexpr std::uint32_t pid = 1, process_name = 6, process_labels = 8;  // of process
constexpr std::uint32_t unit = 3;                                       // of counter
constexpr std::int64_t explicit_order = 3, size_bytes = 3;
}  // namespace track

// Invalid UTF-8 replaced, as in JSON.
std::string valid_utf8(const std::string& text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

// Texts of one kind by number. What is new goes into the next packet's InternedData.
class Interned {
 public:
  explicit Interned(std::uint32_t field) : field_(field) {}
  std::int64_t iid(const std::string& text, ProtobufMessage& fresh) {
    const auto [at, is_new] = numbers_.try_emplace(text, static_cast<std::int64_t>(numbers_.size()) + 1);
    if (is_new) {
      ProtobufMessage entry;
      entry.integer(interned::iid, at->second);
      entry.bytes(interned::text, valid_utf8(text));
      fresh.message(field_, entry);
    }
    return at->second;
  }

 private:
  std::uint32_t field_;
  NameMap<std::int64_t> numbers_;
};

class PerfettoWriter {
 public:
  PerfettoWriter(const TraceDocument& document, const TraceSink& sink)
      : document_(document), sink_(sink), events_(document), kernels_(events_.kernels().size()) {}

  Status write() {
    TRY(events_.each([&](const TraceGroup& group) { return write_group(group); }));
    return flush(0);
  }

 private:
  static constexpr std::size_t kFlushBytes = 1 << 20;

  std::int64_t process_track() const { return std::int64_t{process_} << 32; }
  std::int64_t lane_track(int lane) const { return process_track() + lane + 1; }
  std::int64_t counter_track() const { return process_track() + 0xffff'ffff; }

  Status write_group(const TraceGroup& group) {
    process_ = group.process;
    if (!group.process_name.empty()) write_process(group.process_name);
    for (const TraceLane& lane : group.lanes) write_lane(lane);
    leaving_.assign(group.slices.size(), {});
    arriving_.assign(group.slices.size(), {});
    for (const TraceArrow& arrow : group.arrows) {
      leaving_[arrow.from].push_back(arrow.id);
      arriving_[arrow.to].push_back(arrow.id);
    }
    std::map<int, std::vector<std::size_t>> lanes;
    for (std::size_t i = 0; i < group.slices.size(); ++i) lanes[group.slices[i].lane].push_back(i);
    for (auto& [lane, slices] : lanes) write_slices(group, slices);
    if (!group.live_bytes.empty()) write_counter();
    for (const TraceLiveBytes& live : group.live_bytes) {
      event_.clear();
      event_.integer(event::type, event::counter);
      event_.integer(event::track_uuid, counter_track());
      event_.integer(event::counter_value, live.bytes);
      write_event(live.at_ns);
    }
    return flush(kFlushBytes);
  }

  void write_process(const std::string& name) {
    ProtobufMessage process, descriptor;
    process.integer(track::pid, process_);
    process.bytes(track::process_name, valid_utf8(name));
    process.bytes(track::process_labels, "run " + std::to_string(document_.run_id));
    if (!document_.model.empty()) process.bytes(track::process_labels, valid_utf8(document_.model));
    descriptor.integer(track::uuid, process_track());
    descriptor.message(track::process, process);
    descriptor.integer(track::child_ordering, track::explicit_order);
    write_packet(packet::track_descriptor, descriptor);
  }

  ProtobufMessage child(std::int64_t uuid, const std::string& name, int rank) const {
    ProtobufMessage descriptor;
    descriptor.integer(track::uuid, uuid);
    descriptor.bytes(track::name, valid_utf8(name));
    descriptor.integer(track::parent_uuid, process_track());
    descriptor.integer(track::sibling_order_rank, rank);
    return descriptor;
  }
  void write_lane(const TraceLane& lane) {
    write_packet(packet::track_descriptor, child(lane_track(lane.lane), lane.name, lane.lane));
  }
  void write_counter() {
    constexpr int kLast = 2'000'000;
    ProtobufMessage counter, descriptor = child(counter_track(), "arena_bytes", kLast);
    counter.integer(track::unit, track::size_bytes);
    descriptor.message(track::counter, counter);
    write_packet(packet::track_descriptor, descriptor);
  }

  // Of one lane.
  void write_slices(const TraceGroup& group, std::vector<std::size_t>& slices) {
    std::stable_sort(slices.begin(), slices.end(), [&](std::size_t i, std::size_t j) {
      const TraceSlice &a = group.slices[i], &b = group.slices[j];
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
    });
    std::vector<std::int64_t> open;  // ends of the slices around
    const std::int64_t track_uuid = lane_track(group.slices[slices.front()].lane);
    const auto end_until = [&](std::int64_t now_ns) {
      for (; !open.empty() && open.back() <= now_ns; open.pop_back()) write_end(track_uuid, open.back());
    };
    for (const std::size_t i : slices) {
      const TraceSlice& slice = group.slices[i];
      end_until(slice.start_ns);
      write_begin(track_uuid, slice, i);
      const std::int64_t end = slice.start_ns + slice.duration_ns;
      open.push_back(open.empty() ? end : std::min(end, open.back()));
    }
    while (!open.empty()) end_until(open.back());
  }

  void write_end(std::int64_t track_uuid, std::int64_t at_ns) {
    event_.clear();
    event_.integer(event::type, event::slice_end);
    event_.integer(event::track_uuid, track_uuid);
    write_event(at_ns);
  }

  void write_begin(std::int64_t track_uuid, const TraceSlice& slice, std::size_t number) {
    event_.clear();
    event_.integer(event::type, event::slice_begin);
    event_.integer(event::track_uuid, track_uuid);
    event_.integer(event::category_iids, categories_.iid(slice.category, fresh_));
    if (slice.kernel < 0) {
      event_.integer(event::name_iid, names_.iid(slice.name, fresh_));
    } else {
      event_.append(kernel_fields(static_cast<std::size_t>(slice.kernel)));
    }
    annotate(slice.arguments, event_);
    for (const std::int64_t id : leaving_[number])
      event_.fixed64(event::flow_ids, static_cast<std::uint64_t>(id));
    for (const std::int64_t id : arriving_[number])
      event_.fixed64(event::terminating_flow_ids, static_cast<std::uint64_t>(id));
    write_event(slice.start_ns);
  }

  // Name and arguments, made once.
  std::string_view kernel_fields(std::size_t number) {
    ProtobufMessage& fields = kernels_[number];
    if (fields.empty()) {
      const TraceKernel& kernel = events_.kernels()[number];
      fields.integer(event::name_iid, names_.iid(kernel.name, fresh_));
      annotate(kernel.arguments, fields);
    }
    return fields.text();
  }

  void annotate(const std::vector<TraceArgument>& arguments, ProtobufMessage& to) {
    for (const TraceArgument& argument : arguments) {
      annotation_.clear();
      annotation_.integer(annotation::name_iid, argument_names_.iid(argument.name, fresh_));
      if (const auto* integer = std::get_if<std::int64_t>(&argument.value))
        annotation_.integer(annotation::int_value, *integer);
      else if (const auto* real = std::get_if<double>(&argument.value))
        annotation_.real(annotation::double_value, *real);
      else
        annotation_.integer(annotation::string_value_iid,
                            argument_texts_.iid(std::get<std::string>(argument.value), fresh_));
      to.message(event::debug_annotations, annotation_);
    }
  }

  // event_, with the texts that it is the first to name.
  void write_event(std::int64_t at_ns) {
    ProtobufMessage stamp;
    stamp.integer(packet::timestamp, at_ns);
    if (!fresh_.empty()) stamp.message(packet::interned_data, fresh_);
    fresh_.clear();
    write_packet(packet::track_event, event_, stamp.text());
  }

  void write_packet(std::uint32_t field, const ProtobufMessage& value, std::string_view before = {}) {
    packet_.clear();
    packet_.append(before);
    packet_.integer(packet::sequence, 1);
    packet_.integer(packet::sequence_flags, packet::needs_state | (first_ ? packet::state_cleared : 0));
    first_ = false;
    packet_.message(field, value);
    out_.message(trace::packet, packet_);
  }

  Status flush(std::size_t from_bytes) {
    if (out_.text().size() < from_bytes || out_.empty()) return {};
    const Status written = sink_(out_.text());
    out_.clear();
    return written;
  }

  const TraceDocument& document_;
  const TraceSink& sink_;
  TraceEvents events_;
  Interned categories_{interned::categories}, names_{interned::names},
      argument_names_{interned::annotation_names}, argument_texts_{interned::annotation_texts};
  ProtobufMessage out_, packet_, event_, annotation_, fresh_;
  std::vector<ProtobufMessage> kernels_;                       // by number
  std::vector<std::vector<std::int64_t>> leaving_, arriving_;  // arrows of the group, by slice
  std::int32_t process_ = 1;
  bool first_ = true;
};

}  // namespace

Status write_perfetto_trace(const TraceDocument& document, const TraceSink& sink) {
  return PerfettoWriter(document, sink).write();
}

}  // namespace gradloom
