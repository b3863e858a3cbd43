// What pass tensor-parallel has to be told, and what it asks of a training.
#pragma once

#include "engine/train/train_graph.h"
#include "passes/pass.h"

namespace gradloom {

// The same passes for a training of so many ranks by this optimizer, which the forward graph does not tell.
Result<Pipeline> pipeline_for_ranks(const Pipeline& pipeline, std::int64_t ranks,
                                    const OptimizerSpec& optimizer);
// The same for another graph of a training that was compiled: what is split there, and nothing else, is split in it.
Pipeline pipeline_as_split(const Pipeline& pipeline, const std::vector<PassReport>& reports);
// What the user should know where the pass is on: that it found nothing to split, so that ranks have batches of their own, and that a
// vocabulary is whole for the sake of the optimizer. `reports`: of the passes before autodiff.
std::vector<std::string> notes_of_whole(const Graph& graph, const TrainSpec& spec, const Pipeline& pipeline,
                                        const std::vector<PassReport>& reports);
// Errc::usage: ranks share parameters of the graph, and the training has what would need them whole.
Status check_shared_parameters(const Graph& graph, const TrainSpec& spec, const Pipeline& pipeline);

}  // namespace gradloom
