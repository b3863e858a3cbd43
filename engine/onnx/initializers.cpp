// Every use of an initializer is looked at once; one use as a weight makes it a weight.
#include "engine/onnx/initializers.h"

#include <string_view>

#include "engine/onnx/tensor_proto.h"

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
};

constexpr const char* kWeightOps[] = {"MatMul", "Gemm", "Conv", "ConvTranspose",
                                      "LSTM",   "GRU",  "RNN",  "Gather"};

struct Seen {
  bool weight = false, state = false, argument = false;
};

bool names_constant(const std::string& name) {
  constexpr std::string_view kPrefix = "onnx::";
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return false;
  const std::string op = name.substr(kPrefix.size(), name.rfind('_') - kPrefix.size());
  for (const char* weight_op : kWeightOps) {
    if (op == weight_op) return false;
  }
  return true;
}

}  // namespace

InitializerUses classify_initializers(const onnx::GraphProto& graph) {
  std::unordered_map<std::string_view, Seen> seen;
  seen.reserve(static_cast<std::size_t>(graph.initializer_size()));
  for (const auto& initializer : graph.initializer()) seen[initializer.name()];
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
      look(node.input(i), [&](Seen& s) { (argument ? s.argument : state ? s.state : s.weight) = true; });
    }
  }
  for (const auto& output : graph.output()) look(output.name(), [](Seen& s) { s.weight = true; });

  InitializerUses result;
  for (const auto& initializer : graph.initializer()) {
    const Seen& s = seen[initializer.name()];
    const Result<DType> dtype = dtype_of_proto(initializer.data_type());
    InitializerUse use = InitializerUse::parameter;
    if (!s.weight && !s.state && !s.argument) {
      use = InitializerUse::unused;
    } else if (!dtype.ok() || !is_float(*dtype)) {
      use = InitializerUse::constant;
    } else if (s.state) {
      use = InitializerUse::state;
    } else if (!s.weight) {
      use = InitializerUse::constant;
    } else if (names_constant(initializer.name())) {
      use = InitializerUse::constant;
      result.exporter_constants.push_back(initializer.name());
    }
    result.use[initializer.name()] = use;
  }
  return result;
}

}  // namespace gradloom
