// divide-by-constant: x / c becomes x * (1 / c) where that is the same number: c is a power of two.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "reciprocal";

class DivideByConstant final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("inexact", inexact_,
            {.help = "constants that are no powers of two too: results change in their last place"});
  }

  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (is_op(rw.graph().nodes[id], "Div")) fuse(rw, id);
    return {};
  }

 private:
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
      int exponent = 0;
      if (!inexact_ && std::abs(std::frexp(c, &exponent)) != 0.5)
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
    .summary = "multiply by the reciprocal of a constant power of two",
    .doc =
        "x / c and x * (1 / c) round the same number where 1 / c is exact, so nothing changes but the time: processors "
        "divide several times slower than they multiply. With inexact=true every constant whose reciprocal is a normal "
        "number is taken, and results may differ in their last place.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new DivideByConstant); },
    .example = example,
};

}  // namespace gradloom
