// fuse-transpose-matmul: transposes around a product become strides of its kernel.
//   MatMul(Transpose(x, p), y) -> FusedMatMul(x, y){perm_a = p};  Transpose(MatMul(x, y), p) ->
//   FusedMatMul(x, y){perm_y = p} A result with swapped matrix axes is computed as (A B)^T = B^T A^T, so that
//   its rows stay contiguous.
#include <algorithm>
#include <string_view>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

// The kernel runs at full speed when one of the two matrix axes is contiguous in memory.
bool has_contiguous_matrix(const Perm& perm) {
  const auto last = static_cast<std::int64_t>(perm.size()) - 1;
  return perm[perm.size() - 1] == last || perm[perm.size() - 2] == last;
}

std::string perm_text(const Perm& perm) { return to_string(AttrValue(perm)); }

class FuseTransposeMatMul final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      if (auto product = read_product(rw.graph(), id)) fuse(rw, id, *product);
    }
    return {};
  }

 private:
  static constexpr const char* kRule = "transpose-matmul";

  static void fuse(Rewriter& rw, NodeId id, Product p) {
    const Graph& graph = rw.graph();
    const ValueId y = graph.nodes[id].outputs[0];
    std::vector<NodeId> replaced = {id};
    std::string why_not;
    take_operand(graph, p.a, p.perm_a, replaced, why_not);
    take_operand(graph, p.b, p.perm_b, replaced, why_not);
    ValueId result = y;
    take_result(rw, result, p, replaced, why_not);
    const bool swapped = swap_result(p);
    if (!why_not.empty()) rw.reject(kRule, id, why_not);
    if ((replaced.size() == 1 && !swapped) || !rw.allowed(kRule, id, replaced)) return;
    GraphBuilder& b = rw.begin(kRule, id, replaced);
    rw.replace(result, add_product(b, p));
    rw.commit(replaced.size() > 1
                  ? plural_text(static_cast<std::int64_t>(replaced.size()) - 1, "transpose") + " as strides"
                  : "the result's rows are contiguous");
  }

  static void take_operand(const Graph& graph, ValueId& operand, Perm& perm, std::vector<NodeId>& replaced,
                           std::string& why_not) {
    for (;;) {
      const NodeId producer = graph.values[operand].producer;
      if (producer == kNone || !is_op(graph.nodes[producer], "Transpose")) return;
      const Node& transpose = graph.nodes[producer];
      const Perm merged = composed(perm_of_transpose(graph, transpose), perm);
      if (!has_contiguous_matrix(merged)) {
        why_not = "operand order " + perm_text(merged) + " leaves no matrix axis contiguous (node " +
                  transpose.name + ")";
        return;
      }
      operand = transpose.inputs[0];
      perm = merged;
      replaced.push_back(producer);
    }
  }

  static void take_result(const Rewriter& rw, ValueId& result, Product& p, std::vector<NodeId>& replaced,
                          std::string& why_not) {
    const Graph& graph = rw.graph();
    for (;;) {
      const auto& uses = rw.uses(result);
      const auto reader = std::find_if(uses.begin(), uses.end(), [&](const Use& use) {
        return is_op(graph.nodes[use.node], "Transpose");
      });
      if (reader == uses.end()) return;
      const Node& transpose = graph.nodes[reader->node];
      if (rw.use_count(result) != 1) {
        why_not = "its result is read by more than node " + transpose.name;
        return;
      }
      const Perm merged = composed(p.perm_y, perm_of_transpose(graph, transpose));
      const auto last = static_cast<std::int64_t>(merged.size()) - 1;
      const bool swaps = merged.back() == last - 1 && p.bias == kNone;
      if (merged.back() != last && !swaps) {
        why_not =
            "result order " + perm_text(merged) + " leaves rows not contiguous (node " + transpose.name + ")";
        return;
      }
      p.perm_y = merged;
      result = transpose.outputs[0];
      replaced.push_back(reader->node);
    }
  }

  // Y = transpose(A B, perm_y) with the rows of A B innermost in Y: exchange the operands.
  static bool swap_result(Product& p) {
    const auto last = static_cast<std::int64_t>(p.perm_y.size()) - 1;
    if (p.perm_y.back() != last - 1 || p.bias != kNone) return false;
    std::swap(p.a, p.b);
    std::swap(p.perm_a, p.perm_b);
    std::swap(p.perm_a[p.perm_a.size() - 1], p.perm_a[p.perm_a.size() - 2]);
    std::swap(p.perm_b[p.perm_b.size() - 1], p.perm_b[p.perm_b.size() - 2]);
    for (std::int64_t& axis : p.perm_y) {
      if (axis >= last - 1) axis = last - 1 + last - axis;
    }
    return true;
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {2, 5, 3, 4}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId q = b.input("q", type), k = b.input("k", type);
  const Attrs heads{{"perm", Perm{0, 2, 1, 3}}}, keys{{"perm", Perm{0, 2, 3, 1}}};
  e.before.outputs = {b.op("MatMul", {b.op("Transpose", {q}, heads), b.op("Transpose", {k}, keys)})};
  GraphBuilder a(e.after);
  const ValueId aq = a.input("q", type), ak = a.input("k", type);
  e.after.outputs = {
      a.op("FusedMatMul", {aq, ak}, {{"perm_a", Perm{0, 2, 1, 3}}, {"perm_b", Perm{0, 2, 3, 1}}})};
  return e;
}

}  // namespace

extern const PassDef fuse_transpose_matmul_pass;
const PassDef fuse_transpose_matmul_pass = {
    .name = "fuse-transpose-matmul",
    .summary = "let a matrix product read and write transposed tensors without copies",
    .doc =
        "Transposes of operands and of results of MatMul, Gemm and FusedMatMul are folded into the product, "
        "forward (attention heads, "
        "Linear weights) and backward, as long as one of the two matrix axes stays contiguous in memory. A "
        "transpose that something else "
        "reads as well stays for that reader.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseTransposeMatMul); },
    .example = example,
};

}  // namespace gradloom
