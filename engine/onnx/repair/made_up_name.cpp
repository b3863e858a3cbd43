#include "engine/onnx/repair/made_up_name.h"

namespace gradloom {

bool is_made_up(const std::string& name) {
  if (name.starts_with(kByTorchScript)) return true;
  return name.starts_with(kByDynamo) && name.size() > kByDynamo.size() &&
         name.find_first_not_of("0123456789", kByDynamo.size()) == std::string::npos;
}

}  // namespace gradloom
