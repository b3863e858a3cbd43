// Every use of an initializer is looked at once; one use as a weight makes it a weight.
#include "engine/onnx/repair/initializers.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/onnx/repair/provenance.h"
#include "engine/onnx/file/subgraph.h"
#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {

namespace {

struct Slot {
  const char* op_type;
  int first, last;  // input indices
};

constexpr Slot kArguments[] = {
    {"Clip", 1, 2},
    {"Dropout", 1, 1},
    {"OneHot", 2, 2},
    {"Pad", 2, 2},
    {"Range", 0, 2},
    {"Resize", 1, 2},
    {"Upsample", 1, 1},
    {"QuantizeLinear", 1, 1},
    {"Pow", 1, 1},
    {"DequantizeLinear", 1, 1},
    {"SoftmaxCrossEntropyLoss", 2, 2},
    {"NegativeLogLikelihoodLoss", 2, 2},  // class weights
    {"SoftmaxCrossEntropyLossInternal", 2, 2},
    {"BiasDropout", 3, 3},
    {"QAttention", 3, 4},       // scales
    {"Attention", 3, 3},        // mask
    {"RotaryEmbedding", 1, 3},  // tables of sines and cosines
};

constexpr const char* kWeightOps[] = {"MatMul", "Gemm", "Conv", "ConvTranspose",
                                      "LSTM",   "GRU",  "RNN",  "Gather"};

struct Seen {
  bool weight = false, state = false, argument = false;
  bool factor = false;  // of a product
  int bearers = 0;      // initializers of this name in all graphs
  std::int32_t data_type = 0;
};

bool is_weight_op(const std::string& op_type) {
  return std::find(std::begin(kWeightOps), std::end(kWeightOps), op_type) != std::end(kWeightOps);
}

constexpr std::string_view kByTorchScript = "onnx::", kByDynamo = "val_";

bool names_constant(const std::string& name, const Seen& seen) {
  if (!is_made_up(name)) return false;
  if (name.starts_with(kByDynamo)) return !seen.factor;
  return !is_weight_op(name.substr(kByTorchScript.size(), name.rfind('_') - kByTorchScript.size()));
}

void look_at(const onnx::GraphProto& graph, NameViewMap<Seen>& seen) {
  const auto look = [&](const std::string& name, auto mark) {
    const auto it = seen.find(name);
    if (it != seen.end()) mark(it->second);
  };
  for (const auto& node : graph.node()) {
    for (int i = 0; i < node.input_size(); ++i) {
      bool argument = false;
      for (const Slot& slot : kArguments)
        argument = argument || (node.op_type() == slot.op_type && i >= slot.first && i <= slot.last);
      const bool state = node.op_type() == "BatchNormalization" && i >= 3;
      look(node.input(i), [&](Seen& s) {
        (argument ? s.argument : state ? s.state : s.weight) = true;
        s.factor = s.factor || is_weight_op(node.op_type());
      });
    }
  }
  for (const auto& output : graph.output()) look(output.name(), [](Seen& s) { s.weight = true; });
}

}  // namespace

bool is_made_up(const std::string& name) {
  if (name.starts_with(kByTorchScript)) return true;
  return name.starts_with(kByDynamo) && name.size() > kByDynamo.size() &&
         name.find_first_not_of("0123456789", kByDynamo.size()) == std::string::npos;
}

InitializerUses classify_initializers(const onnx::GraphProto& graph) {
  NameViewMap<Seen> seen;
  for_each_graph(graph, [&](const onnx::GraphProto& g) {
    for (const auto& initializer : g.initializer()) {
      Seen& s = seen[initializer.name()];
      ++s.bearers;
      s.data_type = initializer.data_type();
    }
  });
  for_each_graph(graph, [&](const onnx::GraphProto& g) { look_at(g, seen); });

  const NameMap<Provenance> provenance = provenance_of(graph);
  InitializerUses result;
  const auto classify = [&](const std::string& name) {
    const Seen& s = seen[name];
    const Result<DType> dtype = dtype_of_proto(s.data_type);
    InitializerUse use = InitializerUse::parameter;
    if (!s.weight && !s.state && !s.argument) {
      use = InitializerUse::unused;
    } else if (!dtype.ok() || !is_float(*dtype) || s.bearers > 1) {
      use = InitializerUse::constant;
    } else if (s.state) {
      use = InitializerUse::state;
    } else if (!s.weight) {
      use = InitializerUse::constant;
    } else if (const auto said = provenance.find(name); said != provenance.end()) {
      const Provenance& from = said->second;
      if (!from.parameters.empty()) {
        result.computed.push_back({name, from.parameters, from.rearranged, s.factor});
      } else if (from.kind != Provenance::Kind::parameter) {
        use = InitializerUse::constant;
      }
    } else if (names_constant(name, s)) {
      use = InitializerUse::constant;
      if (provenance.empty()) result.exporter_constants.push_back(name);
    }
    result.use[name] = use;
  };
  for_each_graph(graph, [&](const onnx::GraphProto& g) {
    for (const auto& initializer : g.initializer())
      if (result.use.count(initializer.name()) == 0) classify(initializer.name());
  });
  return result;
}

}  // namespace gradloom
