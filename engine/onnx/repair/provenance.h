// The origin of initializers, as torch's dynamo exporter records it: torch.export's graph signature ("kind"
// of each input, torch 2.5 and newer) and what onnxscript's optimizer folded ("folded_from"), both metadata
// of the graph.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/base/names.h"

namespace gradloom {

struct Provenance {
  enum class Kind : std::uint8_t {
    parameter,  // of a module
    buffer,     // of a module, or a constant of its code: not trained
    computed    // from what `parameters` names, when the file was written
  };
  Kind kind = Kind::computed;
  std::vector<std::string> parameters;  // none: computed from constants alone
  // Of a computed one, by the names of the functions on the way: it holds the numbers of the parameters in
  // another order (views, permute); several times, in their order (views and expand); or some of them in any order,
  // each once or not at all (slices), or any number of times (`repeated`).
  bool rearranged = false, expanded = false, copied = false, repeated = false;
  bool gathered = false;  // by indices, of a repeated one
  // By a function; else it is a step of the exporter's own: a weight transposed for its product.
  bool named = false;
};

// Of the initializers that the file says something about; empty for a file of another exporter.
NameMap<Provenance> provenance_of(const onnx::GraphProto& graph);

// Rows of a parameter "table" that the file has only gathered: initializer "table/rows" (expanded_parameters.h).
constexpr const char* kRows = "/rows";

// The parameters and buffers of the module by torch.export's names for them: "p_fc_weight" is "fc.weight".
NameMap<std::string> traced_names(const onnx::GraphProto& graph);

// The node, an Identity, is torch's detach, through which no gradient flows. Files of optimize=False tell.
bool is_detach(const onnx::NodeProto& node);
void mark_detach(onnx::NodeProto& node);  // makes it one

// Parameters and buffers of modules that the file has no more though nothing was computed from them: the
// optimizer found an equal one, or could do without. Tied weights are among them.
struct Lost {
  std::set<std::string> parameters, buffers;
};
Lost lost_values(const onnx::GraphProto& graph);

}  // namespace gradloom
