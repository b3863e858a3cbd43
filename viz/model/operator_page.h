// What the window tells of an operator, from its declarations: versions, formula, gradient, cost, kernels per
// device, what mixed precision does with it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/onnx/read/op_table.h"

namespace gradloom {

struct OperatorPage {
  std::string name, summary;
  std::string formula;  // of an elementwise operator, over its operands a, b, c; else empty
  // Every row of that name: this program's own operators first, newest first
  std::vector<OpTableRow> versions;
  // "takes 2 to 3 inputs", "output 0 is input 0 with another shape: no kernel", ...: of the newest own row.
  std::vector<std::string> facts;
};

// `table`: op_table(). A name that the table lacks has no versions.
OperatorPage operator_page(const std::string& name, const std::vector<OpTableRow>& table);

}  // namespace gradloom
