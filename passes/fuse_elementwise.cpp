// fuse-elementwise: connected elementwise nodes over the same shape become one FusedElementwise node: every
// input is read once, every result that something outside reads is written once, everything else stays in
// registers and tiles. How regions grow: regions.h.
#include <memory>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/regions.h"

namespace gradloom {
namespace {

class FuseElementwise final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("max_nodes", max_nodes_, {.help = "most operations of one region", .min = 2, .max = 150});
    v.field("max_inputs", max_inputs_, {.help = "most tensors one region reads", .min = 2, .max = 64});
  }

  Status run(Rewriter& rw) const override {
    const RegionLimits limits{static_cast<std::size_t>(max_nodes_), static_cast<std::size_t>(max_inputs_)};
    Regions regions(rw, TRY(topological_order(rw.graph())), limits, elementwise_code);
    regions.grow(rw);
    for (const Region& region : regions.joined())
      if (rw.allowed("region", region.nodes.back(), region.nodes))
        TRY(regions.build(rw, region, "FusedElementwise"));
    return {};
  }

 private:
  std::int64_t max_nodes_ = 64, max_inputs_ = 24;
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}}, row{DType::f32, {8}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type), bias = b.input("bias", row), residual = b.input("residual", type);
  e.before.outputs = {b.op("Add", {b.op("Gelu", {b.op("Add", {x, bias})}), residual})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type), abias = a.input("bias", row), aresidual = a.input("residual", type);
  const Attrs attrs{{"code", std::string("t0=Add(i0,i1);t1=Gelu(t0);t2=Add(t1,i2)")},
                    {"outputs", std::vector<std::int64_t>{2}}};
  e.after.outputs = {a.op("FusedElementwise", {ax, abias, aresidual}, attrs)};
  return e;
}

}  // namespace

extern const PassDef fuse_elementwise_pass;
const PassDef fuse_elementwise_pass = {
    .name = "fuse-elementwise",
    .summary = "run connected elementwise operators as one kernel",
    .doc =
        "Any connected region of elementwise operations over one shape, forward or backward, becomes one "
        "kernel: arithmetic, activations and "
        "their gradients, casts, comparisons, Where, dropout, with broadcast inputs of any kind and several "
        "results. A region never "
        "crosses from forward to backward (that would keep activations for longer) and never spans a path "
        "through another operator.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new FuseElementwise); },
    .example = example,
};

}  // namespace gradloom
