#include "engine/onnx/repair/buffers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/onnx/repair/buffer_contents.h"

namespace gradloom {

namespace {

constexpr std::size_t kMostReaders = 64;  // that are looked at behind one parameter

// A node that computes with a value, and as which operand.
struct Reader {
  NodeId node;
  std::uint32_t input;
  std::string_view op;
};

// The operator hands the numbers of this operand on, in another place or type.
bool moves(const Node& node, std::uint32_t input) {
  static constexpr std::array kMoves = {"Transpose", "Expand",   "Tile",  "Slice",
                                        "Gather",    "GatherND", "Split", "Cast",
                                        "Concat",    "Identity", "Pad",   "GatherElements"};
  const std::string_view op = node.op->name;
  if (op == "Concat") return true;
  if (input != 0) return false;
  return node.op->has(kView) || std::find(kMoves.begin(), kMoves.end(), op) != kMoves.end();
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  std::vector<BufferFinding> run() {
    std::vector<BufferFinding> found;
    for (const ValueId id : graph_.parameters) {
      const Value& value = graph_.value(id);
      if (!value.has_type || !value.data.defined() || value.data.count() == 0) continue;
      if (BufferFinding finding = examine(id); !finding.why.empty()) found.push_back(std::move(finding));
    }
    return found;
  }

 private:
  // What reads the value behind all that only moves its numbers; none where there are too many to tell.
  std::vector<Reader> readers_of(ValueId value) const {
    std::vector<Reader> readers;
    std::vector<ValueId> open = {value};
    std::set<ValueId> seen;
    while (!open.empty()) {
      const ValueId at = open.back();
      open.pop_back();
      if (!seen.insert(at).second) continue;
      if (seen.size() + readers.size() > kMostReaders) return {};
      if (std::find(graph_.outputs.begin(), graph_.outputs.end(), at) != graph_.outputs.end()) return {};
      for (const Use& use : uses_[at]) {
        const Node& node = graph_.node(use.node);
        if (moves(node, use.input_index)) {
          for (const ValueId out : node.outputs)
            if (out != kNone) open.push_back(out);
        } else {
          readers.push_back({use.node, use.input_index, node.op->name});
        }
      }
    }
    return readers;
  }

  // No gradient comes back through this operand.
  bool passes_none(const Reader& reader) const {
    const Node& node = graph_.node(reader.node);
    if (node.op->infer == nullptr) return false;
    if (node.op->has(kNoGradient) || node.op->has(kShapeOnly)) return true;
    return std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId out) {
      return out != kNone && (!graph_.value(out).has_type || is_float(graph_.type(out).dtype));
    });
  }

  BufferFinding examine(ValueId id) {
    std::vector<Reader> readers = readers_of(id);
    if (readers.empty()) return {};
    const std::string first(readers[0].op);
    std::erase_if(readers, [&](const Reader& r) { return passes_none(r); });
    if (readers.empty()) return {id, true, "no gradient passes " + first + ", which reads it"};
    if (!look_at(graph_.value(id).data)) return {};
    BufferFinding finding = data_.count() == 1 ? examine_scalar(readers) : examine_table(id, readers);
    if (finding.why.empty() && weighs_losses(readers)) finding = unsure("weighs what the loss adds up");
    finding.parameter = id;
    return finding;
  }

  // It multiplies what comes to the model's results through elementwise operators and sums alone: labels, or losses of single
  // elements (pos_weight and weight of a binary cross-entropy); no layer reads it.
  bool weighs_losses(const std::vector<Reader>& readers) const {
    std::set<ValueId> seen;
    std::vector<ValueId> open;
    bool summed = false;
    for (const Reader& r : readers) {
      if (r.op != "Mul") return false;
      open.push_back(graph_.node(r.node).outputs[0]);
    }
    while (!open.empty()) {
      const ValueId at = open.back();
      open.pop_back();
      if (!seen.insert(at).second) continue;
      if (seen.size() > kMostReaders) return false;
      for (const Use& use : uses_[at]) {
        const Node& node = graph_.node(use.node);
        const bool sums = std::string_view(node.op->name).starts_with("Reduce");
        if (!sums && !node.op->has(kElementwise) && !moves(node, use.input_index)) return false;
        for (const ValueId out : node.outputs) {
          if (out == kNone) continue;
          open.push_back(out);
          const Value& value = graph_.value(out);
          summed |= sums && value.has_type && value.type.shape.empty();
        }
      }
    }
    return summed;
  }

  // Contents that are in a file come into memory while they are looked at; large ones only where their first numbers
  // are like those that tables and masks begin with: 0 and 1, whole numbers, and what hides a score.
  bool look_at(const Tensor& tensor) {
    constexpr std::int64_t kLarge = 1 << 18, kFirst = 16;
    data_ = tensor;
    if (tensor.in_memory()) return true;
    if (tensor.count() > kLarge) {
      Tensor first(tensor.dtype(), {kFirst});
      if (!tensor.read(0, first.mutable_data(), first.bytes())) return false;
      std::int64_t plain = 0;
      for (std::int64_t i = 0; i < kFirst; ++i) plain += first.at(i) == std::floor(first.at(i)) ? 1 : 0;
      if (2 * plain < kFirst) return false;
    }
    Result<Tensor> loaded = tensor.loaded();
    if (!loaded.ok()) return false;
    data_ = std::move(*loaded);
    return true;
  }

  static bool all_are(const std::vector<Reader>& readers, std::initializer_list<std::string_view> ops) {
    return std::all_of(readers.begin(), readers.end(),
                       [&](const Reader& r) { return std::find(ops.begin(), ops.end(), r.op) != ops.end(); });
  }

  static BufferFinding certain(std::string why) { return {kNone, true, std::move(why)}; }
  static BufferFinding unsure(std::string why) { return {kNone, false, std::move(why)}; }

  BufferFinding examine_table(ValueId id, const std::vector<Reader>& readers) const {
    const Tensor& data = data_;
    const std::string by = ", read by " + std::string(readers[0].op);
    const bool added = all_are(readers, {"Add", "Sub", "Sum"}), multiplied = all_are(readers, {"Mul"}),
               selected = all_are(readers, {"Add", "Sub", "Sum", "Mul", "Where", "Min", "Max"});
    if (selected && is_additive_mask(data)) return certain("a mask of zeros and large negative numbers" + by);
    if (selected && is_zero_one(data)) return examine_zero_one(id, by);
    if (added && is_distance_bias(data)) return certain("slopes times distances" + by);
    const bool elementwise = all_are(readers, {"Add", "Sub", "Sum", "Mul", "Div"}),
               product = all_are(readers, {"Mul", "MatMul", "Einsum"});
    if (added || multiplied) {
      const Waves waves = waves_of(data);
      if (waves == Waves::cosines && multiplied) return certain("a table of cosines" + by);
      if (waves == Waves::sines && multiplied) return certain("a table of sines" + by);
      if (waves != Waves::none && multiplied) return certain("a table of cosines and sines" + by);
      if (waves != Waves::none) return certain("a table of sinusoidal positions" + by);
    }
    if (product && is_frequencies(data) && leads_to_waves(readers))
      return certain("frequencies of cosines and sines" + by);
    if (is_range(data, 0)) {
      const std::string why = "the numbers from 0 on" + by;
      return elementwise || product ? certain(why) : unsure(why);
    }
    if (elementwise && is_range(data, 1)) return unsure("the numbers from 1 on" + by);
    if (all_are(readers, {"Conv", "ConvTranspose"}) && is_shared_filter(data))
      return unsure("one filter for every channel" + by);
    return normalizes_input(id, readers);
  }

  BufferFinding examine_zero_one(ValueId id, const std::string& by) const {
    const Value& value = graph_.value(id);
    if (is_triangle(data_)) return certain("a triangular mask" + by);
    std::string leaf = value.name.substr(value.name.rfind('.') + 1);
    for (char& c : leaf) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string why = "zeros and ones" + by;
    return leaf.find("mask") != std::string::npos ? certain("a mask of " + why) : unsure(why);
  }

  BufferFinding examine_scalar(const std::vector<Reader>& readers) const {
    const double number = data_.at(0);
    const bool hides = std::all_of(readers.begin(), readers.end(),
                                   [](const Reader& r) { return r.op == "Where" && r.input > 0; });
    if (hides && number <= -1e4) return certain("what hidden scores are filled with");
    const auto each = [&](auto fits) { return std::all_of(readers.begin(), readers.end(), fits); };
    if (number > 0 && number <= 1e-3 && each([&](const Reader& r) { return is_under_root(r); }))
      return certain("an epsilon under a root");
    const bool divides = each([](const Reader& r) { return r.op == "Div" && r.input == 1; });
    if (!divides) return {};
    if (is_root_of_integer(number) && each([&](const Reader& r) { return divides_scores(r); }))
      return certain("the divisor of attention scores");
    return unsure("a number that Div divides by");
  }

  bool is_under_root(const Reader& reader) const {
    if (reader.op != "Add") return false;
    const std::vector<Reader> behind = readers_of(graph_.node(reader.node).outputs[0]);
    return !behind.empty() && all_are(behind, {"Sqrt", "Reciprocal", "Pow"});
  }

  // A product by this number, and then a softmax.
  bool divides_scores(const Reader& reader) const {
    const Node& node = graph_.node(reader.node);
    ValueId at = node.inputs[0];
    for (int step = 0; step < 4 && at != kNone && graph_.value(at).producer != kNone; ++step) {
      const Node& made = graph_.node(graph_.value(at).producer);
      if (std::string_view(made.op->name) == "MatMul") return leads_to(node.outputs[0], {"Softmax"}) == 1;
      if (made.inputs.empty() || !moves(made, 0)) return false;
      at = made.inputs[0];
    }
    return false;
  }

  bool leads_to_waves(const std::vector<Reader>& readers) const {
    return std::all_of(readers.begin(), readers.end(), [&](const Reader& r) {
      return leads_to(graph_.node(r.node).outputs[0], {"Cos", "Sin"}) == 2;
    });
  }

  // How many of these operators the value comes to through a few elementwise steps.
  std::size_t leads_to(ValueId value, std::initializer_list<std::string_view> ops) const {
    constexpr int kMostSteps = 4;
    std::set<std::string_view> found;
    std::vector<ValueId> open = {value};
    for (int step = 0; step < kMostSteps && !open.empty(); ++step) {
      std::vector<ValueId> next;
      for (const ValueId at : open) {
        for (const Reader& r : readers_of(at)) {
          if (std::find(ops.begin(), ops.end(), r.op) != ops.end()) found.insert(r.op);
          if (r.op == "Add" || r.op == "Mul" || r.op == "Where")
            next.push_back(graph_.node(r.node).outputs[0]);
        }
      }
      if (next.size() > kMostReaders) break;
      open = std::move(next);
    }
    return found.size();
  }

  // (x - mean) / std of a graph's input x.
  BufferFinding normalizes_input(ValueId id, const std::vector<Reader>& readers) const {
    const std::string& name = graph_.value(id).name;
    const std::string leaf = name.substr(name.rfind('.') + 1);
    for (const Reader& r : readers) {
      if ((r.op != "Sub" && r.op != "Div") || r.input != 1) return {};
      ValueId at = graph_.node(r.node).inputs[0];
      for (int step = 0; step < 4 && at != kNone && graph_.value(at).producer != kNone; ++step) {
        const Node& made = graph_.node(graph_.value(at).producer);
        at = made.inputs.empty() ? kNone : made.inputs[0];
      }
      if (at == kNone || graph_.value(at).role != Role::input) return {};
    }
    const bool named = leaf.ends_with("mean") || leaf.ends_with("std") || leaf.ends_with("var");
    const std::string why =
        std::string(readers[0].op == "Sub" ? "subtracted from" : "what divides") + " an input";
    return named ? certain("a statistic, " + why) : unsure(why);
  }

  const Graph& graph_;
  const std::vector<std::vector<Use>> uses_;
  Tensor data_;  // of the parameter that is looked at
};

}  // namespace

std::vector<BufferFinding> find_buffers(const Graph& graph) { return Finder(graph).run(); }

}  // namespace gradloom
