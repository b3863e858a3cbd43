// Every use of an initializer is looked at once; one use as a weight makes it a weight.
#include "engine/onnx/repair/initializers.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/base/text.h"
#include "engine/onnx/repair/made_up_name.h"
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
    {"STFT", 2, 2},             // window
    {"MelWeightMatrix", 3, 4},  // lowest and highest frequency
};

constexpr const char* kWeightOps[] = {"MatMul", "Gemm", "Conv", "ConvTranspose",
                                      "LSTM",   "GRU",  "RNN",  "Gather"};

struct Seen {
  bool weight = false, state = false, argument = false;
  bool factor = false;                    // of a product
  bool recurrent = false, other = false;  // kinds of readers
  int bearers = 0;                        // initializers of this name in all graphs
  std::int32_t data_type = 0;
  std::string_view copier;  // operator of the first Cast or Identity that reads it, or a copy of it
  std::string_view reader;  // operator of the first node that reads it as a weight; else of the first
};

bool is_weight_op(const std::string& op_type) {
  return std::find(std::begin(kWeightOps), std::end(kWeightOps), op_type) != std::end(kWeightOps);
}

// By torch.export's names, those of ATen's functions: "zeros_like_1" is what the exporter computed from nothing.
bool is_made_from_nothing(const std::string& name) {
  static const NameSet kFunctions = {"scalar_tensor_default",
                                     "zeros_like",
                                     "ones_like",
                                     "full_like",
                                     "new_zeros",
                                     "new_ones",
                                     "new_full",
                                     "const_cast",
                                     "fill"};
  const std::size_t end = name.find_last_not_of("0123456789");
  const bool numbered = end != std::string::npos && end + 1 < name.size() && name[end] == '_';
  return kFunctions.count(numbered ? name.substr(0, end) : name) != 0;
}

bool names_constant(const std::string& name, const Seen& seen) {
  if (is_made_from_nothing(name)) return true;
  if (!is_made_up(name)) return false;
  if (name.starts_with(kByDynamo)) return !seen.factor;
  return !is_weight_op(name.substr(kByTorchScript.size(), name.rfind('_') - kByTorchScript.size()));
}

bool makes_copy(const onnx::NodeProto& node) {
  return node.domain().empty() && (node.op_type() == "Cast" || node.op_type() == "Identity") &&
         node.input_size() == 1 && node.output_size() == 1;
}

// Of what Cast and Identity make, by name; without names that several graphs give to values of their own.
NameViewMap<std::string_view> copies_in(const onnx::GraphProto& graph) {
  NameViewMap<std::string_view> copies;
  NameViewSet twice;
  for_each_graph(graph, [&](const onnx::GraphProto& g) {
    for (const auto& node : g.node())
      if (makes_copy(node) && !copies.emplace(node.output(0), node.input(0)).second)
        twice.insert(node.output(0));
  });
  for (const std::string_view name : twice) copies.erase(name);
  return copies;
}

// What reads a copy reads what it was copied from.
void look_at(const onnx::GraphProto& graph, const NameViewMap<std::string_view>& copies,
             NameViewMap<Seen>& seen) {
  const auto look = [&](std::string_view name, auto mark) {
    constexpr int kMostCopies = 8;  // of copies
    for (int i = 0; i <= kMostCopies; ++i) {
      if (const auto it = seen.find(name); it != seen.end()) return mark(it->second, i > 0);
      const auto copy = copies.find(name);
      if (copy == copies.end()) return;
      name = copy->second;
    }
  };
  for (const auto& node : graph.node()) {
    if (makes_copy(node) && copies.count(node.output(0)) != 0) {
      look(node.input(0), [&](Seen& s, bool) {
        if (s.copier.empty()) s.copier = node.op_type();
      });
      continue;
    }
    for (int i = 0; i < node.input_size(); ++i) {
      bool argument = false;
      for (const Slot& slot : kArguments)
        argument = argument || (node.op_type() == slot.op_type && i >= slot.first && i <= slot.last);
      const bool statistic = node.op_type() == "BatchNormalization" && i >= 3;
      look(node.input(i), [&](Seen& s, bool copied) {
        const bool first_weight = !argument && !statistic && !s.weight;
        if (first_weight || s.reader.empty()) s.reader = node.op_type();
        // A copy does not follow the batches.
        (argument || (statistic && copied) ? s.argument : statistic ? s.state : s.weight) = true;
        s.factor = s.factor || is_weight_op(node.op_type());
        (node.op_type() == "LSTM" || node.op_type() == "GRU" || node.op_type() == "RNN" ? s.recurrent
                                                                                        : s.other) = true;
      });
    }
  }
  for (const auto& output : graph.output()) {
    look(output.name(), [](Seen& s, bool) {
      s.weight = true;
      if (s.reader.empty()) s.reader = "the graph's outputs";
    });
  }
}

class Classifier {
 public:
  Classifier(const onnx::GraphProto& graph, const std::vector<std::string>& train) : train_(train) {
    for_each_graph(graph, [&](const onnx::GraphProto& g) {
      for (const auto& initializer : g.initializer()) {
        Seen& s = seen_[initializer.name()];
        ++s.bearers;
        s.data_type = initializer.data_type();
      }
    });
    const NameViewMap<std::string_view> copies = copies_in(graph);
    for_each_graph(graph, [&](const onnx::GraphProto& g) { look_at(g, copies, seen_); });
    provenance_ = provenance_of(graph);
  }

  InitializerUses run(const onnx::GraphProto& graph) {
    for_each_graph(graph, [&](const onnx::GraphProto& g) {
      for (const auto& initializer : g.initializer())
        if (result_.use.count(initializer.name()) == 0) classify(initializer.name());
    });
    return std::move(result_);
  }

 private:
  void classify(const std::string& name) {
    Seen& s = seen_[name];
    if (!s.weight && !s.state && !s.argument && !s.copier.empty()) {  // nothing reads the copy
      s.weight = true;
      s.reader = s.copier;
    }
    const Result<DType> dtype = dtype_of_proto(s.data_type);
    const auto is = [&](InitializerUse use, const std::string& why) {
      result_.use[name] = use;
      result_.why[name] = why;
    };
    if (!s.weight && !s.state && !s.argument) return is(InitializerUse::unused, "nothing reads it");
    if (!dtype.ok()) return is(InitializerUse::constant, "its type is none of numbers");
    if (!is_float(*dtype))
      return is(InitializerUse::constant, std::string(dtype_name(*dtype)) + ": only floats are trained");
    if (s.bearers > 1) return is(InitializerUse::constant, "several graphs have a constant of this name");
    if (s.state) return is(InitializerUse::state, "a running statistic, which follows the batches");
    const std::string read = "read by " + std::string(s.reader);
    if (!s.weight)
      return is(InitializerUse::constant, "an argument of " + std::string(s.reader) + ", no weight");
    const bool asked = fits_any(train_, name);
    if (const auto said = provenance_.find(name); said != provenance_.end()) {
      result_.said.insert(name);
      classify_said(name, said->second, s, asked);
    } else if (!names_constant(name, s)) {
      is(InitializerUse::parameter, read);
    } else if (asked) {
      is(InitializerUse::parameter, "a constant by its name, trained as --train says");
    } else {
      is(InitializerUse::constant, "a constant by its name");
      if (provenance_.empty()) result_.exporter_constants.push_back(name);
    }
  }

  void classify_said(const std::string& name, const Provenance& from, const Seen& s, bool asked) {
    const bool computed = from.kind == Provenance::Kind::computed;
    const bool trained = !from.parameters.empty() || from.kind == Provenance::Kind::parameter;
    std::string why = computed ? "computed by the exporter from constants" : "a buffer, as the exporter says";
    if (!from.parameters.empty()) {
      result_.computed.push_back({name, from.parameters, from.rearranged, from.copied, from.repeated,
                                  from.named, s.factor, s.recurrent && !s.other});
      why = "computed by the exporter from " + from.parameters[0];
      for (std::size_t i = 1; i < from.parameters.size(); ++i) why += ", " + from.parameters[i];
    } else if (trained) {
      why = "a parameter, as the exporter says";
    } else if (asked) {
      why += ", trained as --train says";
    }
    result_.use[name] = trained || asked ? InitializerUse::parameter : InitializerUse::constant;
    result_.why[name] = std::move(why);
  }

  const std::vector<std::string>& train_;
  NameViewMap<Seen> seen_;
  NameMap<Provenance> provenance_;
  InitializerUses result_;
};

}  // namespace

InitializerUses classify_initializers(const onnx::GraphProto& graph, const std::vector<std::string>& train) {
  return Classifier(graph, train).run(graph);
}

}  // namespace gradloom
