#include "sessions/tensorboard.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string_view>

#include "engine/base/protobuf_message.h"

namespace gradloom {
namespace {

// Numbers of fields.
namespace event {
constexpr std::uint32_t wall_time = 1, step = 2, file_version = 3, summary = 5;
}
namespace summary {
constexpr std::uint32_t value = 1;
constexpr std::uint32_t tag = 1, simple_value = 2;  // of a value
}  // namespace summary

constexpr std::array<std::uint32_t, 256> crc_table() {
  constexpr std::uint32_t kCastagnoli = 0x82f63b78;  // reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[i] = crc;
  }
  return table;
}

void append_little_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

// A CRC over bytes that hold CRCs is weak: they are stored turned and moved.
void append_crc(std::string& out, std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  append_little_endian(out, (crc >> 15 | crc << 17) + 0xa282ead8U, 4);
}

void append_record(std::string& out, std::string_view data) {
  std::string length;
  append_little_endian(length, data.size(), 8);
  out += length;
  append_crc(out, length);
  out += data;
  append_crc(out, data);
}

// Seconds since 1970 of "2026-11-20T04:31:05Z"; 0 where it reads otherwise.
std::int64_t unix_seconds(const std::string& utc) {
  std::tm at{};
  if (std::sscanf(utc.c_str(), "%4d-%2d-%2dT%2d:%2d:%2dZ", &at.tm_year, &at.tm_mon, &at.tm_mday, &at.tm_hour,
                  &at.tm_min, &at.tm_sec) != 6)
    return 0;
  at.tm_year -= 1900;
  at.tm_mon -= 1;
  return std::max<std::int64_t>(timegm(&at), 0);
}

// The scalars of one step.
class Scalars {
 public:
  void add(std::string_view tag, double value) {
    ProtobufMessage one;
    one.bytes(summary::tag, tag);
    one.real32(summary::simple_value, static_cast<float>(value));
    values_.message(summary::value, one);
  }
  void append_to(std::string& out, std::int64_t step, double wall_time) const {
    ProtobufMessage message;
    message.real(event::wall_time, wall_time);
    message.integer(event::step, step);
    message.message(event::summary, values_);
    append_record(out, message.text());
  }

 private:
  ProtobufMessage values_;
};

constexpr double kNsPerSecond = 1e9, kNsPerMs = 1e6;

Scalars step_scalars(const StepRow& s, bool has_loss) {
  Scalars scalars;
  if (has_loss) {
    scalars.add("loss/train", s.loss);
    scalars.add("optimizer/learning_rate", s.lr);
  }
  if (s.grad_norm >= 0) scalars.add("optimizer/gradient_norm", s.grad_norm);
  if (s.loss_scale > 0) {
    scalars.add("optimizer/loss_scale", s.loss_scale);
    scalars.add("optimizer/skipped_steps", static_cast<double>(s.skipped));
  }
  if (s.step_ns > 0) {
    scalars.add("time/step_ms", static_cast<double>(s.step_ns) / kNsPerMs);
    scalars.add("time/steps_per_second", kNsPerSecond / static_cast<double>(s.step_ns));
  }
  return scalars;
}

bool harmless(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.';
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string tensorboard_events(const RunRecord& run) {
  std::string out;
  const auto start = static_cast<double>(unix_seconds(run.summary.started_utc));
  ProtobufMessage version;
  version.real(event::wall_time, start);
  version.bytes(event::file_version, "brain.Event:2");
  append_record(out, version.text());
  double wall_time = start;
  auto evaluation = run.evaluations.begin();
  const auto evaluations_until = [&](std::int64_t step) {
    for (; evaluation != run.evaluations.end() && evaluation->step <= step; ++evaluation) {
      Scalars scalars;
      scalars.add("loss/held_out", evaluation->loss);
      scalars.add("time/evaluation_ms", static_cast<double>(evaluation->eval_ns) / kNsPerMs);
      wall_time += static_cast<double>(evaluation->eval_ns) / kNsPerSecond;
      scalars.append_to(out, evaluation->step, wall_time);
    }
  };
  for (const StepRow& step : run.steps) {
    evaluations_until(step.step - 1);
    wall_time += static_cast<double>(step.step_ns) / kNsPerSecond;
    step_scalars(step, run.summary.has_loss()).append_to(out, step.step, wall_time);
  }
  evaluations_until(std::numeric_limits<std::int64_t>::max());
  return out;
}

std::string tensorboard_file(const RunSummary& run) {
  constexpr std::size_t kMostName = 64;
  std::string folder = "run-" + std::to_string(run.id);
  if (!run.name.empty() && run.name.size() <= kMostName &&
      std::all_of(run.name.begin(), run.name.end(), harmless))
    folder += "-" + run.name;
  char seconds[24];
  std::snprintf(seconds, sizeof seconds, "%010lld", static_cast<long long>(unix_seconds(run.started_utc)));
  return folder + "/events.out.tfevents." + seconds + ".gradloom";
}

}  // namespace gradloom
