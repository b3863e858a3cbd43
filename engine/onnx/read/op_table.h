// The table of operators, from their declarations: what `gradloom ops` prints and the page
// engine/ops/README.md shows.
#pragma once

#include <string>
#include <vector>

namespace gradloom {

struct OpTableRow {
  std::string name, domain;  // "ai.onnx", "com.microsoft", "gradloom" (made by passes and autodiff), ...
  int since = 1, until = 0;  // opsets of these semantics; until 0: the newest
  // yes | none by definition | missing | not needed: nothing differentiates a gradient | of its parts
  std::string gradient;
  std::string cpu, gpu;  // kernel | view | missing | parts: other operators do it; gpu: CUDA and HIP alike
  // Element types that a kernel takes, of the input that decides (the first with a free type), as the samples
  // prove them: "f16 bf16 f32 f64 i32 i64".
  std::string cpu_types, gpu_types;
  // In mixed precision: bf16 | bf16 to f32 (takes bf16, gives f32) | f32 | follows (the type that its input
  // has) | of its parts
  std::string mixed_precision;
  std::string summary;

  std::string opsets() const;
};

std::vector<OpTableRow> op_table();
// A Markdown page of the table.
std::string op_page(const std::vector<OpTableRow>& table);

}  // namespace gradloom
