// Several processes for one training: what `gradloom train` does about ranks before and after it trains.
#pragma once

#include <chrono>
#include <functional>

#include "app/command.h"
#include "app/train_flags.h"

namespace gradloom {

// Trains, and returns what `end` makes of how that ended; until then the training's memory is there.
using EndOfTraining = std::function<Status(const Status&)>;
using TrainOne = std::function<Status(TrainRequest, CommandContext&, const EndOfTraining& end)>;

// Trains as the rank that a launcher made this process (engine/ranks/place.h), or starts the ranks that the recipe asks for on
// this machine, by mpirun, and waits for them; with one rank just trains. Rank 0 alone prints and writes files. The end is the
// same on every rank: the error of the rank that had it.
// `silence`: how long a rank may say nothing.
Status train_on_ranks(TrainRequest request, std::chrono::milliseconds silence, CommandContext& context,
                      const TrainOne& train);

// Errc::bad_input: a rank has another model, plan or version than rank 0. Nothing to do with one rank.
Status check_same_on_all_ranks(const Job& job);
// Whether `mine` is true on any rank.
Result<bool> on_any_rank(bool mine);

}  // namespace gradloom
