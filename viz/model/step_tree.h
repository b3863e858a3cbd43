// One training step as a tree: where the time of its kernels goes by module, phase, ONNX node, pass or operator. The icicle
// and `show --tree` are both drawn from it. Pure; built from the rows of a recorded run.
//
// Time: of a kernel the median of what it took in the timed steps in which it ran, times the part of them that these are, so that
// one disturbed step moves nothing; what lies below a node adds up to it. (The kernel table's time per step is a mean.)
// Beside it, median and quartiles over the timed steps of what the node as a whole took in each.
//
// Levels: the group (none by scope), the parts of the scope, then the kernels. By node the group is the type and then the
// node: ONNX nodes that one forward kernel computes are one ("Transpose + MatMul + Add"), and its backward kernels
// belong to it; a kernel goes where the last of its ONNX nodes, which gave the result, is.
//
// Folding: siblings whose names differ in numbers alone ("h.0" .. "h.11") and that hold the same modules (or, holding none,
// the same forward operators) become one node, "12 x h.*". What is below it is of all of them: modules of equal name
// are one, and the kernels that are the n-th of their phase and operator in their module. Other kernels may be in some
// alone, as in the backward pass of the first layer.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

enum class TreeBy : uint8_t { kScope, kPhase, kNode, kPass, kOp };
inline constexpr std::array<const char*, 5> kTreeByNames{"scope", "phase", "node", "pass", "op"};

// What a kernel is for. Exchanges between ranks are of their own, whatever their phase; other: what importers name besides.
enum class StepPart : uint8_t { kForward, kLoss, kBackward, kOptimizer, kExchange, kOther };
inline constexpr size_t kStepParts = 6;
inline constexpr std::array<const char*, kStepParts> kStepPartNames{"forward",   "loss",     "backward",
                                                                    "optimizer", "exchange", "other"};
StepPart step_part(const KernelInfo& kernel);

// What each kernel took in each timed step: of kernel k entries first[k] up to first[k + 1].
struct StepSamples {
  struct Entry {
    uint32_t step = 0;  // 0 .. steps - 1
    double ns = 0;
  };
  uint32_t steps = 0;
  std::vector<size_t> first{0};
  std::vector<Entry> entries;  // of a kernel by step, several where it ran several times in one
  bool has(size_t kernel) const { return kernel + 1 < first.size() && first[kernel] < first[kernel + 1]; }
};
// Without the first `warmup` steps where there are later ones, as the rows of the kernel table are made.
StepSamples step_samples(const TraceDocument& trace, size_t kernels, int64_t warmup);
StepSamples step_samples(const RunRecord& run, const TraceDocument& trace);

struct StepNode {
  // "attn", "12 x h.*"; of a kernel its node inside the scope. No two children of a node share it.
  std::string label;
  int32_t parent = -1, depth = 0;
  std::vector<int32_t> children;  // longest first
  std::vector<uint32_t> rows;     // kernels that are this very node; of inner nodes none
  double total_ns = 0, self_ns = 0;
  std::array<double, kStepParts> part_ns{};
  int64_t kernels = 0;
  double launches = 0;    // per step
  double peak_bytes = 0;  // that its kernels made and that are live at the step's peak
  double median_ns = std::nan(""), low_ns = std::nan(""), high_ns = std::nan("");  // NaN: no samples
  // Of what is folded into it, or into a node above: how many there are, and what one of them takes.
  int64_t repeats = 1;
  double each_ns = 0, most_ns = 0;  // median, longest
  std::string longest;              // the layer of that one: "h.7"
  StepPart main_part() const;       // with the most time
};

struct StepTree {
  TreeBy by = TreeBy::kScope;
  bool folded = true;
  uint32_t steps = 0;           // timed
  std::vector<StepNode> nodes;  // parents first; the root, "step", is there always
  double share(int32_t node) const;
  std::string path(int32_t node) const;       // labels from below the root, with slashes; of the root empty
  int32_t find(std::string_view path) const;  // -1: there is none
  bool is_within(int32_t node, int32_t outer) const;  // or the same
  std::vector<uint32_t> rows_of(int32_t node) const;  // all kernels below, longest nodes first
};
// `source_ops`: operators of the ONNX nodes, by KernelInfo::sources. Kernels without samples have the time of their row.
// `held`: as held_at_peak gives it (memory_model.h).
StepTree build_step_tree(const std::vector<KernelRow>& kernels, const std::vector<std::string>& source_ops,
                         const StepSamples& samples, const std::map<std::string, int64_t>& held, TreeBy by,
                         bool fold);

// Of several nodes together; what lies within another of them counts once.
struct StepSum {
  int64_t nodes = 0, kernels = 0;
  double ns = 0, share = 0, launches = 0, peak_bytes = 0;
  std::array<double, kStepParts> part_ns{};
};
StepSum sum_of(const StepTree& tree, const std::vector<int32_t>& nodes);
// "forward 120 us, backward 240 us": what is more than nothing.
std::string parts_text(const std::array<double, kStepParts>& part_ns);

// Its label without the number of layers that are folded into it: "h.*".
std::string unnumbered_label(const StepNode& node);

// The kernels of a node in the words of the search language (search.h); empty: it has none for them.
std::string kernel_query(const StepTree& tree, int32_t node);

// "h.11/attn" -> "h.*/attn": numbers that count layers.
std::string layer_stem(std::string_view name);

}  // namespace gradloom
