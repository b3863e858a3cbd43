#include "engine/onnx/read/op_table.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"
#include "engine/onnx/read/sample_graph.h"
#include "engine/ops/custom/custom_ops.h"

namespace gradloom {
namespace {

constexpr DType kTypes[] = {
    DType::f16,        DType::bf16,   DType::f32,        DType::f64,    DType::i8,    DType::i16,
    DType::i32,        DType::i64,    DType::u8,         DType::u16,    DType::u32,   DType::u64,
    DType::boolean,    DType::i4,     DType::u4,         DType::i2,     DType::u2,    DType::f8e4m3fn,
    DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1, DType::f8e8m0};
constexpr const char* kSmallTypes = "i4 u4 i2 u2 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f4e2m1 f8e8m0";

bool prepares(const OpDef& op, const Sample& sample, kernels::Target target) {
  Graph graph;
  GraphBuilder b(graph);
  return add_sample(b, op, sample, DType::f32).ok() && missing_kernel(graph, graph.nodes[0], target).empty();
}

// The sample with every input of type `from` in type `to`, within the range of `to`.
Sample retyped(Sample sample, DType from, DType to) {
  for (SampleInput& input : sample.inputs) {
    if (input.type.dtype != from) continue;
    input.type.dtype = to;
    if (is_float(to)) continue;
    if (to == DType::boolean || dtype_name(to)[0] == 'u') input.low = std::max(input.low, 0.0);
    const bool narrow = to == DType::boolean || is_small(to);
    input.high = std::max(input.low, std::min(input.high, narrow ? 1.0 : 100.0));
    input.low = std::max(input.low, is_small(to) ? -2.0 : -100.0);
  }
  return sample;
}

// Tries the smallest sample of each type that its first input has, in all types.
std::string types_of(const OpDef& op, kernels::Target target) {
  if (op.samples == nullptr || (!op.has(kView) && op.prepare(target) == nullptr)) return "";
  std::map<DType, bool> works;
  for (const Sample& sample : op.samples()) {
    if (sample.bench || sample.inputs.empty() || sample.inputs[0].omitted) continue;
    const DType own = sample.inputs[0].type.dtype;
    for (const DType type : kTypes) {
      bool& found = works[type];
      const bool exact = !sample.inputs[0].values.empty() && type == DType::boolean && own != type;
      if (!found && !exact) found = prepares(op, retyped(sample, own, type), target);
    }
  }
  std::string text;
  for (const DType type : kTypes)
    if (works[type]) text += (text.empty() ? "" : " ") + std::string(dtype_name(type));
  return text;
}

std::string kernel_text(const OpDef& op, kernels::Target target) {
  if (op.has(kView)) return "view";
  return op.prepare(target) != nullptr ? "kernel" : "missing";
}

// What mixed precision does with an operator.
const char* precision_text(Precision precision) {
  switch (precision) {
    case Precision::follow: return "follows";
    case Precision::low: return "bf16";
    case Precision::wide: return "bf16 to f32";
    case Precision::full: return "f32";
  }
  return "?";
}

std::string domain_text(const char* domain) { return *domain == '\0' ? "ai.onnx" : domain; }

}  // namespace

std::string OpTableRow::opsets() const {
  return std::to_string(since) + (until == 0 ? "+" : until == since ? "" : "-" + std::to_string(until));
}

std::vector<OpTableRow> op_table() {
  std::vector<OpTableRow> table;
  std::vector<const OpDef*> rows(all_ops().begin(), all_ops().end());
  const std::vector<const OpDef*> custom = custom_ops();
  rows.insert(rows.end(), custom.begin(), custom.end());
  for (const OpDef* op : rows) {
    OpTableRow row;
    row.name = op->name;
    row.domain = domain_text(op->domain);
    row.since = op->since;
    for (const Expansion* older : all_expansions())  // the reader prefers a body of older opsets
      if (older->name == row.name && older->domain == std::string_view(op->domain) && older->until < kNewest)
        row.since = std::max(row.since, older->until + 1);
    row.until = op->until >= kNewest ? 0 : op->until;
    const bool own = row.domain == "gradloom";
    row.gradient = op->grad != nullptr    ? "yes"
                   : op->has(kNoGradient) ? "none by definition"
                   : own                  ? "not needed"
                                          : "missing";
    row.cpu = kernel_text(*op, kernels::Target::cpu);
    row.gpu = kernel_text(*op, kernels::Target::gpu);
    row.cpu_types = types_of(*op, kernels::Target::cpu);
    row.gpu_types = types_of(*op, kernels::Target::gpu);
    row.mixed_precision = precision_text(op->precision);
    row.summary = op->summary;
    table.push_back(std::move(row));
  }
  for (const Expansion* e : all_expansions()) {
    OpTableRow row;
    row.name = e->name;
    row.domain = domain_text(e->domain);
    row.since = e->since;
    row.until = e->until >= kNewest ? 0 : e->until;
    row.gradient = "of its parts";
    row.cpu = row.gpu = "parts";
    row.mixed_precision = "of its parts";
    row.summary = "Becomes other operators when it is read";
    table.push_back(std::move(row));
  }
  return table;
}

std::string op_page(const std::vector<OpTableRow>& table) {
  std::string page =
      "# Operators\n\n"
      "Made by `gradloom ops --markdown`; a test keeps it true. *kernel*: one of ours, on the CPU and from "
      "one source for CUDA and\n"
      "HIP; *view*: the same bytes with another shape; *parts*: other operators of this table do it. Types "
      "are those of the deciding\n"
      "input; *small*: i4, u4, i2, u2, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f4e2m1 and f8e8m0. f16 and "
      "bf16 are computed in f32.\n"
      "On CUDA libraries serve products, convolutions, pooling, normalization and attention where they can "
      "(ARCHITECTURE.md).\n";
  std::vector<std::string> domains;
  for (const OpTableRow& row : table)
    if (std::find(domains.begin(), domains.end(), row.domain) == domains.end()) domains.push_back(row.domain);
  for (const std::string& domain : domains) {
    std::vector<const OpTableRow*> rows;
    for (const OpTableRow& row : table)
      if (row.domain == domain) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(),
                     [](const OpTableRow* a, const OpTableRow* b) { return a->name < b->name; });
    page += "\n## " + domain + "\n\n" + (domain == "gradloom" ? "Made by autodiff and passes.\n\n" : "") +
            "| operator | opsets | gradient | CPU | CUDA, HIP | mixed | |\n|---|---|---|---|---|---|---|\n";
    for (const OpTableRow* r : rows) {
      const auto cell = [](const std::string& kind, std::string types) {
        const std::size_t small = types.find(kSmallTypes);
        if (small != std::string::npos) types.replace(small, std::strlen(kSmallTypes), "small");
        return kind + (types.empty() ? "" : ": " + types);
      };
      std::string summary;
      for (const char c : r->summary) summary += c == '|' ? "\\|" : std::string(1, c);
      page += "| " + r->name + " | " + r->opsets() + " | " + r->gradient + " | " +
              cell(r->cpu, r->cpu_types) + " | " + cell(r->gpu, r->gpu_types) + " | " + r->mixed_precision +
              " | " + summary + " |\n";
    }
  }
  return page;
}

}  // namespace gradloom
