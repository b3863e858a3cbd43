// A model file with other parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/onnx/import.h"

namespace gradloom {

// Rewrites the initializers of the model at `source_path` with `parameters` (by name), and the copies of
// these, into `path`, atomically.
Status export_onnx(const std::string& source_path, const std::map<std::string, Tensor>& parameters,
                   const std::string& path, const std::vector<TiedCopy>& copies = {});

}  // namespace gradloom
