#include "engine/plan/known_kernels.h"

#include <algorithm>

namespace gradloom {
namespace {

template <class T>
void add_bytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void add_type(std::string& key, const Type& type, bool present) {
  key += static_cast<char>(type.dtype);
  key += present ? '+' : '-';
  add_bytes(key, type.shape.size());
  for (const std::int64_t dim : type.shape) add_bytes(key, dim);
}

// Empty: contents are in a file, which is not read to tell them apart.
std::string key_of(const OpDef& op, const NodeTypes& types) {
  std::string key;
  const OpDef* const row = &op;
  add_bytes(key, row);
  key += static_cast<char>(types.target);
  key += types.dnn_library ? '+' : '-';
  add_bytes(key, types.inputs.size());
  for (std::size_t i = 0; i < types.inputs.size(); ++i) add_type(key, types.inputs[i], types.has(i));
  for (std::size_t i = 0; i < types.outputs.size(); ++i) add_type(key, types.outputs[i], types.wants(i));
  for (const Tensor* const contents : types.constants) {
    if (contents != nullptr && !contents->in_memory()) return {};
    const void* const data = contents != nullptr ? contents->data() : nullptr;
    add_bytes(key, data);
  }
  return key;
}

}  // namespace

Result<KnownKernels::Facts> kernel_facts(const OpDef& op, const NodeTypes& types) {
  const Kernel kernel = TRY(prepare_kernel(op, types));
  return KnownKernels::Facts{kernel.name, static_cast<std::int64_t>(kernel.workspace_bytes), op.cost(types)};
}

Result<KnownKernels::Facts> KnownKernels::of(const OpDef& op, const NodeTypes& types) {
  const std::string key = key_of(op, types);
  if (key.empty()) return kernel_facts(op, types);
  std::vector<Known>& alike = known_[key];
  const auto found = std::find_if(alike.begin(), alike.end(),
                                  [&](const Known& known) { return known.attrs == types.attrs; });
  if (found != alike.end()) return found->facts;
  Facts facts = TRY(kernel_facts(op, types));
  alike.push_back({types.attrs, facts});
  return facts;
}

}  // namespace gradloom
