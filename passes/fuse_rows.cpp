// fuse-rows: elementwise regions and reductions over rows that meet become one FusedRows node: residual + normalization, scale +
// mask + softmax, normalizations in pieces and what follows them, forward and backward. No pattern of layers: a node takes part by
// what it is in statements and row reductions (row_code), regions grow as those of fuse-elementwise do (regions.h).
//   LayerNormalization   d = x - mean(x), y = d / sqrt(mean(d^2) + epsilon) * scale + bias
//   RMSNormalization     y = x / sqrt(mean(x^2) + epsilon) * scale
//   their gradients, of x alone    g = dy scale, n = (x - mean) inv_std, dx = inv_std (g - mean(g) - n mean(g n)) + added
//   Softmax              e = exp(x - max(x)), y = e / sum(e); LogSoftmax  y = x - max(x) - log(sum(e))
//   SoftmaxGrad          dx = y (dy - sum(dy y)); of LogSoftmax  dx = dy - exp(y) sum(dy)
// Sources: engine/ops/normalization. 16-bit floats are computed in f32 and rounded once, as in the operators' own kernels.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/dims.h"
#include "passes/fusion.h"
#include "passes/pass.h"
#include "passes/regions.h"

namespace gradloom {
namespace {

using kernels::EwOp;

// Writes a node down as statements.
class RowCode {
 public:
  RowCode(const Graph& graph, const Node& node, ValueId over) : graph_(graph), node_(node) {
    code_.space = graph.type(over).shape;
    wide_ = is_half(graph.type(over).dtype) ? DType::f32 : graph.type(over).dtype;
  }

  FusedOperand in(std::size_t i) {
    return cast({true, static_cast<int>(i)}, graph_.type(node_.inputs[i]).dtype, wide_);
  }
  FusedOperand number(double value) {
    code_.constants.emplace_back(wide_, value);
    return {true, static_cast<int>(node_.inputs.size() + code_.constants.size()) - 1};
  }
  FusedOperand op(EwOp op, std::vector<FusedOperand> operands) {
    code_.statements.push_back({op, DType::f32, 0, std::move(operands)});
    return {false, static_cast<int>(code_.statements.size()) - 1};
  }
  FusedOperand add(FusedOperand a, FusedOperand b) { return op(EwOp::Add, {a, b}); }
  FusedOperand sub(FusedOperand a, FusedOperand b) { return op(EwOp::Sub, {a, b}); }
  FusedOperand mul(FusedOperand a, FusedOperand b) { return op(EwOp::Mul, {a, b}); }
  FusedOperand mean(FusedOperand a) { return op(EwOp::RowMean, {a}); }
  FusedOperand sum(FusedOperand a) { return op(EwOp::RowSum, {a}); }
  // The node's next result.
  void give(FusedOperand made) {
    const std::size_t i = code_.results.size();
    const bool wanted = i < node_.outputs.size() && node_.outputs[i] != kNone;
    if (wanted) made = cast(made, wide_, graph_.type(node_.outputs[i]).dtype);
    code_.results.push_back(made.index);
  }
  RegionCode finish(std::size_t row_dims) {
    code_.row_dims = row_dims;
    return std::move(code_);
  }

 private:
  FusedOperand cast(FusedOperand x, DType from, DType to) {
    if (from == to) return x;
    code_.statements.push_back({EwOp::Cast, to, 0, {x}});
    return {false, static_cast<int>(code_.statements.size()) - 1};
  }

  const Graph& graph_;
  const Node& node_;
  DType wide_ = DType::f32;
  RegionCode code_;
};

// What a node is; or why one that reduces is in no region.
struct Reading {
  std::optional<RegionCode> code{};
  std::string why_not{};
};

// The last dims from the node's axis on.
std::size_t dims_from_axis(const Node& node, std::size_t rank, std::int64_t fallback) {
  const auto axis = normalized_axis(node.attrs.integer("axis", fallback), rank);
  return axis.ok() ? rank - static_cast<std::size_t>(*axis) : 0;
}

// Rows of at least two elements, which a block's registers hold.
std::string row_problem(const Shape& shape, std::size_t row_dims) {
  if (!is_static(shape)) return "its shape is not known";
  if (row_dims == 0 || row_dims > shape.size()) return "it does not reduce over the last dims alone";
  const std::int64_t row = dim_product(shape, shape.size() - row_dims, shape.size());
  if (row < 2) return "its rows have one element";
  if (row > kernels::kEwMostRow)
    return "its rows of " + std::to_string(row) + " elements are more than the registers of a block hold";
  return "";
}

Reading reduction(const Graph& graph, const Node& node) {
  const std::string_view name = node.op->name;
  const Type& x = graph.type(node.inputs[0]);
  if (!is_float(x.dtype)) return {};
  const MeanAxes axes = mean_axes(graph, node.outputs[0]);
  const std::size_t row_dims = axes.why_not.empty() ? axes.axes.size() : 0;
  if (const std::string why = row_problem(x.shape, row_dims); !why.empty()) return {{}, why};
  RowCode code(graph, node, node.inputs[0]);
  FusedOperand a = code.in(0);
  const bool squares = name == "ReduceSumSquare" || name == "ReduceL2";
  if (squares) a = code.op(EwOp::Square, {a});
  if (name == "ReduceL1") a = code.op(EwOp::Abs, {a});
  const EwOp reduces = name == "ReduceMean"  ? EwOp::RowMean
                       : name == "ReduceMax" ? EwOp::RowMax
                       : name == "ReduceMin" ? EwOp::RowMin
                                             : EwOp::RowSum;
  a = code.op(reduces, {a});
  if (name == "ReduceL2") a = code.op(EwOp::Sqrt, {a});
  code.give(a);
  return {code.finish(row_dims)};
}

// Of [.., rows of x], as these broadcast.
bool fits_row(const Graph& graph, ValueId parameter, const Shape& x, std::size_t row_dims) {
  return graph.type(parameter).shape == Shape(x.end() - static_cast<std::ptrdiff_t>(row_dims), x.end());
}

Reading normalization(const Graph& graph, const Node& node, bool centered) {
  const Shape& shape = graph.type(node.inputs[0]).shape;
  const std::size_t row_dims = dims_from_axis(node, shape.size(), -1);
  if (const std::string why = row_problem(shape, row_dims); !why.empty()) return {{}, why};
  const bool bias = node.inputs.size() > 2 && node.inputs[2] != kNone;
  if (!fits_row(graph, node.inputs[1], shape, row_dims) ||
      (bias && !fits_row(graph, node.inputs[2], shape, row_dims)))
    return {{}, "its parameters have another shape than a row"};
  RowCode code(graph, node, node.inputs[0]);
  const FusedOperand x = code.in(0), mean = centered ? code.mean(x) : x, d = centered ? code.sub(x, mean) : x;
  const FusedOperand variance = code.mean(code.op(EwOp::Square, {d}));
  const FusedOperand deviation =
      code.op(EwOp::Sqrt, {code.add(variance, code.number(node.attrs.real("epsilon", 1e-5)))});
  const FusedOperand inv_std = code.op(EwOp::Reciprocal, {deviation});
  const FusedOperand normalized = code.mul(d, inv_std);
  FusedOperand y = code.mul(normalized, code.in(1));
  if (bias) y = code.add(y, code.in(2));
  code.give(y);
  if (centered) code.give(mean);
  code.give(inv_std);
  return {code.finish(row_dims)};
}

Reading normalization_gradient(const Graph& graph, const Node& node, bool centered) {
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNone)
      return {{}, "it sums over columns too, for the gradients of its parameters"};
  const Shape& shape = graph.type(node.inputs[1]).shape;
  const std::size_t row_dims = dims_from_axis(node, shape.size(), -1);
  if (const std::string why = row_problem(shape, row_dims); !why.empty()) return {{}, why};
  if (!fits_row(graph, node.inputs[2], shape, row_dims))
    return {{}, "its parameters have another shape than a row"};
  RowCode code(graph, node, node.inputs[1]);
  const FusedOperand dy = code.in(0), x = code.in(1), scale = code.in(2), inv_std = code.in(centered ? 4 : 3);
  const FusedOperand g = code.mul(dy, scale);
  const FusedOperand n = code.mul(centered ? code.sub(x, code.in(3)) : x, inv_std);
  const FusedOperand slope = code.mul(n, code.mean(code.mul(g, n)));
  FusedOperand dx = code.mul(inv_std, code.sub(centered ? code.sub(g, code.mean(g)) : g, slope));
  if (centered && node.inputs.size() > 5 && node.inputs[5] != kNone) dx = code.add(dx, code.in(5));
  code.give(dx);
  return {code.finish(row_dims)};
}

// The dims that a softmax goes over.
std::size_t softmax_dims(const Node& node, std::size_t rank) {
  const bool flatten = is_op(node, "SoftmaxGrad") ? node.attrs.integer("flatten") != 0 : node.op->since < 13;
  const std::size_t dims = dims_from_axis(node, rank, flatten ? 1 : -1);
  return flatten || dims == 1 ? dims : 0;
}

Reading softmax(const Graph& graph, const Node& node) {
  const Shape& shape = graph.type(node.inputs[0]).shape;
  const std::size_t row_dims = softmax_dims(node, shape.size());
  if (const std::string why = row_problem(shape, row_dims); !why.empty()) return {{}, why};
  RowCode code(graph, node, node.inputs[0]);
  const FusedOperand x = code.in(0);
  FusedOperand peak = code.op(EwOp::RowMax, {x});
  const bool safe = node.attrs.integer("safe") != 0;  // a row of -inf gives 0
  if (safe) {
    const FusedOperand none =
        code.op(EwOp::Equal, {peak, code.number(-std::numeric_limits<double>::infinity())});
    peak = code.op(EwOp::Where, {none, code.number(0), peak});
  }
  const FusedOperand d = code.sub(x, peak), e = code.op(EwOp::Exp, {d});
  FusedOperand total = code.sum(e);
  if (safe) {
    const FusedOperand nothing = code.op(EwOp::Equal, {total, code.number(0)});
    total = code.op(EwOp::Where, {nothing, code.number(1), total});
  }
  code.give(is_op(node, "LogSoftmax") ? code.sub(d, code.op(EwOp::Log, {total}))
                                      : code.op(EwOp::Div, {e, total}));
  return {code.finish(row_dims)};
}

Reading softmax_gradient(const Graph& graph, const Node& node) {
  const Shape& shape = graph.type(node.inputs[1]).shape;
  const std::size_t row_dims = softmax_dims(node, shape.size());
  if (const std::string why = row_problem(shape, row_dims); !why.empty()) return {{}, why};
  RowCode code(graph, node, node.inputs[1]);
  const FusedOperand dy = code.in(0), y = code.in(1);
  code.give(node.attrs.integer("log") != 0 ? code.sub(dy, code.mul(code.op(EwOp::Exp, {y}), code.sum(dy)))
                                           : code.mul(y, code.sub(dy, code.sum(code.mul(dy, y)))));
  return {code.finish(row_dims)};
}

// A region that fuse-elementwise made.
std::optional<RegionCode> region_code(const Graph& graph, const Node& node) {
  auto statements = parse_fused(node.attrs.text("code"));
  if (!statements || !shapes_known(graph, node)) return std::nullopt;
  return RegionCode{
      std::move(*statements), {}, node.attrs.integers("outputs"), graph.type(node.outputs[0]).shape};
}

Reading row_code(const Graph& graph, const Node& node) {
  if (is_op(node, "FusedElementwise")) return {region_code(graph, node)};
  for (const char* name :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1", "ReduceL2"})
    if (is_op(node, name)) return reduction(graph, node);
  if (is_op(node, "LayerNormalization")) return normalization(graph, node, true);
  if (is_op(node, "RMSNormalization")) return normalization(graph, node, false);
  if (is_op(node, "LayerNormGrad")) return normalization_gradient(graph, node, true);
  if (is_op(node, "RMSNormGrad")) return normalization_gradient(graph, node, false);
  if (is_op(node, "Softmax") || is_op(node, "LogSoftmax")) return softmax(graph, node);
  if (is_op(node, "SoftmaxGrad")) return softmax_gradient(graph, node);
  return {elementwise_code(graph, node)};
}

class FuseRows final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("max_nodes", max_nodes_, {.help = "most operations of one region", .min = 2, .max = 150});
    v.field("max_inputs", max_inputs_, {.help = "most tensors one region reads", .min = 2, .max = 64});
    v.field("devices", devices_,
            {.help = "where: gpu; all: the CPU too, which runs a kernel per operation",
             .choices = {"gpu", "all"}});
  }
  Status run_for(kernels::Target target, Rewriter& rw) const override {
    FuseRows of_target = *this;
    of_target.target_ = target;
    return of_target.run(rw);
  }

  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    const bool here = devices_ == "all" || target_ == kernels::Target::gpu;
    for (const NodeId id : order) {
      const std::string why = here ? row_code(rw.graph(), rw.graph().nodes[id]).why_not : "";
      if (!why.empty()) rw.reject("region", id, why);
    }
    const RegionLimits limits{static_cast<std::size_t>(max_nodes_), static_cast<std::size_t>(max_inputs_),
                              here ? RegionReasons::of_rows : RegionReasons::none};
    Regions regions(rw, order, limits,
                    [](const Graph& graph, const Node& node) { return row_code(graph, node).code; });
    regions.grow(rw);
    for (const Region& region : regions.joined()) {
      if (region.row_dims == 0) continue;
      if (!here)
        rw.reject("region", region.nodes.back(),
                  "for GPUs: the CPU finds rows in its caches (devices=all: all the same)");
      else if (rw.allowed("region", region.nodes.back(), region.nodes))
        TRY(regions.build(rw, region, "FusedRows"));
    }
    return {};
  }

 private:
  std::int64_t max_nodes_ = 48, max_inputs_ = 16;
  std::string devices_ = "gpu";
  kernels::Target target_ = kernels::Target::cpu;
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}}, row{DType::f32, {8}};
  PassExample e;
  for (const bool fused : {false, true}) {
    Graph& graph = fused ? e.after : e.before;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", type), residual = b.input("residual", type), scale = b.input("scale", row);
    const double epsilon = 0.5;
    if (fused) {
      const Attrs attrs{
          {"code", std::string("t0=Add(i0,i1);t1=Square(t0);t2=RowMean(t1);t3=Add(t2,i2);t4=Sqrt(t3);"
                               "t5=Reciprocal(t4);t6=Mul(t0,t5);t7=Mul(t6,i3)")},
          {"outputs", std::vector<std::int64_t>{0, 7}},
          {"row_dims", std::int64_t{1}}};
      graph.outputs =
          b.ops(op_by_name("FusedRows"), {x, residual, b.scalar(DType::f32, epsilon), scale}, attrs, 2);
    } else {
      const ValueId sum = b.op("Add", {x, residual});
      graph.outputs = {sum, b.op("RMSNormalization", {sum, scale}, {{"epsilon", epsilon}})};
    }
  }
  return e;
}

}  // namespace

extern const PassDef fuse_rows_pass;
const PassDef fuse_rows_pass = {
    .name = "fuse-rows",
    .summary = "GPUs: run elementwise operators and the reductions over rows between them as one kernel",
    .doc =
        "Elementwise regions and what reduces over the last dims beside them (sums, means, extrema, norms, softmax, LayerNormalization "
        "and RMSNormalization, their gradients where they are those of the input alone) become one kernel, forward or backward: bias, "
        "dropout, residual and norm; scale, mask and softmax; a norm in pieces. A row is read once and stays in the registers of a "
        "block, so it may have at most 8192 elements. Sums over columns (gradients of biases, scales) stay apart: they need all rows. On "
        "the CPU, which finds a row in its caches, only with devices=all.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .target = kernels::Target::gpu,
    .make = [] { return std::unique_ptr<Pass>(new FuseRows); },
    .example = example,
};

}  // namespace gradloom
