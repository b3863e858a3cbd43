// What ONNX's specification excludes ends in an error when a file is read, for every operator: each attribute
// that its samples or ONNX's schema have, and each integer tensor that is known, is set to what no node may
// have: a word that is none of an attribute's, integers far outside of everything (97 and -97), reals that are
// no numbers, lists that are an entry too long or too short. What may be so all the same stands in kAllowed,
// with why: a row that stops being true fails.
#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>

#include "engine/onnx/read/attribute_ranges.h"
#include "engine/onnx/read/attributes.h"
#include "tests/engine/onnx/support.h"
#include "tests/fuzz/operator_cases.h"

namespace gradloom::fuzz {
namespace {

using onnx::AttributeProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

struct Allowed {
  const char* operators;  // separated by spaces; empty: every one
  const char* subject;    // an attribute, or "input 1"
  const char* probe;      // how a probe's name begins; empty: every one
  const char* why;
};
constexpr Allowed kAllowed[] = {
    // Contents of integer tensors that may be any number.
    {"Abs Add ArgMax ArgMin BitCast BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Clip Concat CumSum "
     "DepthToSpace DequantizeLinear Div Equal Expand EyeLike Gather GatherElements GatherND Greater "
     "GreaterOrEqual Less LessOrEqual Max Min Mod Mul Neg PRelu Pad Pow QuantizeLinear RandomNormalLike "
     "RandomUniformLike Range ReduceMax ReduceMin ReduceProd ReduceSum Relu Reshape Resize ReverseSequence "
     "Scatter ScatterElements Shrink Sign Slice SpaceToDepth Sub Tile TopK Transpose Trilu Unique Unsqueeze",
     "input 0", "", "data"},
    {"Add BitwiseAnd BitwiseOr BitwiseXor Clip Concat Div Equal Greater GreaterOrEqual Less LessOrEqual Max "
     "Min Mod Mul PRelu Pow Range Sub Where",
     "input 1", "", "data"},
    {"Range Scatter ScatterElements Where", "input 2", "", "data"},
    {"QLinearConv", "input 8", "", "the bias"},
    {"OneHot", "input 0", "", "an index out of range has no entry that is on"},
    {"Slice", "input 1", "", "starts are clamped"},
    {"Slice", "input 2", "", "ends are clamped"},
    {"Slice", "input 4", "", "steps of any length and direction"},
    {"Trilu", "input 1", "", "a diagonal beyond the matrix: all of it or nothing"},
    {"Adagrad Adam Momentum", "input 1", "", "the count of updates"},
    {"NonMaxSuppression", "input 2", "", "at most so many boxes; fewer than none are none"},
    {"SoftmaxCrossEntropyLossInternal", "input 3", "", "ignore_index"},
    {"Attention", "input 3", "", "com.microsoft: a mask, or lengths that reach beyond its keys"},
    {"MultiHeadAttention", "input 4", "", "a mask, or lengths that reach beyond its keys"},
    {"QAttention GroupQueryAttention", "input 5", "", "lengths that reach beyond its keys"},
    {"GroupQueryAttention", "input 6", "", "the length of a cache that is not used"},
    {"EmbedLayerNormalization", "input 7", "", "a mask, of which the entries that are not 0 are counted"},
    // Sizes without an upper end.
    {"BlackmanWindow ConstantOfShape HammingWindow HannWindow MelWeightMatrix", "input 0", "= 97", "sizes"},
    {"AffineGrid CenterCropPad DFT Expand MelWeightMatrix OneHot Pad RelativePositionBias STFT Tile TopK",
     "input 1", "= 97", "sizes"},
    {"MelWeightMatrix RelativePositionBias", "input 2", "= 97", "sizes"},
    {"Resize", "input 3", "= 97", "sizes"},
    {"ConvTranspose", "dilations", "= 97", "the output grows"},
    {"AveragePool LpPool MaxPool MaxUnpool", "kernel_shape", "= 97", "the padding grows, or the output"},
    {"AveragePool Conv ConvInteger ConvTranspose FusedConv LpPool MaxPool MaxUnpool NhwcConv QLinearConv",
     "strides", "= 97", "one window"},
    {"Conv ConvInteger NhwcConv Pad QLinearConv", "pads", "= 97", "padding wider than the kernel"},
    {"ConvTranspose", "output_shape", "= 97", "what no input reaches is zero"},
    {"EyeLike", "k", "", "a diagonal beyond the matrix"},
    {"GlobalLpPool LpPool", "p", "= 97", "any power"},
    {"GroupQueryAttention", "local_window_size", "= 97", "a window of more than there is"},
    {"LRN", "size", "= 97", "more channels than there are"},
    {"MaxRoiPool", "pooled_shape", "= 97", "sizes"},
    {"Multinomial", "sample_size", "= 97", "sizes"},
    {"RandomNormal RandomUniform", "shape", "", "sizes"},
    {"RelativePositionBias", "max_distance", "= 97", "a distance"},
    {"RoiAlign", "output_height", "= 97", "sizes"},
    {"RoiAlign", "output_width", "= 97", "sizes"},
    {"RoiAlign", "sampling_ratio", "= 97", "sizes"},
    {"TfIdfVectorizer", "max_gram_length", "= 97", "longer than any gram of its pool"},
    {"TfIdfVectorizer", "max_skip_count", "= 97", "farther than the text reaches"},
    {"TfIdfVectorizer", "ngram_indexes", "= 97", "the width of the output"},
    // Positions that are clamped, numbers that name nothing, and what another attribute switches off.
    {"Attention", "rotary_embedding_dim", "= 97", "com.microsoft: read with do_rotary alone"},
    {"Constant", "value_int", "", "data"},
    {"Constant", "value_ints", "", "data"},
    {"DequantizeLinear QuantizeLinear", "axis", "", "ignored where the scale is one number"},
    {"Dropout BiasDropout", "seed", "", "any number"},
    {"NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "ignore_index", "", "a label that no class has"},
    {"Shape", "end", "", "clamped"},
    {"Shape", "start", "", "clamped"},
    {"Slice", "ends", "", "clamped"},
    {"Slice", "starts", "", "clamped"},
    {"TfIdfVectorizer", "pool_int64s", "", "words"},
    // Lists.
    {"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
     "ReduceSumSquare Squeeze Unsqueeze",
     "axes", "shorter", "any number of axes"},
    {"Conv", "dilations", "shorter", "an empty list is an absent one, as in ONNX Runtime"},
    {"Conv ConvTranspose LpPool MaxPool", "strides", "shorter",
     "an empty list is an absent one, as in ONNX Runtime"},
    {"Scan", "directions", "shorter", "an empty list is an absent one"},
    {"Scan", "scan_input_axes", "shorter", "an empty list is an absent one"},
    {"Scan", "scan_input_directions", "shorter", "an empty list is an absent one"},
    {"Scan", "scan_output_axes", "shorter", "an empty list is an absent one"},
    {"Scan", "scan_output_directions", "shorter", "an empty list is an absent one"},
    // Reals that the definition lets be anything: training tells what they spoil (exit 7).
    {"", "activation_alpha", "= NaN", "any real"},
    {"", "activation_beta", "= NaN", "any real"},
    {"", "activation_gamma", "= NaN", "any real"},
    {"", "activation_params", "= NaN", "any real"},
    {"", "alpha", "= NaN", "any real"},
    {"", "beta", "= NaN", "any real"},
    {"", "bias", "= NaN", "any real"},
    {"", "cubic_coeff_a", "= NaN", "any real"},
    {"", "decay_factor", "= NaN", "any real"},
    {"", "extrapolation_value", "= NaN", "any real"},
    {"", "gamma", "= NaN", "any real"},
    {"", "lambd", "= NaN", "any real"},
    {"", "mask_filter_value", "= NaN", "any real"},
    {"", "max", "= NaN", "any real"},
    {"", "min", "= NaN", "any real"},
    {"", "norm_coefficient", "= NaN", "any real"},
    {"", "norm_coefficient_post", "= NaN", "any real"},
    {"", "scale", "= NaN", "any real"},
    {"", "softcap", "= NaN", "any real"},
    {"", "value", "= NaN", "data"},
    {"", "weights", "= NaN", "any real"},
};

struct Probe {
  std::string subject, name;
  std::function<void(ModelProto&)> apply;
};

NodeProto& node_of(ModelProto& model) { return *model.mutable_graph()->mutable_node(0); }

std::vector<std::pair<std::string, std::function<void(AttributeProto&)>>> changes_of(
    AttributeProto::AttributeType type, int entries) {
  std::vector<std::pair<std::string, std::function<void(AttributeProto&)>>> changes;
  const auto add = [&](const char* name, std::function<void(AttributeProto&)> change) {
    changes.emplace_back(name, std::move(change));
  };
  for (const std::int64_t v : {97, -97}) {
    const std::string name = "= " + std::to_string(v);
    if (type == AttributeProto::INT) add(name.c_str(), [=](AttributeProto& a) { a.set_i(v); });
    if (type == AttributeProto::INTS && entries > 0)
      add(name.c_str(), [=](AttributeProto& a) {
        for (auto& entry : *a.mutable_ints()) entry = v;
      });
  }
  if (type == AttributeProto::STRING) add("= nosuch", [](AttributeProto& a) { a.set_s("nosuch"); });
  if (type == AttributeProto::FLOAT) add("= NaN", [](AttributeProto& a) { a.set_f(NAN); });
  if (type == AttributeProto::STRINGS && entries > 0)
    add("= nosuch", [](AttributeProto& a) { a.set_strings(0, "nosuch"); });
  if (type == AttributeProto::FLOATS && entries > 0)
    add("= NaN", [](AttributeProto& a) { a.set_floats(0, NAN); });
  if (type == AttributeProto::INTS && entries > 0) {
    add("longer", [](AttributeProto& a) { a.add_ints(a.ints(a.ints_size() - 1)); });
    add("shorter", [](AttributeProto& a) { a.mutable_ints()->RemoveLast(); });
  }
  return changes;
}

void add_attribute_probes(const ModelProto& model, std::vector<Probe>& probes) {
  const NodeProto& node = model.graph().node(0);
  std::set<std::string> there;
  for (int i = 0; i < node.attribute_size(); ++i) {
    const AttributeProto& a = node.attribute(i);
    there.insert(a.name());
    for (const auto& [name, change] :
         changes_of(a.type(), a.ints_size() + a.strings_size() + a.floats_size()))
      probes.push_back({a.name(), name,
                        [=, change = change](ModelProto& m) { change(*node_of(m).mutable_attribute(i)); }});
  }
  if (!node.domain().empty()) return;
  const onnx::OpSchema* schema = schema_of(
      node.op_type(), static_cast<int>(std::min<std::int64_t>(model.opset_import(0).version(), 17)));
  if (schema == nullptr) return;
  for (const auto& [attribute, declared] : schema->attributes()) {
    if (there.count(attribute) != 0) continue;
    AttributeProto a;
    a.set_name(attribute);
    a.set_type(static_cast<AttributeProto::AttributeType>(declared.type));
    if (a.type() == AttributeProto::INTS) a.add_ints(1);
    if (a.type() == AttributeProto::FLOATS) a.add_floats(1);
    if (a.type() == AttributeProto::STRINGS) a.add_strings("");
    for (const auto& [name, change] : changes_of(a.type(), 1)) {
      if (name == "longer" || name == "shorter") continue;
      AttributeProto with = a;
      change(with);
      probes.push_back({attribute, name, [with](ModelProto& m) { *node_of(m).add_attribute() = with; }});
    }
  }
}

void add_tensor_probes(const ModelProto& model, std::vector<Probe>& probes) {
  const NodeProto& node = model.graph().node(0);
  for (int k = 0; k < node.input_size(); ++k) {
    for (int i = 0; i < model.graph().initializer_size(); ++i) {
      const TensorProto& tensor = model.graph().initializer(i);
      if (tensor.name() != node.input(k) ||
          (tensor.data_type() != TensorProto::INT64 && tensor.data_type() != TensorProto::INT32))
        continue;
      std::int64_t count = 1;
      for (const std::int64_t dim : tensor.dims()) count *= dim;
      if (count == 0) continue;
      for (const std::int64_t v : {97, -97})
        probes.push_back({"input " + std::to_string(k), "= " + std::to_string(v), [=](ModelProto& m) {
                            TensorProto& t = *m.mutable_graph()->mutable_initializer(i);
                            t.clear_raw_data();
                            t.clear_int64_data();
                            t.clear_int32_data();
                            for (std::int64_t n = 0; n < count; ++n) {
                              if (t.data_type() == TensorProto::INT64)
                                t.add_int64_data(v);
                              else
                                t.add_int32_data(static_cast<std::int32_t>(v));
                            }
                          }});
    }
  }
}

// `operators`: separated by spaces; empty: every one.
bool names(const char* operators, const std::string& op) {
  std::istringstream list(operators);
  for (std::string name; list >> name;)
    if (name == op) return true;
  return *operators == '\0';
}

const Allowed* allowance(const std::string& op, const Probe& probe) {
  for (const Allowed& allowed : kAllowed)
    if (names(allowed.operators, op) && probe.subject == allowed.subject &&
        probe.name.rfind(allowed.probe, 0) == 0)
      return &allowed;
  return nullptr;
}

// The range that refused it, or null.
const AttributeRange* range_of(const std::string& op, const Probe& probe, const std::string& message) {
  if (message.find("attribute '" + probe.subject + "' is ") == std::string::npos ||
      message.find(", it must be ") == std::string::npos)
    return nullptr;
  for (const AttributeRange& range : attribute_ranges())
    if (probe.subject == range.attribute && names(range.operators, op)) return &range;
  return nullptr;
}

// Operators that have neither row nor body: those with subgraphs, those of sequences.
std::vector<OperatorCases> others() {
  const std::string body =
      "body = b (float[4] a, float[4] i) => (float[4] c, float[4] o) { c = Add(a, i) o = Neg(c) }>";
  const auto named = [](const char* name, const std::string& graph, int opset) {
    ModelProto model = gradloom::test::model_from_text(graph, opset);
    for (std::string& input : *node_of(model).mutable_input())
      if (input == "none") input.clear();
    return OperatorCases{"", name, {{"opset " + std::to_string(opset), std::move(model)}}};
  };
  return {named("Scan",
                "g (float[4] s, float[2, 4] x) => (float[4] y, float[2, 4] z)"
                "{ y, z = Scan<num_scan_inputs = 1, scan_input_axes = [0], scan_input_directions = [1], "
                "scan_output_axes = [0], scan_output_directions = [0], " +
                    body + "(s, x) }",
                17),
          named("Scan",
                "g (float[1, 4] s, float[1, 2, 4] x) => (float[1, 4] y, float[1, 2, 4] z)"
                "{ y, z = Scan<num_scan_inputs = 1, directions = [1], " +
                    body + "(none, s, x) }",
                8),
          named("ConcatFromSequence",
                "g (float[4] x) => (float[2, 4] y)"
                "{ y = ConcatFromSequence<axis = 0, new_axis = 1>(s) s = SequenceConstruct(x, x) }",
                17),
          named("SplitToSequence",
                "g (float[2, 4] x) => (float[4] y)"
                "{ s = SplitToSequence<axis = 0, keepdims = 0>(x) i = Constant<value_int = 0>()"
                " y = SequenceAt(s, i) }",
                17)};
}

// Some 30,000 files in one folder, in memory where the system has such.
Result<ImportedModel> imported_from(const TemporaryFolder& folder, const ModelProto& model) {
  gradloom::test::write_bytes(folder / "model.onnx", model.SerializeAsString());
  return import_onnx(folder / "model.onnx", {});
}

// Any integer: it keeps a row of every operator away from this one.
bool is_free(const AttributeRange& range) {
  return range.kind == AttributeRange::Kind::integers && std::isinf(range.low) && std::isinf(range.high);
}

bool is_typed(Errc code) { return code == Errc::bad_input || code == Errc::limit; }

TEST(OperatorCases, WhatTheSpecificationExcludesIsRefused) {
  const std::filesystem::path memory = "/dev/shm";
  const TemporaryFolder folder(
      std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path());
  std::set<const Allowed*> used;
  std::set<const AttributeRange*> ranges;
  std::set<std::string> silent, nameless;
  std::vector<OperatorCases> all = operator_cases(), more = others();
  std::move(more.begin(), more.end(), std::back_inserter(all));
  for (const OperatorCases& op : all) {
    for (const OperatorCase& c : op.cases) {
      if (!imported_from(folder, c.model).ok()) continue;  // a form of other opsets
      std::vector<Probe> probes;
      add_attribute_probes(c.model, probes);
      add_tensor_probes(c.model, probes);
      for (const Probe& probe : probes) {
        ModelProto model = c.model;
        probe.apply(model);
        const auto imported = imported_from(folder, model);
        const std::string what = op.domain + "." + op.name + " " + probe.subject + " " + probe.name;
        if (imported.ok()) {
          const Allowed* allowed = allowance(op.name, probe);
          if (allowed != nullptr)
            used.insert(allowed);
          else
            silent.insert(what + " (" + c.name + ")");
          continue;
        }
        if (const AttributeRange* range = range_of(op.name, probe, imported.error().message))
          ranges.insert(range);
        EXPECT_TRUE(is_typed(imported.error().code)) << what << ": " << imported.error().message;
        const std::string& message = imported.error().message;
        if (message.find("node '") == std::string::npos && message.find(op.name) == std::string::npos)
          nameless.insert(what + ": " + message);
        if (message.find('\n') != std::string::npos) nameless.insert(what + ": " + message);
      }
    }
  }
  for (const std::string& what : silent) ADD_FAILURE() << "passes silently: " << what;
  for (const std::string& what : nameless) ADD_FAILURE() << "not one line that names the node: " << what;
  for (const Allowed& allowed : kAllowed)
    EXPECT_TRUE(used.count(&allowed)) << "never happens: " << allowed.operators << " " << allowed.subject;
  for (const AttributeRange& range : attribute_ranges())
    EXPECT_TRUE(is_free(range) || ranges.count(&range))
        << "refuses nothing: " << range.operators << " " << range.attribute;
}

}  // namespace
}  // namespace gradloom::fuzz
