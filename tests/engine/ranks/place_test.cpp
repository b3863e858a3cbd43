#include "engine/ranks/place.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace gradloom {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<RankPlace>> place_in(const Variables& variables) {
  return rank_place([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

struct Case {
  const char* name;
  Variables variables;
  int rank, world, local_rank, local_world;
};

TEST(RankPlace, IsReadFromEveryLauncher) {
  for (const Case& c : {
           Case{"torchrun",
                {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}},
                5,
                8,
                1,
                4},
           Case{"by hand", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, 1, 2, 1, 2},
           Case{"mpirun",
                {{"OMPI_COMM_WORLD_RANK", "3"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
                3,
                4,
                0,
                1},
           Case{"srun",
                {{"SLURM_PROCID", "6"},
                 {"SLURM_STEP_NUM_TASKS", "8"},
                 {"SLURM_LOCALID", "2"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}},
                6,
                8,
                2,
                4},
           Case{"torchrun under srun",
                {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}},
                0,
                2,
                0,
                2},
       }) {
    const auto place = place_in(c.variables);
    ASSERT_TRUE(place.ok() && place->has_value()) << c.name;
    EXPECT_EQ((*place)->rank, c.rank) << c.name;
    EXPECT_EQ((*place)->world, c.world) << c.name;
    EXPECT_EQ((*place)->local_rank, c.local_rank) << c.name;
    EXPECT_EQ((*place)->local_world, c.local_world) << c.name;
  }
}

TEST(RankPlace, IsNoneWithoutAWorld) {
  for (const Variables& variables : {
           Variables{},
           Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
           Variables{{"RANK", "3"}},                                 // of what?
           Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},  // a batch script, not a step of it
           Variables{{"RANK", ""}, {"WORLD_SIZE", "4"}},
       }) {
    const auto place = place_in(variables);
    ASSERT_TRUE(place.ok());
    EXPECT_FALSE(place->has_value());
  }
}

TEST(RankPlace, RefusesWhatIsNoPlace) {
  for (const auto& [variables, part] : {
           std::pair{Variables{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK=2"},
           std::pair{Variables{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK=-1"},
           std::pair{Variables{{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "WORLD_SIZE=two"},
           std::pair{Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1\x1b"}},
                     "LOCAL_RANK=1\\x1b"},
       }) {
    const auto place = place_in(variables);
    ASSERT_FALSE(place.ok());
    EXPECT_EQ(place.error().code, Errc::usage);
    EXPECT_NE(place.error().message.find(part), std::string::npos) << place.error().message;
  }
}

}  // namespace
}  // namespace gradloom
