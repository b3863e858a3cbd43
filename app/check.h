// Test folders: ONNX's layout (model.onnx, test_data_set_*/input_N.pb, output_N.pb) with grad_N.pb
// added: TensorProtos named after a parameter or float graph input that hold the gradient of
// output 0 with respect to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/onnx/import.h"
#include "passes/pass.h"

namespace gradloom {

struct CheckOptions {
  Pipeline passes = default_pipeline();
  std::string precision = "f32", device = "cpu";
  // default: 1e-3 and 1e-7 for outputs (ONNX), 1e-3 and 1e-5 for gradients; f64: 1e-7, 1e-8.
  std::optional<double> rtol, atol;
  std::uint64_t seed = 0;
  Limits limits;
};

enum class CheckStatus : std::uint8_t { pass, fail, unsupported };
const char* check_status_name(CheckStatus status);

struct CheckResult {
  std::string name;  // folder
  CheckStatus status = CheckStatus::pass;
  std::string reason;
  double max_abs_error = 0, max_rel_error = 0;
  int gradients = 0;  // compared
};

// Folders under `path` (itself included) that hold a model.onnx and a test_data_set_*,
// sorted. Error: path unreadable.
Result<std::vector<std::string>> find_test_folders(const std::string& path);
CheckResult check_folder(const std::string& folder, const CheckOptions& options);

}  // namespace gradloom
