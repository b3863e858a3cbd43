#include "engine/ranks/place.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/base/hash.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// `machine`: the number of this rank's machine, where local_world is a list of all; else null.
struct Launcher {
  const char *rank, *world, *local_rank, *local_world, *machine;
};
constexpr std::array<Launcher, 3> kLaunchers = {{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"},
}};
constexpr int kMostRanks = 1 << 20, kMostPorts = 65535;

// Slurm writes "4(x2),3": 4 on each of 2 machines, 3 on the next. What it says of one of them; empty: nothing.
std::string_view entry_of_machine(std::string_view list, int machine) {
  constexpr std::string_view kTimes = "(x";
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    const std::size_t bracket = entry.find(kTimes);
    std::string_view times = bracket == std::string_view::npos ? "1" : entry.substr(bracket + kTimes.size());
    if (times.ends_with(")")) times.remove_suffix(1);
    const int machines = parse_number<int>(times).value_or(1);
    if (machine < machines) return entry.substr(0, bracket);
    machine -= machines;
  }
  return {};
}

// `machine`: the variable is a list, of which this entry counts.
Result<int> number(const ReadVariable& variable, const char* name, int least, int most, int otherwise,
                   std::optional<int> machine = {}) {
  const char* const text = variable(name);
  if (text == nullptr || *text == 0) return otherwise;
  const std::string_view own = machine ? entry_of_machine(text, *machine) : std::string_view(text);
  if (own.empty()) return otherwise;
  const std::optional<int> value = parse_number<int>(own);
  if (!value || *value < least || *value > most)
    return Error{Errc::usage, std::string(name) + "=" + escaped(text) +
                                  " in the environment: expected a number from " + std::to_string(least) +
                                  " to " + std::to_string(most)};
  return *value;
}

bool is_set(const ReadVariable& variable, const char* name) {
  const char* const text = variable(name);
  return text != nullptr && *text != 0;
}

std::string text_of(const ReadVariable& variable, const char* name) {
  return is_set(variable, name) ? variable(name) : "";
}

// Of ranks that RANK numbers; LOCAL_WORLD_SIZE, or an address that other machines do not have, says that there is one machine.
Result<std::optional<MeetingPlace>> meeting_place(const ReadVariable& variable, const RankPlace& rank) {
  MeetingPlace place;
  place.address = text_of(variable, "MASTER_ADDR");
  if (place.address.empty()) return std::optional<MeetingPlace>();
  const int master = TRY(number(variable, "MASTER_PORT", 1, kMostPorts - 1, 0));
  place.port = TRY(number(variable, "GRADLOOM_PORT", 1, kMostPorts, master + 1));
  if (master == 0 && !is_set(variable, "GRADLOOM_PORT"))
    return Error{Errc::usage,
                 "MASTER_ADDR in the environment without MASTER_PORT: at which port do the ranks meet?"};
  std::string id = text_of(variable, "GRADLOOM_WORLD_ID");
  if (id.empty())
    id = text_of(variable, "TORCHELASTIC_RUN_ID") + " " + text_of(variable, "TORCHELASTIC_RESTART_COUNT");
  place.world_id = hash_hex(id);
  place.one_machine = place.address.rfind("127.", 0) == 0 || place.address == "::1" ||
                      (is_set(variable, "LOCAL_WORLD_SIZE") && rank.local_world == rank.world);
  return std::optional(place);
}

}  // namespace

Result<std::optional<RankPlace>> rank_place(const ReadVariable& variable) {
  for (const Launcher& launcher : kLaunchers) {
    if (!is_set(variable, launcher.rank) || !is_set(variable, launcher.world)) continue;
    RankPlace place;
    place.source = launcher.rank;
    place.world = TRY(number(variable, launcher.world, 1, kMostRanks, 1));
    place.rank = TRY(number(variable, launcher.rank, 0, place.world - 1, 0));
    std::optional<int> machine;
    if (launcher.machine != nullptr) machine = TRY(number(variable, launcher.machine, 0, kMostRanks, 0));
    place.local_world = TRY(number(variable, launcher.local_world, 1, place.world, place.world, machine));
    place.local_rank =
        TRY(number(variable, launcher.local_rank, 0, place.local_world - 1, place.rank % place.local_world));
    if (place.world == 1) return std::optional<RankPlace>();
    if (&launcher == &kLaunchers.front()) place.meeting = TRY(meeting_place(variable, place));
    return std::optional(place);
  }
  return std::optional<RankPlace>();
}

Result<std::optional<RankPlace>> rank_place() {
  return rank_place([](const char* name) { return std::getenv(name); });
}

}  // namespace gradloom
