// What pass tensor-parallel has to be told, and what it asks of a training.
#pragma once

#include "engine/train/train_graph.h"
#include "passes/pass.h"

namespace gradloom {

// The same passes for a training of so many ranks, which the forward graph does not tell.
Result<Pipeline> pipeline_for_ranks(const Pipeline& pipeline, std::int64_t ranks);
// The same for another graph of a training that was compiled: what is split there, and nothing else, is split in it.
Pipeline pipeline_as_split(const Pipeline& pipeline, const std::vector<PassReport>& reports);
// What the user should know where the pass is on and found nothing to split: ranks have batches of their own then. Empty: nothing.
std::string note_of_whole(const Graph& graph, const TrainSpec& spec, const Pipeline& pipeline);
// Errc::usage: ranks share parameters of the graph, and the training has what would need them whole.
Status check_shared_parameters(const Graph& graph, const TrainSpec& spec, const Pipeline& pipeline);

}  // namespace gradloom
