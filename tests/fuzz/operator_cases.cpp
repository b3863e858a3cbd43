#include "tests/fuzz/operator_cases.h"

#include <onnx/defs/parser.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "engine/onnx/read/attributes.h"
#include "engine/onnx/expand/expansion.h"
#include "engine/onnx/read/sample_graph.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/ir/op.h"

namespace gradloom::fuzz {

namespace {

using onnx::AttributeProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr int kNewestOpset = 28;

// A node for each expansion. Names of types and attributes are ONNX's text syntax; "none": a left out input.
struct Text {
  const char* name;
  const char* domain;
  int opset;
  const char* graph;
};
constexpr const char* kTraining = "ai.onnx.preview.training";
const Text kTexts[] = {
    {"CastLike", "", 15, "(float[2, 3] x, double[1] t) => (double y) { y = CastLike(x, t) }"},
    {"Attention", "", 24,
     "(float[1, 2, 3, 4] q, float[1, 2, 5, 4] k, float[1, 2, 5, 4] v, float[3, 5] m) => (float y)"
     "{ y = Attention<is_causal = 1, scale = 0.5, softcap = 2.0, qk_matmul_output_mode = 0, softmax_precision = 1>"
     "(q, k, v, m) }"},
    {"Attention", "", 23,
     "(float[1, 3, 8] q, float[1, 5, 4] k, float[1, 5, 4] v, float[1, 1, 2, 4] pk, float[1, 1, 2, 4] pv) =>"
     "(float y, float a, float b, float c)"
     "{ y, a, b, c = Attention<q_num_heads = 2, kv_num_heads = 1>(q, k, v, none, pk, pv) }"},
    {"RotaryEmbedding", "", 23,
     "(float[1, 3, 8] x, float[4, 2] c, float[4, 2] s) => (float y) <int64[1, 3] p = {0, 1, 2}>"
     "{ y = RotaryEmbedding<num_heads = 2, interleaved = 1, rotary_embedding_dim = 4>(x, c, s, p) }"},
    {"RotaryEmbedding", kMicrosoft, 17,
     "(float[1, 3, 8] x, float[4, 2] c, float[4, 2] s) => (float y) <int64[1, 3] p = {0, 1, 2}>"
     "{ y = com.microsoft.RotaryEmbedding<num_heads = 2, interleaved = 0, is_packed_batching = 0, scale = 1.0>(x, p, c, s) }"},
    {"MultiHeadAttention", kMicrosoft, 17,
     "(float[1, 3, 4] q, float[1, 5, 4] k, float[1, 5, 4] v, float[12] b, float[1, 2, 3, 5] a) => (float y)"
     "<int32[1, 5] p = {1, 1, 1, 1, 0}>"
     "{ y = com.microsoft.MultiHeadAttention<num_heads = 2, scale = 0.3, unidirectional = 1, mask_filter_value = -10000.0>(q, k, v, b, p, a) }"},
    {"GroupQueryAttention", kMicrosoft, 17,
     "(float[1, 3, 8] q, float[1, 3, 4] k, float[1, 3, 4] v, float[4, 1] c, float[4, 1] s) => (float y, float a, float b)"
     "<int32[1] n = {2}, int32 t = {3}>"
     "{ y, a, b = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, scale = 0.3, softcap = 2.0, do_rotary = 1, rotary_interleaved = 1, local_window_size = 2, smooth_softmax = 0>(q, k, v, none, none, n, t, c, s) }"},
    {"Gelu", kMicrosoft, 17, "(float[2, 3] x) => (float y) { y = com.microsoft.Gelu(x) }"},
    {"BiasGelu", kMicrosoft, 17,
     "(float[2, 3] x, float[3] b) => (float y) { y = com.microsoft.BiasGelu(x, b) }"},
    {"FastGelu", kMicrosoft, 17,
     "(float[2, 3] x, float[3] b) => (float y) { y = com.microsoft.FastGelu(x, b) }"},
    {"QuickGelu", kMicrosoft, 17,
     "(float[2, 3] x) => (float y) { y = com.microsoft.QuickGelu<alpha = 1.5>(x) }"},
    {"FusedMatMul", kMicrosoft, 17,
     "(float[2, 3] a, float[2, 4] b) => (float y)"
     "{ y = com.microsoft.FusedMatMul<alpha = 0.5, transA = 1, transB = 0>(a, b) }"},
    {"BiasDropout", kMicrosoft, 17,
     "(float[2, 3] x, float[3] b, float[2, 3] r) => (float y, bool m) <float t = {0.5}, bool z = {1}>"
     "{ y, m = com.microsoft.BiasDropout<seed = 3>(x, b, r, t, z) }"},
    {"SoftmaxCrossEntropyLossInternal", kMicrosoft, 17,
     "(float[3, 4] x, float[4] w) => (float y, float p) <int64[3] l = {0, 3, 1}, int64 i = {-1}>"
     "{ y, p = com.microsoft.SoftmaxCrossEntropyLossInternal<reduction = \"mean\">(x, l, w, i) }"},
    {"SwiGLU", "", 28, "(float[2, 4] x, float[2, 4] g) => (float y) { y = SwiGLU<alpha = 1.2>(x, g) }"},
    {"CumProd", "", 26,
     "(float[2, 4] x) => (float y) <int64 a = {1}> { y = CumProd<exclusive = 1, reverse = 1>(x, a) }"},
    {"CausalConvWithState", "", 27,
     "(float[1, 2, 5] x, float[2, 1, 3] w, float[2] b, float[1, 2, 2] s) => (float y, float z)"
     "{ y, z = CausalConvWithState<activation = \"silu\">(x, w, b, s) }"},
    {"TensorScatter", "", 24,
     "(float[2, 1, 4, 3] c, float[2, 1, 2, 3] u) => (float y) <int64[2] i = {0, 2}>"
     "{ y = TensorScatter<axis = -2, mode = \"linear\">(c, u, i) }"},
    {"LinearAttention", "", 27,
     "(float[1, 3, 8] q, float[1, 3, 8] k, float[1, 3, 8] v) => (float y, float s)"
     "{ y, s = LinearAttention<q_num_heads = 2, kv_num_heads = 2, scale = 0.5, update_rule = \"linear\">(q, k, v) }"},
    {"Col2Im", "", 18,
     "(float[1, 8, 9] x) => (float y) <int64[2] i = {4, 4}, int64[2] b = {2, 2}>"
     "{ y = Col2Im<dilations = [1, 1], pads = [0, 0, 0, 0], strides = [1, 1]>(x, i, b) }"},
    {"AffineGrid", "", 20,
     "(float[1, 2, 3] x) => (float y) <int64[4] s = {1, 1, 3, 4}> { y = AffineGrid<align_corners = 1>(x, s) }"},
    {"CenterCropPad", "", 18,
     "(float[3, 6] x) => (float y) <int64[2] s = {5, 4}> { y = CenterCropPad<axes = [0, 1]>(x, s) }"},
    {"DeformConv", "", 19,
     "(float[1, 2, 4, 4] x, float[2, 1, 2, 2] w, float[1, 16, 4, 4] o, float[2] b, float[1, 8, 4, 4] m) => "
     "(float y)"
     "{ y = DeformConv<dilations = [1, 1], group = 2, kernel_shape = [2, 2], offset_group = 2, pads = [0, 0, 1, 1], strides = [1, 1]>(x, w, o, b, m) }"},
    {"RoiAlign", "", 16,
     "(float[1, 2, 6, 6] x, float[2, 4] r) => (float y) <int64[2] b = {0, 0}>"
     "{ y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2, spatial_scale = 0.5, mode = \"avg\", coordinate_transformation_mode = \"half_pixel\">(x, r, b) }"},
    {"RoiAlign", "", 16,
     "(float[1, 2, 6, 6] x, float[2, 4] r) => (float y) <int64[2] b = {0, 0}>"
     "{ y = RoiAlign<output_height = 2, output_width = 3>(x, r, b) }"},
    {"MaxRoiPool", "", 7,
     "(float[1, 2, 6, 6] x, float[2, 5] r) => (float y)"
     "{ y = MaxRoiPool<pooled_shape = [2, 3], spatial_scale = 0.5>(x, r) }"},
    {"RoiAlign", "", 10,
     "(float[1, 2, 6, 6] x, float[2, 4] r) => (float y) <int64[2] b = {0, 0}>"
     "{ y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, r, b) }"},
    {"MatMulInteger", "", 10,
     "(uint8[2, 3] a, int8[3, 4] b) => (int32 y) <uint8 z = {3}, int8 w = {1}> { y = MatMulInteger(a, b, z, w) }"},
    {"ConvInteger", "", 10,
     "(uint8[1, 1, 4, 4] x, uint8[2, 1, 2, 2] w) => (int32 y) <uint8 z = {3}>"
     "{ y = ConvInteger<auto_pad = \"NOTSET\", dilations = [1, 1], group = 1, kernel_shape = [2, 2], pads = [0, 0, 1, 1], strides = [1, 1]>(x, w, z) }"},
    {"QLinearMatMul", "", 10,
     "(uint8[2, 3] a, uint8[3, 4] b) => (uint8 y)"
     "<float s = {0.1}, uint8 z = {3}, float t = {0.2}, uint8 w = {1}, float o = {0.3}, uint8 p = {2}>"
     "{ y = QLinearMatMul(a, s, z, b, t, w, o, p) }"},
    {"QLinearConv", "", 10,
     "(uint8[1, 1, 4, 4] x, uint8[2, 1, 2, 2] k) => (uint8 y)"
     "<float s = {0.1}, uint8 z = {3}, float t = {0.2}, uint8 w = {1}, float o = {0.3}, uint8 p = {2}, int32[2] b = {1, -1}>"
     "{ y = QLinearConv<dilations = [1, 1], group = 1, kernel_shape = [2, 2], pads = [0, 0, 1, 1], strides = [1, 1]>"
     "(x, s, z, k, t, w, o, p, b) }"},
    {"DFT", "", 17,
     "(float[1, 4, 1] x) => (float y) <int64 l = {5}> { y = DFT<axis = 1, inverse = 0, onesided = 1>(x, l) }"},
    {"TfIdfVectorizer", "", 9,
     "(int64[2, 5] x) => (float y)"
     "{ y = TfIdfVectorizer<mode = \"TFIDF\", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1, ngram_counts = [0, 2], "
     "ngram_indexes = [1, 0, 2], pool_int64s = [3, 4, 3, 4], weights = [1.0, 2.0, 0.5]>(x) }"},
    {"DFT", "", 20,
     "(float[1, 4, 2] x) => (float y) <int64 l = {5}, int64 a = {1}> { y = DFT<inverse = 1, onesided = 0>(x, l, a) }"},
    {"STFT", "", 17,
     "(float[1, 8, 1] x, float[4] w) => (float y) <int64 s = {2}, int64 l = {4}> { y = STFT<onesided = 1>(x, s, w, l) }"},
    {"HannWindow", "", 17,
     "() => (float y) <int64 n = {5}> { y = HannWindow<output_datatype = 1, periodic = 1>(n) }"},
    {"HammingWindow", "", 17,
     "() => (float y) <int64 n = {5}> { y = HammingWindow<output_datatype = 1, periodic = 0>(n) }"},
    {"BlackmanWindow", "", 17, "() => (float y) <int64 n = {5}> { y = BlackmanWindow<periodic = 0>(n) }"},
    {"MelWeightMatrix", "", 17,
     "() => (float y) <int64 b = {4}, int64 d = {8}, int64 r = {8000}>"
     "{ y = MelWeightMatrix<output_datatype = 1>(b, d, r, l, u)  l = Constant<value_float = 0.0>() u = Constant<value_float = 4000.0>() }"},
    {"SimplifiedLayerNormalization", "", 17,
     "(float[2, 3] x, float[3] s) => (float y, float d)"
     "{ y, d = SimplifiedLayerNormalization<axis = -1, epsilon = 0.001, stash_type = 1>(x, s) }"},
    {"SimplifiedLayerNormalization", kMicrosoft, 17,
     "(float[2, 3] x, float[3] s) => (float y)"
     "{ y = com.microsoft.SimplifiedLayerNormalization<axis = -1, epsilon = 0.001, stash_type = 1>(x, s) }"},
    {"SkipLayerNormalization", kMicrosoft, 17,
     "(float[1, 2, 3] x, float[1, 2, 3] s, float[3] g, float[3] h, float[3] b) => (float y, float m, float d, float z)"
     "{ y, m, d, z = com.microsoft.SkipLayerNormalization<epsilon = 0.01>(x, s, g, h, b) }"},
    {"SkipSimplifiedLayerNormalization", kMicrosoft, 17,
     "(float[1, 2, 3] x, float[1, 2, 3] s, float[3] g, float[3] b) => (float y)"
     "{ y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.01>(x, s, g, b) }"},
    {"LayerNormalization", "", 16,
     "(float[2, 3] x, float[3] g, float[3] b) => (float y, float m, float d)"
     "{ y, m, d = LayerNormalization<axis = -1, epsilon = 0.01, stash_type = 1>(x, g, b) }"},
    {"EmbedLayerNormalization", kMicrosoft, 17,
     "(float[5, 4] w, float[6, 4] p, float[2, 4] s, float[4] g, float[4] b) => (float y, int32 n, float z)"
     "<int32[1, 3] i = {4, 0, 1}, int32[1, 3] k = {1, 0, 0}, int32[1, 3] m = {1, 1, 0}, int32[1, 3] o = {2, 3, 0}>"
     "{ y, n, z = com.microsoft.EmbedLayerNormalization<epsilon = 0.01, mask_index_type = 1>(i, k, w, p, s, g, b, m, o) }"},
    {"GroupNorm", kMicrosoft, 17,
     "(float[1, 2, 3, 4] x, float[4] g, float[4] b) => (float y)"
     "{ y = com.microsoft.GroupNorm<activation = 1, channels_last = 1, epsilon = 0.01, groups = 2>(x, g, b) }"},
    {"SkipGroupNorm", kMicrosoft, 17,
     "(float[1, 2, 3, 4] x, float[4] g, float[4] b, float[1, 4] s, float[4] c) => (float y, float z)"
     "{ y, z = com.microsoft.SkipGroupNorm<activation = 0, channels_last = 1, epsilon = 0.01, groups = 2>(x, g, b, s, c) }"},
    {"Attention", kMicrosoft, 17,
     "(float[1, 3, 4] x, float[4, 10] w, float[10] b, float[1, 2, 3, 3] a) => (float y)"
     "<int32[2] m = {3, 1}>"
     "{ y = com.microsoft.Attention<do_rotary = 0, mask_filter_value = -100.0, num_heads = 2, past_present_share_buffer = 0, "
     "qkv_hidden_sizes = [4, 4, 2], rotary_embedding_dim = 0, scale = 0.5, unidirectional = 1>(x, w, b, m, none, a) }"},
    {"Attention", kMicrosoft, 17,
     "(float[1, 3, 4] x, float[4, 12] w) => (float y, float p)"
     "{ y, p = com.microsoft.Attention<num_heads = 2>(x, w) }"},
    {"QAttention", kMicrosoft, 17,
     "(uint8[1, 3, 2] x, float[6] b) => (float y)"
     "<int8[2, 6] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float s = {0.1}, float[6] t = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, "
     "int32[1] m = {2}, uint8 z = {3}, int8[6] v = {0, 1, 0, 1, 0, 1}>"
     "{ y = com.microsoft.QAttention<num_heads = 2, unidirectional = 1>(x, w, b, s, t, m, z, v) }"},
    {"MultiHeadAttention", kMicrosoft, 17,
     "(float[1, 3, 2, 3, 2] q, float[12] b) => (float y)"
     "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, none, none, b) }"},
    {"MultiHeadAttention", kMicrosoft, 17,
     "(float[1, 3, 4] q, float[1, 5, 2, 2, 2] k) => (float y)"
     "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k) }"},
    {"RelativePositionBias", kMicrosoft, 17,
     "(float[8, 2] t) => (float y) <int64 q = {5}, int64 k = {6}>"
     "{ y = com.microsoft.RelativePositionBias<is_bidirectional = 1, max_distance = 8>(t, q, k) }"},
    {"GatedRelativePositionBias", kMicrosoft, 17,
     "(float[1, 3, 4] q, float[4] b, float[1, 2, 3, 3] r, float[2, 4] w, float[4] c, float[1, 2, 1, 1] a) => (float y)"
     "{ y = com.microsoft.GatedRelativePositionBias<num_heads = 2>(q, b, r, w, c, a) }"},
    {"BiasAdd", kMicrosoft, 17,
     "(float[1, 2, 3] x, float[3] b, float[1, 2, 3] s) => (float y) { y = com.microsoft.BiasAdd(x, b, s) }"},
    {"BiasSoftmax", kMicrosoft, 17,
     "(float[1, 2, 3, 4] x, float[1, 1, 1, 4] b) => (float y)"
     "{ y = com.microsoft.BiasSoftmax<axis = 2, is_inner_broadcast = 1>(x, b) }"},
    {"BiasSplitGelu", kMicrosoft, 17,
     "(float[1, 2, 6] x, float[6] b) => (float y) { y = com.microsoft.BiasSplitGelu(x, b) }"},
    {"FusedConv", kMicrosoft, 17,
     "(float[1, 2, 4, 4] x, float[2, 1, 2, 2] w, float[2] b, float[1, 2, 4, 4] z) => (float y)"
     "{ y = com.microsoft.FusedConv<activation = \"HardSigmoid\", activation_params = [0.3, 0.4], auto_pad = \"NOTSET\", dilations = [1, 1], "
     "group = 2, kernel_shape = [2, 2], pads = [0, 0, 1, 1], strides = [1, 1]>(x, w, b, z) }"},
    {"NhwcConv", kMicrosoft, 17,
     "(float[1, 4, 4, 2] x, float[2, 2, 2, 1] w, float[2] b) => (float y)"
     "{ y = com.microsoft.NhwcConv<auto_pad = \"NOTSET\", dilations = [1, 1], group = 2, kernel_shape = [2, 2], pads = [0, 0, 1, 1], "
     "strides = [1, 1]>(x, w, b) }"},
    {"FusedGemm", kMicrosoft, 17,
     "(float[2, 3] a, float[3, 4] b, float[4] c) => (float y)"
     "{ y = com.microsoft.FusedGemm<activation = \"Selu\", activation_alpha = 1.5, activation_beta = 0.0, activation_gamma = 1.2, alpha = 0.5, "
     "beta = 2.0, transA = 0, transB = 0>(a, b, c) }"},
    {"GemmFastGelu", kMicrosoft, 17,
     "(float[2, 3] a, float[3, 4] b, float[4] c) => (float y) { y = com.microsoft.GemmFastGelu(a, b, c) }"},
    {"TransposeMatMul", kMicrosoft, 17,
     "(float[2, 3] a, float[2, 4] b) => (float y)"
     "{ y = com.microsoft.TransposeMatMul<alpha = 0.5, transA = 1, transB = 0, transBatchA = 0, transBatchB = 0>(a, b) }"},
    {"Add", "", 6, "(float[2, 3, 4] a, float[3] b) => (float y) { y = Add<axis = 1, broadcast = 1>(a, b) }"},
    {"ConstantFill", "", 8,
     "(float[3, 2, 5] x) => (float y) <int64[2] s = {3, 2}>"
     "{ f = ConstantFill<input_as_shape = 1, value = 2.5, dtype = 1, extra_shape = [5]>(s) y = Mul(x, f) }"},
    {"PRelu", "", 6, "(float[2, 3, 4] x, float[3] s) => (float y) { y = PRelu(x, s) }"},
    {"Gemm", "", 6,
     "(float[2, 3] a, float[3, 4] b, float[4] c) => (float y)"
     "{ y = Gemm<alpha = 0.5, beta = 2.0, broadcast = 1, transA = 0, transB = 0>(a, b, c) }"},
    {"BatchNormalization", "", 6,
     "(float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float y)"
     "{ y = BatchNormalization<epsilon = 0.001, is_test = 1, momentum = 0.9, spatial = 1>(x, s, b, m, v) }"},
    {"Dropout", "", 6, "(float[2, 3] x) => (float y) { y = Dropout<is_test = 0, ratio = 0.3>(x) }"},
    {"Adagrad", kTraining, 17,
     "(float r, float[2] x, float[2] g, float[2] h) => (float y, float z) <int64 t = {1}>"
     "{ y, z = ai.onnx.preview.training.Adagrad<decay_factor = 0.1, epsilon = 0.001, norm_coefficient = 0.01>"
     "(r, t, x, g, h) }"},
    {"Adam", kTraining, 17,
     "(float r, float[2] x, float[2] g, float[2] v, float[2] h) => (float y, float z, float w) <int64 t = "
     "{1}>"
     "{ y, z, w = ai.onnx.preview.training.Adam<alpha = 0.9, beta = 0.99, epsilon = 0.001, norm_coefficient = 0.01, norm_coefficient_post = 0.1>(r, t, x, g, v, h) }"},
    {"Momentum", kTraining, 17,
     "(float r, float[2] x, float[2] g, float[2] v) => (float y, float z) <int64 t = {1}>"
     "{ y, z = ai.onnx.preview.training.Momentum<alpha = 0.9, beta = 0.99, mode = \"nesterov\", norm_coefficient = 0.01>(r, t, x, g, v) }"},
};

// Floating point inputs with a size become parameters.
void make_parameters(ModelProto& model) {
  auto& graph = *model.mutable_graph();
  std::mt19937_64 random(1);
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> rest;
  for (const auto& input : graph.input()) {
    const auto& type = input.type().tensor_type();
    Shape shape;
    for (const auto& dim : type.shape().dim()) shape.push_back(dim.dim_value());
    const Result<DType> dtype = dtype_of_proto(type.elem_type());
    if (!dtype.ok() || !is_float(*dtype)) {
      *rest.Add() = input;
      continue;
    }
    TensorProto* tensor = graph.add_initializer();
    write_tensor(make_sample_input({.type = {*dtype, shape}}, {}, random), tensor);
    tensor->set_name(input.name());
  }
  graph.mutable_input()->Swap(&rest);
}

ModelProto parsed(const Text& text) {
  ModelProto model;
  const std::string all =
      "<ir_version: 8, opset_import: [\"\" : " + std::to_string(text.opset) + "]> g " + text.graph;
  const auto status = onnx::OnnxParser(all.c_str()).Parse(model);
  if (!status.IsOK()) {
    std::fprintf(stderr, "%s\n%s\n", text.graph, status.ErrorMessage().c_str());
    std::abort();
  }
  if (*text.domain != '\0') {
    auto* import = model.add_opset_import();
    import->set_domain(text.domain);
    import->set_version(1);
  }
  for (std::string& input : *model.mutable_graph()->mutable_node(0)->mutable_input())
    if (input == "none") input.clear();
  for (auto& output : *model.mutable_graph()->mutable_output()) output.clear_type();  // as inference says
  make_parameters(model);
  return model;
}

void write_attribute(const std::string& name, const AttrValue& value, bool list_of_names, AttributeProto* a) {
  a->set_name(name);
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    a->set_type(AttributeProto::INT);
    a->set_i(*number);
  } else if (const auto* real = std::get_if<double>(&value)) {
    a->set_type(AttributeProto::FLOAT);
    a->set_f(static_cast<float>(*real));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    a->set_type(list_of_names ? AttributeProto::STRINGS : AttributeProto::STRING);
    if (!list_of_names) a->set_s(*text);
    std::istringstream names(list_of_names ? *text : "");
    for (std::string one; std::getline(names, one, ',');) a->add_strings(one);
  } else if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value)) {
    a->set_type(AttributeProto::INTS);
    for (const std::int64_t v : *numbers) a->add_ints(v);
  } else if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    a->set_type(AttributeProto::FLOATS);
    for (const double v : *reals) a->add_floats(static_cast<float>(v));
  } else {
    a->set_type(AttributeProto::TENSOR);
    write_tensor(std::get<Tensor>(value), a->mutable_t());
  }
}

ModelProto model_of(const OpDef& op, const Sample& sample, int opset) {
  ModelProto model;
  model.set_ir_version(8);
  auto* import = model.add_opset_import();
  import->set_domain(op.domain);
  import->set_version(opset);
  auto& graph = *model.mutable_graph();
  graph.set_name("g");
  NodeProto& node = *graph.add_node();
  node.set_op_type(op.name);
  node.set_domain(op.domain);
  const onnx::OpSchema* schema = schema_of(op.name, std::min(opset, 17));
  for (const auto& [name, value] : sample.attrs.all()) {
    if (op.has(kRandom) && name == "key") continue;  // ours: of the stream, made from the node's name
    const bool names = schema != nullptr && schema->attributes().count(name) != 0 &&
                       schema->attributes().at(name).type == AttributeProto::STRINGS;
    write_attribute(name, value, names, node.add_attribute());
  }
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const SampleInput& input = sample.inputs[i];
    if (input.omitted) {
      node.add_input("");
      continue;
    }
    const std::string name = "x" + std::to_string(i);
    node.add_input(name);
    TensorProto* tensor = graph.add_initializer();
    write_tensor(make_sample_input(input, sample, random), tensor);
    tensor->set_name(name);
  }
  for (int i = 0; i < sample.output_count; ++i) {
    const std::string name = "y" + std::to_string(i);
    node.add_output(name);
    graph.add_output()->set_name(name);
  }
  return model;
}

// The newest opset of a row, the one that began it, and those between where an
// attribute may have another form.
std::vector<int> opsets_of(const OpDef& op) {
  std::set<int> opsets;
  for (const int opset : {op.since, 7, 11, 13, 18, op.until})
    opsets.insert(std::clamp(std::min(opset, kNewestOpset), std::max(op.since, 7), std::max(op.until, 7)));
  return {opsets.rbegin(), opsets.rend()};
}

}  // namespace

std::vector<OperatorCases> operator_cases() {
  std::map<std::pair<std::string, std::string>, OperatorCases> by_name;
  const auto of = [&](const char* domain, const char* name) -> std::vector<OperatorCase>& {
    OperatorCases& entry = by_name[{domain, name}];
    entry.domain = domain;
    entry.name = name;
    return entry.cases;
  };
  for (const OpDef* op : all_ops()) {
    if (std::string(op->domain) == "gradloom")
      continue;  // made by passes and autodiff: a file cannot name them
    for (const Sample& sample : op->samples()) {
      if (sample.bench) continue;  // the others are as different, and small
      for (const int opset : opsets_of(*op))
        of(op->domain, op->name)
            .push_back({"sample '" + sample.name + "' at opset " + std::to_string(opset),
                        model_of(*op, sample, opset)});
    }
  }
  for (const Text& text : kTexts)
    of(text.domain, text.name).push_back({"opset " + std::to_string(text.opset), parsed(text)});
  std::vector<OperatorCases> all;
  for (auto& [name, cases] : by_name) all.push_back(std::move(cases));
  return all;
}

}  // namespace gradloom::fuzz
