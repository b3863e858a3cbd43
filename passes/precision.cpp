#include "passes/precision.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields.h"
#include "engine/base/text.h"
#include "passes/node_patterns.h"

namespace gradloom {
namespace {

constexpr const char *kTypes[] = {"f32", "f64", "bf16", "f16"},
                     *kOptions[] = {"list", "full", "low", "within", "weights"};

// torch.autocast("cuda"), torch/csrc/autocast_mode: AT_FORALL_LOWER_PRECISION_FP and AT_FORALL_FP32, in ONNX's names and in
// those of the operators that passes make of several.
constexpr const char* kAutocastLow[] = {"MatMul",
                                        "Gemm",
                                        "Conv",
                                        "ConvTranspose",
                                        "Einsum",
                                        "FusedMatMul",
                                        "FusedAttention",
                                        "LinearCrossEntropyLoss",
                                        "LinearPartScores",
                                        "LSTM",
                                        "GRU",
                                        "RNN",
                                        "PRelu"};
constexpr const char* kAutocastFull[] = {"Acos",
                                         "Asin",
                                         "Cosh",
                                         "Exp",
                                         "Log",
                                         "Pow",
                                         "Reciprocal",
                                         "Sinh",
                                         "Tan",
                                         "Softplus",
                                         "LayerNormalization",
                                         "RMSNormalization",
                                         "GroupNormalization",
                                         "InstanceNormalization",
                                         "Softmax",
                                         "LogSoftmax",
                                         "LpNormalization",
                                         "SoftmaxCrossEntropyLoss",
                                         "PartScores",
                                         "NegativeLogLikelihoodLoss",
                                         "CumSum",
                                         "ReduceProd",
                                         "ReduceSum",
                                         "ReduceSumSquare",
                                         "ReduceL1",
                                         "ReduceL2",
                                         "ReduceLogSum",
                                         "ReduceLogSumExp",
                                         "Upsample",
                                         "Resize",
                                         "GridSample"};
// apex/amp/lists: FP16_FUNCS and FP32_FUNCS of functional_overrides, torch_overrides and tensor_overrides.
constexpr const char* kO1Low[] = {
    "MatMul",           "Gemm", "Conv", "ConvTranspose", "FusedMatMul", "LinearCrossEntropyLoss",
    "LinearPartScores", "LSTM", "GRU",  "RNN",           "PRelu"};
constexpr const char* kO1Full[] = {"Acos",
                                   "Asin",
                                   "Cosh",
                                   "Erf",
                                   "Exp",
                                   "Log",
                                   "Pow",
                                   "Reciprocal",
                                   "Sinh",
                                   "Tan",
                                   "Softplus",
                                   "BatchNormalization",
                                   "LayerNormalization",
                                   "GroupNormalization",
                                   "InstanceNormalization",
                                   "Softmax",
                                   "LogSoftmax",
                                   "LpNormalization",
                                   "Gelu",
                                   "GeluTanh",
                                   "SoftmaxCrossEntropyLoss",
                                   "PartScores",
                                   "NegativeLogLikelihoodLoss",
                                   "CumSum",
                                   "ReduceProd",
                                   "ReduceSum",
                                   "ReduceMean",
                                   "ReduceSumSquare",
                                   "ReduceL1",
                                   "ReduceL2",
                                   "ReduceLogSum",
                                   "ReduceLogSumExp"};
// O2: the model in 16 bits but for batch normalization; losses are outside of it.
constexpr const char* kO2Full[] = {"BatchNormalization", "SoftmaxCrossEntropyLoss", "PartScores",
                                   "NegativeLogLikelihoodLoss"};

constexpr PrecisionList kLists[] = {
    {"autocast",
     "products in 16 bits; norms, softmax, exponentials, logarithms and sums in f32; the rest as its operands",
     "torch.autocast of CUDA, torch 2", kAutocastLow, kAutocastFull},
    {"O1", "as autocast, with GELU, batch normalization and means in f32", "apex.amp opt_level O1", kO1Low,
     kO1Full},
    {"O2",
     "everything in 16 bits but batch normalization and losses",
     "apex.amp opt_level O2",
     {},
     kO2Full,
     true},
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

std::vector<std::string> list_names() {
  std::vector<std::string> names;
  for (const PrecisionList& list : kLists) names.emplace_back(list.name);
  return names;
}

// What the script that the model is of made of an operand, as the Python package writes it behind names.
std::optional<Precision> scripted(const Graph& graph, const Node& node) {
  const auto ends = [&](std::string_view label) {
    return std::any_of(node.origin.sources.begin(), node.origin.sources.end(), [&](std::uint32_t source) {
      const std::string& name = graph.sources[source].name;
      return name.size() > label.size() && std::string_view(name).substr(name.size() - label.size()) == label;
    });
  };
  if (ends("@f32")) return Precision::full;
  if (ends("@low") && node.origin.sources.size() == 1) return Precision::low;
  return std::nullopt;
}

bool contains(std::span<const char* const> names, const char* name) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return std::strcmp(n, name) == 0; });
}

}  // namespace

std::span<const PrecisionList> precision_lists() { return kLists; }

std::string precision_forms() {
  return "f32 | f64 | bf16 | f16 | bf16{full=Softmax,/head/*; low=TYPE,GLOB; within=/body/*; list=autocast; weights=low}";
}

std::string precision_type_name(const std::string& text) {
  const std::string_view name = trimmed(std::string_view(text).substr(0, text.find('{')));
  return std::string(name);
}

Result<PrecisionSpec> parse_precision(const std::string& text) {
  PrecisionSpec spec;
  spec.type = precision_type_name(text);
  const std::vector<std::string> types(std::begin(kTypes), std::end(kTypes));
  if (std::find(types.begin(), types.end(), spec.type) == types.end())
    return Error{Errc::usage, unknown_name("precision", spec.type, types)};
  const std::size_t brace = text.find('{');
  if (brace == std::string::npos) return spec;
  const std::string_view rest = trimmed(text);
  if (rest.back() != '}') return Error{Errc::usage, "missing '}' in '" + escaped(text) + "'"};
  if (!spec.mixed())
    return Error{Errc::usage, "precision " + spec.type + " has no options (bf16 and f16 do)"};
  const std::string_view body =
      trimmed(std::string_view(text).substr(brace + 1, text.rfind('}') - brace - 1));
  for (const std::string& part : split_top_level(body, ';')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    const std::string name(trimmed(std::string_view(part).substr(0, equals)));
    const std::vector<std::string> options(std::begin(kOptions), std::end(kOptions));
    if (std::find(options.begin(), options.end(), name) == options.end())
      return Error{Errc::usage, unknown_name("option of precision", name, options)};
    const std::string value(equals == std::string::npos ? std::string_view()
                                                        : trimmed(std::string_view(part).substr(equals + 1)));
    if (value.empty()) return Error{Errc::usage, "precision: " + name + " names nothing"};
    if (name == "weights") {
      if (value != "low" && value != "full")
        return Error{Errc::usage,
                     unknown_name("weights of precision", value, std::vector<std::string>{"full", "low"})};
      if (value == "low" && spec.type != "bf16")
        return Error{Errc::usage, "precision: weights=low is of bf16 alone"};
      spec.low_weights = value == "low";
      continue;
    }
    if (name == "list") {
      const std::vector<std::string> lists = list_names();
      if (std::find(lists.begin(), lists.end(), value) == lists.end())
        return Error{Errc::usage, unknown_name("list of precision", value, lists)};
      spec.list = value;
      continue;
    }
    auto& patterns = name == "full" ? spec.full : name == "low" ? spec.low : spec.within;
    for (const std::string& pattern : split_top_level(value, ','))
      if (!pattern.empty()) patterns.push_back(pattern);
  }
  return spec;
}

Result<PrecisionChoice> PrecisionChoice::make(const Graph& graph, const PrecisionSpec& spec) {
  PrecisionChoice choice;
  for (const auto* patterns : {&spec.full, &spec.low, &spec.within})
    TRY(check_node_patterns(graph, *patterns, "precision"));
  choice.spec_ = spec;
  for (const PrecisionList& list : kLists)
    if (spec.list == list.name) choice.list_ = &list;
  return choice;
}

std::optional<Precision> PrecisionChoice::named(const Graph& graph, const Node& node) const {
  const auto any = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& p) { return fits_node(p, graph, node); });
  };
  if (any(spec_.full)) return Precision::full;
  if (!spec_.within.empty() && !fits_wholly(spec_.within, graph, node)) return Precision::full;
  if (any(spec_.low)) return Precision::low;
  return std::nullopt;
}

bool PrecisionChoice::by_user(const Graph& graph, NodeId node) const {
  return named(graph, graph.nodes[node]).has_value();
}

Precision PrecisionChoice::of(const Graph& graph, NodeId id) const {
  const Node& node = graph.nodes[id];
  if (const auto own = named(graph, node)) return *own;
  Precision wanted = node.op->precision;
  if (list_ != nullptr)
    wanted = contains(list_->full, node.op->name)  ? Precision::full
             : contains(list_->low, node.op->name) ? Precision::low
                                                   : Precision::follow;
  if (wanted != Precision::follow) return wanted;
  if (const auto scripts = scripted(graph, node)) return *scripts;
  return list_ != nullptr && list_->all_low ? Precision::low : Precision::follow;
}

}  // namespace gradloom
