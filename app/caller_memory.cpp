#include "app/caller_memory.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {
namespace {

Error refused(const CallerMemory::Place& place, const std::string& why) {
  return Error{Errc::usage, "memory for '" + escaped(place.name) + "' " + why};
}

Status check_place(const CallerMemory::Place& place, const Type& type) {
  const auto wanted = static_cast<std::size_t>(byte_size(type));
  if (place.bytes != wanted)
    return refused(place, "has " + std::to_string(place.bytes) + " bytes, not the " + std::to_string(wanted) +
                              " of " + to_string(type));
  if (wanted == 0) return {};
  if (place.data == nullptr) return refused(place, "has no address");
  const std::size_t alignment = dtype_bytes(type.dtype);
  if (reinterpret_cast<std::uintptr_t>(place.data) % alignment != 0)
    return refused(place, "is not aligned to the " + std::to_string(alignment) + " bytes of its elements");
  return {};
}

Status check_apart_in_memory(const std::vector<CallerMemory::Place>& places) {
  std::map<const std::byte*, const CallerMemory::Place*, std::less<>> by_address;
  std::set<std::string_view> names;
  for (const CallerMemory::Place& place : places) {
    if (!names.insert(place.name).second) return refused(place, "is given twice");
    if (place.bytes == 0) continue;
    const auto next = by_address.lower_bound(place.data);
    const bool into_next = next != by_address.end() && place.data + place.bytes > next->first;
    const bool into_this =
        next != by_address.begin() && std::prev(next)->first + std::prev(next)->second->bytes > place.data;
    if (into_next || into_this)
      return refused(
          place, "overlaps that for '" + escaped((into_next ? next : std::prev(next))->second->name) + "'");
    by_address[place.data] = &place;
  }
  return {};
}

}  // namespace

Result<LentMemory> lent_memory(const CallerMemory& memory, const Graph& graph, const Plan& plan,
                               const DeviceInfo& device) {
  if (memory.places.empty()) return LentMemory();
  if (device.id.rfind("cpu", 0) != 0)
    return Error{Errc::usage, "memory of the caller is for jobs on the CPU, not on " + device.id};
  LentMemory lent;
  for (const CallerMemory::Place& place : memory.places) {
    const ValueId id = find_value(graph, place.name);
    if (id == kNone || plan.buffer_of[id] < 0) continue;
    const Value& value = graph.values[id];
    if (value.producer != kNone || (value.role != Role::parameter && value.role != Role::state)) continue;
    TRY(check_place(place, value.type));
    if (place.bytes > 0) lent.states[id] = place.data;
  }
  TRY(check_apart_in_memory(memory.places));
  return lent;
}

}  // namespace gradloom
