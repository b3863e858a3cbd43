// Several processes for one training: what `gradloom train` does about ranks before and after it trains.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/checkpoint_shards.h"
#include "app/command.h"
#include "app/train_flags.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ranks/world.h"

namespace gradloom {

// Trains, and returns what `end` makes of how that ended; until then the training's memory is there.
using EndOfTraining = std::function<Status(const Status&)>;
using TrainOne = std::function<Status(TrainRequest, CommandContext&, const EndOfTraining& end)>;

// What a training is as one of several: the recipe's number of ranks, its threads, and what rank 0 does for all.
void become_rank(const RankPlace& place, TrainRequest& request, CommandContext& context);

// Trains as the rank that a launcher made this process (engine/ranks/place.h), or starts the ranks that the recipe asks for on
// this machine and waits for them; with one rank just trains. Rank 0 alone prints and writes files. The end is the
// same on every rank: the error of the rank that had it.
// `silence`: how long a rank may say nothing.
Status train_on_ranks(TrainRequest request, std::chrono::milliseconds silence, CommandContext& context,
                      const TrainOne& train);

// The same of any work: `ranks` of them on this machine, unless a launcher has made this process one.
Status work_on_ranks(std::int64_t ranks, CommandContext& context,
                     const std::function<Status(World& world)>& work);

// What the ranks agree on before a step.
struct NextStep {
  bool stop = false;        // one was asked to stop
  bool timed = false;       // rank 0's session takes its times
  bool checkpoint = false;  // rank 0 writes one
  bool copy = false;        // rank 0 finds that it is time for a copy of the states (last_good.h)
};
Result<NextStep> agree_on_next_step(const NextStep& mine);
Result<bool> as_rank_0(bool mine);  // what rank 0 says
Result<bool> on_all_ranks(bool mine);
Result<bool> on_any_rank(bool mine);
// What one rank has to say, at all of them.
Result<std::vector<std::byte>> bytes_of_rank(std::size_t rank, std::vector<std::byte> mine);

// Each rank keeps the optimizer's states of some parameters alone (pass zero), and has a plan of its own for that.
bool keeps_states_apart(const Job& job);
// Ranks share parameters (pass tensor-parallel): each has parts of some.
bool has_parts(const Job& job);
// Ranks have parts of parameters, by either pass: what is written of these takes all ranks.
bool has_parts_of_parameters(const Job& job);
// Ranks give each other what they made of parameters at the beginning of a step (pass gather-early): now, too, so that all have whole ones until the
// next step is submitted. All call, before anything reads them between steps.
Status gather_parameters(Job& job);
// What is written of the job takes all ranks: all call what reads it.
bool needs_all_ranks(const Job& job);
// Tensors of which ranks have the parts that are named, whole at rank 0; elsewhere as they are.
Result<std::map<std::string, Tensor>> with_whole(std::map<std::string, Tensor> tensors,
                                                 const std::map<std::string, ParameterPart>& parts);
// The same of parameters and of what has their names. Those of which ranks have ranges (pass zero) are at rank 0 alone then.
Result<std::map<std::string, Tensor>> with_whole_parameters(const Job& job,
                                                            std::map<std::string, Tensor> parameters);
// The states at rank 0, from all ranks, of which each has parts of its own; nothing at the others.
Result<std::map<std::string, Tensor>> gather_states(StateParts mine);
// Of one rank that has all.
Result<std::map<std::string, Tensor>> joined(StateParts all);
// Everybody's number, at every rank; with one rank its own.
Result<std::vector<std::int64_t>> of_all_ranks(std::int64_t mine);

}  // namespace gradloom
