// ONNX file -> forward Graph. Every malformed file ends in a typed error;
// operators that Gradloom lacks are all collected.
#pragma once

#include <string>
#include <vector>

#include "engine/onnx/file/import_options.h"
#include "engine/onnx/read/imported_model.h"

namespace gradloom {

Result<ImportedModel> import_onnx(const std::string& path, const ImportOptions& options);

}  // namespace gradloom
