#include "engine/ranks/place.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
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
           Case{"srun, the second of two machines",
                {{"SLURM_PROCID", "2"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_NODEID", "1"},
                 {"SLURM_STEP_TASKS_PER_NODE", "1,3"}},
                2,
                4,
                1,
                3},
           Case{"srun, the last of four machines",
                {{"SLURM_PROCID", "13"},
                 {"SLURM_STEP_NUM_TASKS", "14"},
                 {"SLURM_LOCALID", "4"},
                 {"SLURM_NODEID", "3"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4,2(x2),6"}},
                13,
                14,
                4,
                6},
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

TEST(RankPlace, SaysWhereRanksMeetWithoutMpi) {
  const auto meeting = [](Variables more) {
    more.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
    const auto place = place_in(more);
    EXPECT_TRUE(place.ok()) << place.error().message;
    return place.ok() ? (*place)->meeting : std::nullopt;
  };
  const Variables there{{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29500"}};
  const auto with = [&](Variables more) {
    more.insert(there.begin(), there.end());
    return meeting(more);
  };
  ASSERT_TRUE(meeting(there));
  EXPECT_EQ(meeting(there)->address, "node-0");
  EXPECT_EQ(meeting(there)->port, 29501) << "PyTorch's launcher itself listens at MASTER_PORT";
  EXPECT_EQ(with({{"GRADLOOM_PORT", "4000"}})->port, 4000);
  EXPECT_EQ(meeting({{"MASTER_ADDR", "node-0"}, {"GRADLOOM_PORT", "4000"}})->port, 4000);
  EXPECT_FALSE(meeting({})) << "by MPI";
  EXPECT_FALSE(meeting({{"MASTER_PORT", "29500"}}));

  EXPECT_FALSE(meeting(there)->one_machine);
  EXPECT_TRUE(with({{"LOCAL_WORLD_SIZE", "2"}})->one_machine);
  EXPECT_FALSE(with({{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}})->one_machine);
  EXPECT_TRUE(meeting({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}})->one_machine);
  EXPECT_FALSE(meeting({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}})->one_machine)
      << "PyTorchJob calls rank 0's machine so, on that machine";

  EXPECT_EQ(with({{"GRADLOOM_WORLD_ID", "a"}})->world_id, with({{"GRADLOOM_WORLD_ID", "a"}})->world_id);
  std::set<std::string> ids{meeting(there)->world_id};
  for (const Variables& other :
       {Variables{{"GRADLOOM_WORLD_ID", "a"}}, Variables{{"GRADLOOM_WORLD_ID", "b"}},
        Variables{{"TORCHELASTIC_RUN_ID", "a"}},
        Variables{{"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "1"}}})
    EXPECT_TRUE(ids.insert(with(other)->world_id).second);
  for (const std::string& id : ids) EXPECT_EQ(id.size(), 32u);

  const auto by_mpi = place_in({{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "node-0"},
                                {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(by_mpi.ok());
  EXPECT_FALSE((*by_mpi)->meeting);
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
           std::pair{Variables{{"RANK", "0"}, {"WORLD_SIZE", "2,4"}}, "WORLD_SIZE=2,4"},
           std::pair{Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-0"}},
                     "MASTER_ADDR in the environment without MASTER_PORT"},
           std::pair{
               Variables{
                   {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "65535"}},
               "MASTER_PORT=65535"},
           std::pair{
               Variables{
                   {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-0"}, {"GRADLOOM_PORT", "x"}},
               "GRADLOOM_PORT=x"},
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
