// OpDef: everything Gradloom knows of one operator, one row of data and function pointers. Rows live in
// engine/ops/<family>/ and are listed in engine/ops/ops.def, from which engine/ops/registry.cpp makes the table
// that find_op and op_by_name look into; tests, benches and docs come from the rows and their samples.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/graph.h"
#include "kernels/target.h"

namespace gradloom::kernels {
class Launcher;      // kernels/launcher.h
struct EwProgram;    // kernels/elementwise.h
struct RandomState;  // kernels/arguments/elements.h
enum class EwOp : std::uint8_t;
}  // namespace gradloom::kernels

namespace gradloom {

// What inference sees of one node.
struct InferContext {
  const Graph& graph;
  const Attrs& attrs;
  std::span<const ValueId> inputs;
  int output_count;
  std::vector<Type> outputs;  // to fill, one per requested output

  bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != kNone; }
  const Type& in(std::size_t i) const { return graph.values[inputs[i]].type; }
  const Shape& shape(std::size_t i) const { return in(i).shape; }
  DType dtype(std::size_t i) const { return in(i).dtype; }
  const Tensor* constant(std::size_t i) const;  // contents if known before running, else null
};
using InferFn = Status (*)(InferContext& ctx);

// What a gradient rule sees: forward node, gradient of each output (kNone:
// no gradient flows), a builder to add to.
struct GradContext {
  GraphBuilder& b;
  Node node;  // forward node (a copy: building may move graph storage)
  NodeId node_id;
  std::vector<ValueId> out_grads;  // one per output, of its dims
  std::vector<bool> wanted;        // one per input: is its gradient needed
  std::vector<ValueId> in_grads;   // to fill; kNone = no gradient

  ValueId in(std::size_t i) const { return i < node.inputs.size() ? node.inputs[i] : kNone; }
  ValueId out(std::size_t i) const { return node.outputs[i]; }
  // Of output i; kNone: none flows, or the model has no such output.
  ValueId grad(std::size_t i = 0) const { return i < out_grads.size() ? out_grads[i] : kNone; }
  bool wants(std::size_t i) const { return i < wanted.size() && wanted[i]; }
  void set(std::size_t i, ValueId g) { in_grads[i] = g; }
  // Output i of the forward node, added to it when the model omitted it (mean of LayerNormalization, indices
  // of MaxPool, ...).
  ValueId require_out(std::size_t i);
  const Shape& shape(ValueId id) const { return b.graph().values[id].type.shape; }
  DType dtype(ValueId id) const { return b.graph().values[id].type.dtype; }
  // Sums `g` down to the shape of `like` (undo broadcasting).
  ValueId reduce_to(ValueId g, ValueId like);
};
using GradFn = Status (*)(GradContext& ctx);

// Types and attributes of one node, with all shapes static: what kernels and cost functions are chosen from.
struct NodeTypes {
  std::vector<Type> inputs;  // omitted inputs: dtype of input 0, shape empty, present = false
  std::vector<bool> input_present;
  std::vector<Type> outputs;
  std::vector<bool> output_present;
  std::vector<const Tensor*> constants;  // known contents per input, or null
  Attrs attrs;
  kernels::Target target = kernels::Target::cpu;  // what the kernel is prepared for
  bool dnn_library =
      false;              // a GPU's library may do the work (kernels/library_kernels.h): leave it workspace
  std::string node_name;  // key of random streams comes from attribute "key" when set, else from this name
  bool has(std::size_t i) const { return i < input_present.size() && input_present[i]; }
  bool wants(std::size_t i) const { return i < output_present.size() && output_present[i]; }
};
NodeTypes node_types(const Graph& graph, const Node& node, kernels::Target target = kernels::Target::cpu,
                     bool dnn_library = false);

struct Cost {
  double flops = 0, bytes_read = 0, bytes_written = 0;
};
using CostFn = Cost (*)(const NodeTypes& types);
// Reads every input and writes every output once; 1 FLOP per output element.
Cost default_cost(const NodeTypes& types);

// A prepared kernel: everything that depends only on types and attributes was done when planning.
struct LaunchArgs {
  const void* const* inputs;  // null for omitted
  void* const* outputs;
  void* workspace;
  const kernels::RandomState* random;  // in the memory of the device
  const kernels::Launcher& on;
};
struct Kernel {
  std::string name;  // e.g. "matmul brg:avx512_core", shown in tables and stored
  std::size_t workspace_bytes = 0;
  std::function<void(const LaunchArgs&)> run;
  // Elementwise programs that `run` launches: a GPU compiles them before the first launch.
  std::vector<std::shared_ptr<const kernels::EwProgram>> programs{};
};
using PrepareFn = Result<Kernel> (*)(const NodeTypes& types);

// A test case that is also a benchmark shape and a documentation example.
struct SampleInput {
  Type type;
  double low = -1, high = 1;   // uniform range (floats); integers uniform in [low, high]
  std::vector<double> values;  // exact contents instead of random ones
  bool constant = false;       // known when planning (shape inputs)
  bool omitted = false;
  bool statistic = false;  // stays f32 where the sample runs in f16 or bf16
};
struct Sample {
  std::string name{};
  Attrs attrs{};
  std::vector<SampleInput> inputs{};
  int output_count = 1;
  double kink_distance = 0;  // inputs are kept this far from kinks (0: smooth); see `kinks`
  std::vector<double> kinks{};
  bool bench = false;
};
using SamplesFn = std::vector<Sample> (*)();

enum Trait : std::uint32_t {
  kElementwise = 1u << 0,  // one EwOp applied with broadcasting (OpDef::ew)
  kView = 1u << 1,         // output 0 is input 0's bytes with another shape: no kernel
  kRandom = 1u << 2,       // reads seed and step
  kNoGradient =
      1u << 3,  // not differentiable by definition (integers, comparisons, shapes): zero gradient, no error
  kMustAlias = 1u << 4,  // output i updates input alias[i] in place (optimizers, accumulators)
  kShapeOnly = 1u << 5,  // result depends on input shapes only (Shape, Size)
  kPointwise = 1u << 6,  // like kElementwise for memory (fused regions, Dropout): any output may overwrite an
                         // equal-shaped input
  kOptionalOutputs = 1u << 7,  // outputs after the first may be omitted: the kernel then does not write them,
                               // the others stay the same
  kFirstOutputOptional = 1u << 8,  // with kOptionalOutputs: the first too
  kReshapes = 1u << 9,             // kView whose result has a shape of its own (not Identity)
  kPermutes = 1u << 10,            // output 0 is input 0 with its dims in another order
  kChained = 1u << 11,             // takes two inputs; files may give it any number, read as a chain of pairs
  kCommutative = 1u << 12,         // gives the same for its two inputs in either order
  kAccumulates = 1u << 13,  // adds micro-batches up: what reads its result runs once per optimizer step
  kRunsOnce = 1u << 14,     // has effects outside the graph: never run again to save memory
  kOfFiles = 1u << 15,      // of our domain, but files may have it: inference trusts nothing that it is given
};

// What an operator takes an input for, where that is not to compute with it.
enum class InputUse : std::uint8_t {
  data,
  sizes,    // dims, axes, counts, ..: types of results follow from the contents, so a static plan needs them
  indices,  // positions along an axis of another input
  labels,   // classes, which are positions too; attribute ignore_index may name one that stands for none
};
// Inputs without a role are data. Who makes batches up reads the limits of integers from here, `check` which
// inputs must be known before running, and import how many elements inference would look at.
struct InputRole {
  std::size_t input = 0;
  InputUse use = InputUse::data;
  // Indices and labels: of this input, along the axis that attribute `axis` names, if the operator has it.
  std::size_t of = 0;
  std::int64_t axis = 0;  // without the attribute
  bool examined = false;  // inference looks at each element of a constant
};

// Output 0 repeats this input, where both have one type, by a rule of this name; empty: it does not.
struct Noop {
  std::string rule{};
  std::size_t input = 0;
};
using NoopFn = Noop (*)(const Graph& graph, const Node& node);

// Results that stand for real numbers without being floats to compute with: gradients pass straight through
// them, as float tensors.
enum class Codes : std::uint8_t { none, small_floats, all };

// How an operator takes tensors whose channels lie in blocks (engine/ops/channel_blocks.h). Elementwise
// operators take them as they are.
enum class ChannelBlocks : std::uint8_t {
  none,
  sides,      // input 0 and output 0, each by itself: attributes x_block and y_block
  attribute,  // input 0 and output 0 together: attribute block; other outputs cannot be images
  axis,       // all inputs and the output, where attribute axis is that of channels
};

// What mixed precision (passes/mixed_precision.cpp) does with an operator.
// The lists follow those of torch.autocast.
enum class Precision : std::uint8_t {
  follow,  // in bf16 where an activation that it reads is bf16
  low,     // in bf16: products and convolutions, where the time goes
  wide,    // reads bf16 and gives f32: with attribute wide = 1
  full,    // in f32: sums over many elements, losses, functions that enlarge relative errors
};

// What kernels of the operator spend their FLOPs on: which of a processor's units they keep busy, and how well
// they can (profiler/hardware.h).
enum class Arithmetic : std::uint8_t { vectors, products, convolutions, attention };

// What an operator exchanges with the other ranks of a training (engine/ops/collectives).
enum class RankExchange : std::uint8_t {
  none,
  mean,          // its results hold other ranks' numbers: means,
  sum,           // sums,
  adasum,        // AdaSum's combinations,
  share,         // or what another rank has made
  begin_mean,    // the same, but they are not there before the wait for its last result
  begin_reduce,  // at one rank each
  wait,          // for what made its first input
};

struct OpDef {
  const char* name;         // ONNX name, or ours in domain "gradloom"
  const char* domain = "";  // "" = ai.onnx
  int since = 1;            // first opset of these semantics
  int until = 1000;         // last opset of these semantics
  const char* summary = "";
  std::uint32_t traits = 0;
  int min_inputs = 1, max_inputs = 1, max_outputs = 1;
  InferFn infer = nullptr;
  GradFn grad = nullptr;  // null without kNoGradient: "no gradient", reported by inspect
  CostFn cost = default_cost;
  PrepareFn cpu = nullptr;  // null without kView: no CPU kernel, reported by inspect
  // Likewise for CUDA and HIP; the same function when it only launches kernels of the table.
  PrepareFn gpu = nullptr;
  SamplesFn samples = nullptr;
  kernels::EwOp ew{};  // with kElementwise
  Precision precision = Precision::follow;
  // Output 0 may overwrite this input at its last use; -1: none. Elementwise: any equal-sized input.
  int inplace_input = -1;
  // (output, input) pairs that may share storage when the output is the input's update;
  // with kMustAlias they always do.
  std::vector<std::pair<int, int>> (*aliases)(const Node& node) = nullptr;
  std::span<const InputRole> roles{};  // of inputs that are more than data
  NoopFn noop = nullptr;               // null: every node does something
  Codes codes = Codes::none;
  ChannelBlocks channel_blocks = ChannelBlocks::none;
  // The reduction (ReduceMean, ..) that the node is where it reduces all spatial dims and no other; "": none.
  const char* spatial_reduction = "";
  Arithmetic arithmetic = Arithmetic::vectors;
  RankExchange exchange = RankExchange::none;
  // Whether results hold other ranks' numbers, at once or after the wait for them.
  bool exchanges() const { return exchange != RankExchange::none && exchange != RankExchange::wait; }
  bool begins_exchange() const {
    return exchange == RankExchange::begin_mean || exchange == RankExchange::begin_reduce;
  }
  bool has(Trait t) const { return (traits & t) != 0; }
  const InputRole* role(std::size_t input) const;  // null: data
  PrepareFn prepare(kernels::Target target) const { return target == kernels::Target::cpu ? cpu : gpu; }
};

// The kernel of an operator that has one on `types.target`. On the CPU a row without bf16 or f16 kernel
// computes in f32: its operands are converted in the workspace, its results rounded once.
Result<Kernel> prepare_kernel(const OpDef& op, const NodeTypes& types);
// Why the node has no kernel there; empty: it has one. While its shapes are not known
// only the operator is asked.
std::string missing_kernel(const Graph& graph, const Node& node, kernels::Target target);

std::span<const OpDef* const> all_ops();
// The row for an ONNX node of this domain, name and opset; null when unknown.
const OpDef* find_op(const std::string& name, const std::string& domain, int opset);
const OpDef& op_by_name(const char* name);  // newest row; CHECK when absent (for our own code)

// A live node of this operator of ONNX's own domain or ours.
bool is_op(const Node& node, std::string_view name);
bool is_of_either_domain(const OpDef& op);  // ONNX's own or ours

// Runs one operator on the CPU with host tensors (constant folding, tests, samples).
// Undefined tensors are omitted inputs.
Result<std::vector<Tensor>> evaluate(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& inputs,
                                     int output_count = 1, const std::string& node_name = "",
                                     std::uint64_t seed = 0, std::uint64_t step = 0);

// Shared helpers of the rows.
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);
Result<std::int64_t> normalized_axis(std::int64_t axis, std::size_t rank);
Error infer_error(const std::string& message);

}  // namespace gradloom
