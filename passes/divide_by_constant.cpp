// divide-by-constant: x / c becomes x * (1 / c) where that is the same number: c is a power of two. Two scalings in a row
// become one where one of the constants is a power of two, which scales the other:
//   (x * c) * 4 -> x * (4 c);  (x / c) * 4 -> x / (c / 4);  (x * 4) / c -> x / (c / 4);  (x / 4) / c -> x / (4 c)
// Either way a number is rounded once, to the same one unless what lay between was subnormal or infinite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char *kRule = "reciprocal", *kChain = "two-scales";

class DivideByConstant final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("inexact", inexact_,
            {.help = "constants that are no powers of two too: results change in their last place"});
  }

  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (rw.graph().nodes[id].alive() && !join(rw, id) && is_op(rw.graph().nodes[id], "Div")) fuse(rw, id);
    return {};
  }

 private:
  // Of something that is no constant itself.
  static std::optional<ConstantScaling> scaling_of(const Graph& graph, NodeId id) {
    const auto scaling = scaling_by_constant(graph, id);
    return scaling && !scalar_constant(graph, scaling->value, nullptr) ? scaling : std::nullopt;
  }

  // This scaling and the one before it are one.
  bool join(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const auto second = scaling_of(graph, id);
    if (!second) return false;
    const NodeId before = graph.values[second->value].producer;
    const auto first = scaling_of(graph, before);
    if (!first) return false;
    const auto refuse = [&](const std::string& why) {
      rw.reject(kChain, id, why);
      return false;
    };
    if (const std::string why = used_elsewhere(rw, second->value, {id}); !why.empty()) return refuse(why);
    const bool second_is_exact = is_power_of_two(second->constant);
    if (!inexact_ && !second_is_exact && !is_power_of_two(first->constant))
      return refuse("neither constant is a power of two (inexact)");
    // The operator that rounds stays, with its constant scaled.
    const ConstantScaling &stays = second_is_exact ? *first : *second,
                          &goes = second_is_exact ? *second : *first;
    const DType type = graph.type(first->value).dtype;
    const double c =
        stays.divides == goes.divides ? stays.constant * goes.constant : stays.constant / goes.constant;
    if (!is_normal(c, type))
      return refuse(std::string("both constants together are no normal ") + dtype_name(type));
    if (!rw.allowed(kChain, id, {id, before})) return false;
    const ValueId y = graph.nodes[id].outputs[0], x = first->value;
    const char* const op = stays.divides ? "Div" : "Mul";
    GraphBuilder& b = rw.begin(kChain, id, {id, before});
    rw.replace(y, b.op(op, {x, b.scalar(type, c)}));
    rw.commit("one rounding instead of two steps");
    return true;
  }

  void fuse(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const Node node = graph.nodes[id];
    const Value& divisor = graph.values[node.inputs[1]];
    if (!is_float(divisor.type.dtype) || divisor.role != Role::constant || !divisor.data.defined() ||
        divisor.data.count() > kMostElements)
      return;
    std::vector<double> reciprocals;
    for (std::int64_t i = 0; i < divisor.data.count(); ++i) {
      const double c = divisor.data.at(i), reciprocal = 1 / c;
      if (!is_normal(reciprocal, divisor.type.dtype))
        return rw.reject(kRule, id, divisor.name + " has no reciprocal in " + dtype_name(divisor.type.dtype));
      if (!inexact_ && !is_power_of_two(c))
        return rw.reject(kRule, id, "the reciprocal of " + divisor.name + " is rounded (inexact)");
      reciprocals.push_back(reciprocal);
    }
    if (!rw.allowed(kRule, id)) return;
    const Type type = divisor.type;
    GraphBuilder& b = rw.begin(kRule, id, {id});
    const ValueId factor = b.constant(Tensor::from_f64(type.dtype, type.shape, reciprocals));
    rw.replace(node.outputs[0], b.op("Mul", {node.inputs[0], factor}));
    rw.commit("a product takes a fraction of a division's time");
  }

  // Neither 0, infinite nor subnormal in that type, in which kernels compute at least in f32.
  static bool is_normal(double x, DType type) {
    const double least = type == DType::f64   ? std::numeric_limits<double>::min()
                         : type == DType::f16 ? 0x1p-14
                                              : static_cast<double>(std::numeric_limits<float>::min());
    const double most = type == DType::f64   ? std::numeric_limits<double>::max()
                        : type == DType::f16 ? 65504
                                             : static_cast<double>(std::numeric_limits<float>::max());
    return std::abs(x) >= least && std::abs(x) <= most;
  }

  static constexpr std::int64_t kMostElements = 65536;
  bool inexact_ = false;
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}};
  PassExample e;
  GraphBuilder b(e.before);
  e.before.outputs = {b.op("Div", {b.input("x", type), b.scalar(DType::f32, 8)})};
  GraphBuilder a(e.after);
  e.after.outputs = {a.op("Mul", {a.input("x", type), a.scalar(DType::f32, 0.125)})};
  return e;
}

}  // namespace

extern const PassDef divide_by_constant_pass;
const PassDef divide_by_constant_pass = {
    .name = "divide-by-constant",
    .summary = "multiply by the reciprocal of a constant power of two, and scale once instead of twice",
    .doc =
        "x / c and x * (1 / c) round the same number where 1 / c is exact, so nothing changes but the time: processors "
        "divide several times slower than they multiply. Two scalings by constants in a row, products or divisions, are one "
        "where one of the constants is a power of two. With inexact=true every constant whose reciprocal is a normal "
        "number is taken, and every pair of scalings, and results may differ in their last place.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new DivideByConstant); },
    .example = example,
};

}  // namespace gradloom
