// Names that torch.onnx.export made up, of what has no name in the module.
#pragma once

#include <string>
#include <string_view>

namespace gradloom {

constexpr std::string_view kByTorchScript = "onnx::", kByDynamo = "val_";  // how they begin
bool is_made_up(const std::string& name);  // "onnx::MatMul_12", by TorchScript, or "val_12"

}  // namespace gradloom
