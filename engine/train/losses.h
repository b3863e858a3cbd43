// Losses by name: the meaning of `ce{axis=1}:logits,labels`. The rows of engine/train/losses.def declare them,
// with formula, source and options. Errors: Errc::usage for an unknown loss, option or value of the model,
// Errc::bad_input for tensors that the loss does not take.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/ir/builder.h"

namespace gradloom {

struct LossOptions {
  std::int64_t axis = -1;  // of the classes
};
struct LossOption {
  const char *name, *help;
  std::int64_t fallback;
  std::int64_t LossOptions::*number;
};

// What a loss is compared with: integer labels, or a tensor of the prediction's type and shape.
enum class LossTarget : std::uint8_t { labels, values };

struct LossDef {
  const char *name, *title;
  const char *prediction, *target;  // what the two tensors are called in help
  LossTarget compared;
  bool suggested;  // offered for a model whose outputs fit
  // The scalar loss of a prediction and of the target called `target`, which is added to the graph's inputs
  // when there is none.
  Result<ValueId> (*build)(GraphBuilder& b, ValueId prediction, const std::string& target,
                           const LossOptions& options);
  const char *formula, *source;
  std::span<const LossOption> options;
};
std::span<const LossDef> all_losses();
std::vector<std::string> loss_names();
// "ce:LOGITS,LABELS", one for each row: the texts that --loss takes beside the name of a scalar output.
std::vector<std::string> loss_forms();

// Sets Graph::loss (forward part only): what the passes before autodiff work on. `loss` is the name of a
// scalar output or one of the forms above. New graph inputs (labels) appear in Graph::inputs.
Status add_loss(Graph& graph, const std::string& loss);

}  // namespace gradloom
