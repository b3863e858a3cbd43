// Sources: the ONNX operator reference up to opset 28; ONNX Runtime's ContribOperators.md for com.microsoft.
#include "engine/onnx/read/attribute_ranges.h"

#include <cmath>
#include <limits>
#include <optional>
#include <sstream>

#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr const char* kEvery = "";

constexpr AttributeRange words(const char* operators, const char* attribute, const char* words) {
  return {operators, attribute, AttributeRange::Kind::words, words};
}
constexpr AttributeRange integers(const char* operators, const char* attribute, double low, double high) {
  return {operators, attribute, AttributeRange::Kind::integers, "", low, high};
}
constexpr AttributeRange flag(const char* attribute) { return integers(kEvery, attribute, 0, 1); }
constexpr AttributeRange at_least(double low, const char* attribute) {
  return integers(kEvery, attribute, low, kAny);
}
constexpr AttributeRange reals(const char* operators, const char* attribute, double low, double high) {
  return {operators, attribute, AttributeRange::Kind::reals, "", low, high};
}
constexpr double kNewestType = 26;  // of TensorProto.DataType: INT2; 0: not said
constexpr double kBelowOne = 1 - 0x1p-53;

constexpr AttributeRange kRanges[] = {
    // ---- words ----
    words(kEvery, "auto_pad", "NOTSET SAME_UPPER SAME_LOWER VALID"),
    words("Resize", "coordinate_transformation_mode",
          "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn "
          "tf_crop_and_resize"),
    words("RoiAlign", "coordinate_transformation_mode", "half_pixel output_half_pixel"),
    words("CausalConvWithState", "activation", "none silu swish"),
    words("BitShift", "direction", "LEFT RIGHT"),
    words("GRU LSTM RNN", "direction", "forward reverse bidirectional"),
    words("Gelu", "approximate", "none tanh"),
    words("Resize", "keep_aspect_ratio_policy", "stretch not_larger not_smaller"),
    words("DepthToSpace SpaceToDepth", "mode", "DCR CRD"),
    words("GridSample", "mode", "bilinear bicubic linear cubic nearest"),
    words("Momentum", "mode", "standard nesterov"),
    words("Pad", "mode", "constant reflect edge wrap"),
    words("Resize Upsample", "mode", "nearest linear cubic"),
    words("RoiAlign", "mode", "avg max"),
    words("TensorScatter", "mode", "linear circular"),
    words("TfIdfVectorizer", "mode", "TF IDF TFIDF"),
    words("Resize", "nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil"),
    words("GridSample", "padding_mode", "zeros border reflection"),
    words("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss SoftmaxCrossEntropyLossInternal", "reduction",
          "none sum mean"),
    words("Scatter ScatterElements ScatterND", "reduction", "none add mul max min"),
    words("Cast CastLike", "round_mode", "up down nearest"),
    words("LinearAttention", "update_rule", "linear gated delta gated_delta"),
    words(kEvery, "stash_type", "1 10 11 16"),  // TensorProto's FLOAT, FLOAT16, DOUBLE, BFLOAT16
    // ---- yes or no ----
    flag("align_corners"),
    flag("allowzero"),
    flag("antialias"),
    flag("batch_axis"),
    flag("broadcast"),
    flag("ceil_mode"),
    flag("center_point_box"),
    flag("channels_last"),
    flag("count_include_pad"),
    flag("detect_negative"),
    flag("detect_positive"),
    flag("directions"),
    flag("do_rotary"),
    flag("exclude_outside"),
    flag("exclusive"),
    flag("fmod"),
    flag("input_as_shape"),
    flag("input_forget"),
    flag("interleaved"),
    flag("inverse"),
    flag("is_bidirectional"),
    flag("is_causal"),
    flag("is_inner_broadcast"),
    flag("is_packed_batching"),
    flag("is_test"),
    flag("keepdims"),
    flag("largest"),
    flag("layout"),
    flag("linear_before_reset"),
    flag("new_axis"),
    flag("noop_with_empty_axes"),
    flag("onesided"),
    flag("past_present_share_buffer"),
    flag("periodic"),
    flag("reverse"),
    flag("rotary_interleaved"),
    flag("saturate"),
    flag("scan_input_directions"),
    flag("scan_output_directions"),
    flag("select_last_index"),
    flag("sorted"),
    flag("spatial"),
    flag("storage_order"),
    flag("time_axis"),
    flag("training_mode"),
    flag("transA"),
    flag("transB"),
    flag("transBatchA"),
    flag("transBatchB"),
    flag("unidirectional"),
    flag("upper"),
    // ---- other integers ----
    integers("Attention", "qk_matmul_output_mode", 0, 3),
    integers("GroupQueryAttention", "local_window_size", -1, kAny),
    integers("GroupQueryAttention", "smooth_softmax", -1, 1),
    integers("GroupNorm SkipGroupNorm", "activation", 0, 1),
    integers("EmbedLayerNormalization", "mask_index_type", 0, 1),
    integers("LpNormalization", "p", 1, 2),
    integers("GlobalLpPool LpPool", "p", 1, kAny),
    integers("BitCast Cast", "to", 1, kNewestType),
    integers(kEvery, "dtype", 0, kNewestType),
    integers(kEvery, "output_datatype", 0, kNewestType),
    integers(kEvery, "output_dtype", 0, kNewestType),
    integers(kEvery, "precision", 0, kNewestType),
    integers(kEvery, "softmax_precision", 0, kNewestType),
    at_least(0, "batch_dims"),
    at_least(0, "block_size"),
    at_least(1, "blocksize"),
    at_least(1, "dilations"),
    at_least(1, "group"),
    at_least(1, "groups"),
    at_least(1, "hidden_size"),
    at_least(1, "kernel_shape"),
    at_least(0, "kv_num_heads"),
    at_least(1, "max_distance"),
    at_least(1, "max_gram_length"),
    at_least(0, "max_skip_count"),
    at_least(1, "min_gram_length"),
    at_least(0, "ngram_counts"),
    at_least(0, "ngram_indexes"),
    at_least(1, "num_groups"),
    at_least(0, "num_heads"),
    at_least(1, "num_outputs"),
    at_least(1, "num_scan_inputs"),
    at_least(1, "offset_group"),
    at_least(1, "output_height"),
    at_least(0, "output_padding"),
    at_least(1, "output_width"),
    integers("Pad", "pads", -kAny, kAny),  // negative ones crop
    at_least(0, "pads"),
    at_least(1, "pooled_shape"),
    at_least(0, "q_num_heads"),
    at_least(0, "rotary_embedding_dim"),
    at_least(1, "sample_size"),
    at_least(0, "sampling_ratio"),
    at_least(1, "size"),
    at_least(0, "split"),
    at_least(1, "strides"),
    // ---- reals ----
    reals("GRU LSTM RNN", "clip", 0, kAny),
    reals(kEvery, "epsilon", 0, kAny),
    reals("RandomUniform RandomUniformLike", "high", -kAny, kAny),
    reals("RandomUniform RandomUniformLike", "low", -kAny, kAny),
    reals("RandomNormal RandomNormalLike", "mean", -kAny, kAny),
    reals(kEvery, "momentum", -kAny, kAny),
    reals(kEvery, "seed", -kAny, kAny),
    reals("Dropout", "ratio", 0, kBelowOne),
    reals("RandomNormal RandomNormalLike", "scale", 0, kAny),
    reals("MaxRoiPool RoiAlign", "spatial_scale", 0, kAny),
};

bool is_one_of(const std::string& word, const char* words) {
  std::istringstream list(words);
  for (std::string one; list >> one;)
    if (one == word) return true;
  return false;
}

const AttributeRange* range_of(const std::string& op_type, const std::string& attribute) {
  for (const AttributeRange& range : kRanges)
    if (attribute == range.attribute && (*range.operators == '\0' || is_one_of(op_type, range.operators)))
      return &range;
  return nullptr;
}

// "NOTSET, SAME_UPPER, SAME_LOWER or VALID"
std::string listed(const char* words) {
  std::istringstream list(words);
  std::vector<std::string> all;
  for (std::string one; list >> one;) all.push_back(one);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + all[i];
  return text;
}

std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string allowed(const AttributeRange& range) {
  if (range.kind == AttributeRange::Kind::words) return listed(range.words);
  if (range.high == kBelowOne) return "at least " + number(range.low) + " and below 1";
  if (range.kind == AttributeRange::Kind::integers && range.high == range.low + 1)
    return number(range.low) + " or " + number(range.high);
  if (std::isinf(range.low)) return "a number";
  return std::isinf(range.high) ? "at least " + number(range.low)
                                : number(range.low) + " to " + number(range.high);
}

// The first entry that is not allowed, as text.
std::optional<std::string> excluded(const AttributeRange& range, const AttrValue& value) {
  using Kind = AttributeRange::Kind;
  const auto within = [&](double v) { return v >= range.low && v <= range.high; };
  const auto integer = [&](std::int64_t v) -> std::optional<std::string> {
    const bool is_right = range.kind == Kind::integers ? within(static_cast<double>(v))
                          : range.kind == Kind::words  ? is_one_of(std::to_string(v), range.words)
                                                       : true;
    return is_right ? std::nullopt : std::optional(std::to_string(v));
  };
  const auto real = [&](double v) -> std::optional<std::string> {
    if (range.kind != Kind::reals || (std::isfinite(v) && within(v))) return {};
    return number(v);
  };
  if (const auto* one = std::get_if<std::int64_t>(&value)) return integer(*one);
  if (const auto* one = std::get_if<double>(&value)) return real(*one);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
    for (const std::int64_t v : *list)
      if (const auto wrong = integer(v)) return wrong;
  if (const auto* list = std::get_if<std::vector<double>>(&value))
    for (const double v : *list)
      if (const auto wrong = real(v)) return wrong;
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr && range.kind == Kind::words && !is_one_of(*text, range.words))
    return "'" + escaped(*text) + "'";
  return {};
}

}  // namespace

std::span<const AttributeRange> attribute_ranges() { return kRanges; }

std::string attribute_out_of_range(const std::string& op_type, const std::string& attribute,
                                   const AttrValue& value) {
  const AttributeRange* range = range_of(op_type, attribute);
  const std::optional<std::string> wrong = range == nullptr ? std::nullopt : excluded(*range, value);
  if (!wrong) return "";
  return "attribute '" + attribute + "' is " + *wrong + ", it must be " + allowed(*range);
}

}  // namespace gradloom
