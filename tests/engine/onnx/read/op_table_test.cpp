#include "engine/onnx/read/op_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/ir/op.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

const OpTableRow& row_of(const std::vector<OpTableRow>& table, const std::string& name, int opset) {
  for (const OpTableRow& row : table)
    if (row.name == name && row.since <= opset && (row.until == 0 || opset <= row.until)) return row;
  ADD_FAILURE() << "no row for " << name;
  return table.front();
}

TEST(OpTable, ThePageIsTrue) {
  std::ostringstream page;
  page << std::ifstream(GRADLOOM_SOURCE_DIR "/engine/ops/README.md").rdbuf();
  EXPECT_EQ(page.str(), op_page(op_table()) + "\n") << "gradloom ops --markdown > engine/ops/README.md";
}

TEST(OpTable, TypesAreThoseThatKernelsTake) {
  const auto table = op_table();
  EXPECT_EQ(row_of(table, "Add", 17).cpu_types, "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64");
  EXPECT_EQ(row_of(table, "And", 17).cpu_types, "bool");
  EXPECT_EQ(row_of(table, "Softmax", 17).cpu_types.find("i32"), std::string::npos);
  EXPECT_NE(row_of(table, "MatMul", 17).gpu_types.find("bf16"), std::string::npos);
}

// What computes one half type computes the other, on the CPU and on GPUs.
TEST(OpTable, HalfTypesGoTogether) {
  const auto has = [](const std::string& types, const char* type) {
    return (" " + types + " ").find(" " + std::string(type) + " ") != std::string::npos;
  };
  int halves = 0;
  for (const OpTableRow& row : op_table())
    for (const std::string& types : {row.cpu_types, row.gpu_types}) {
      EXPECT_EQ(has(types, "f16"), has(types, "bf16")) << row.name << ": " << types;
      halves += has(types, "f16");
    }
  EXPECT_GT(halves, 300);
}

TEST(OpTable, OpsetsOfAnOperatorDoNotOverlap) {
  const auto table = op_table();
  for (const OpTableRow& a : table)
    for (const OpTableRow& b : table) {
      if (&a == &b || a.name != b.name || a.domain != b.domain) continue;
      const OpTableRow &first = a.since <= b.since ? a : b, &second = &first == &a ? b : a;
      EXPECT_TRUE(first.until != 0 && first.until < second.since)
          << a.name << " " << a.opsets() << ", " << b.opsets();
    }
}

TEST(OpTable, EveryKernelHasAGradientOrASaidReason) {
  for (const OpTableRow& row : op_table()) {
    EXPECT_NE(row.cpu, "missing") << row.name;
    EXPECT_NE(row.gpu, "missing") << row.name;
    if (row.cpu == "kernel" && row.name != "Constant" && row.name.rfind("Random", 0) != 0) {
      EXPECT_FALSE(row.cpu_types.empty()) << row.name;
    }
  }
}

}  // namespace
}  // namespace gradloom
