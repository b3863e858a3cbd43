#include "app/process_memory.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/text.h"

namespace gradloom {

std::vector<MemoryItem> process_memory(const ProcessMarks& marks, std::int64_t peak, const Plan& plan,
                                       bool on_host) {
  // States and constants are written when the executor is made, the arena in steps.
  const std::int64_t planned = on_host ? plan.peak_bytes() : 0,
                     written = on_host ? plan.state_bytes + plan.constant_bytes : 0,
                     kernels = std::max<std::int64_t>(0, marks.created - marks.compiled - written);
  std::vector<MemoryItem> items{
      {"program", "program and libraries", marks.begun},
      {"model", "model and compiling", std::max<std::int64_t>(0, marks.compiled - marks.begun)},
      {"plan", "plan", planned},
      {"kernels", "kernels' objects", kernels}};
  std::int64_t rest = peak;
  for (const MemoryItem& item : items) rest -= item.bytes;
  items.push_back({"rest", rest < 0 ? "of the plan that nothing touched" : "batches and copies", rest});
  return items;
}

std::string process_memory_text(const std::vector<MemoryItem>& items) {
  std::int64_t peak = 0;
  std::string text;
  for (const MemoryItem& item : items) {
    peak += item.bytes;
    if (item.bytes == 0) continue;
    text += (text.empty()     ? ""
             : item.bytes < 0 ? ", less "
                              : ", ") +
            bytes_text(static_cast<double>(std::abs(item.bytes))) + " " + item.text;
  }
  return "process   " + bytes_text(static_cast<double>(peak)) + " at its peak: " + text;
}

Json process_memory_json(const std::vector<MemoryItem>& items) {
  Json json = Json::object();
  for (const MemoryItem& item : items) json[item.name] = item.bytes;
  return json;
}

}  // namespace gradloom
