#include "engine/ranks/place.h"

#include <array>
#include <cstdlib>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct Launcher {
  const char *rank, *world, *local_rank, *local_world;
};
constexpr std::array<Launcher, 3> kLaunchers = {{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
}};
constexpr int kMostRanks = 1 << 20;

// Slurm writes "4(x2)": 4 on each of 2 machines.
std::string_view before_bracket(std::string_view text) { return text.substr(0, text.find_first_of("(,")); }

Result<int> number(const ReadVariable& variable, const char* name, int least, int most, int otherwise) {
  const char* const text = variable(name);
  if (text == nullptr || *text == 0) return otherwise;
  const std::optional<int> value = parse_number<int>(before_bracket(text));
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

}  // namespace

Result<std::optional<RankPlace>> rank_place(const ReadVariable& variable) {
  for (const Launcher& launcher : kLaunchers) {
    if (!is_set(variable, launcher.rank) || !is_set(variable, launcher.world)) continue;
    RankPlace place;
    place.source = launcher.rank;
    place.world = TRY(number(variable, launcher.world, 1, kMostRanks, 1));
    place.rank = TRY(number(variable, launcher.rank, 0, place.world - 1, 0));
    place.local_world = TRY(number(variable, launcher.local_world, 1, place.world, place.world));
    place.local_rank =
        TRY(number(variable, launcher.local_rank, 0, place.local_world - 1, place.rank % place.local_world));
    if (place.world == 1) return std::optional<RankPlace>();
    return std::optional(place);
  }
  return std::optional<RankPlace>();
}

Result<std::optional<RankPlace>> rank_place() {
  return rank_place([](const char* name) { return std::getenv(name); });
}

}  // namespace gradloom
