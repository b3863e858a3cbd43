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

Result<KnownKernels::Facts> facts_of(const Kernel& kernel, const OpDef& op, const NodeTypes& types) {
  KnownKernels::Facts facts{
      kernel.name, static_cast<std::int64_t>(kernel.workspace_bytes), op.cost(types), {}};
  if (types.target != kernels::Target::gpu) return facts;
  facts.launches = launches_of(op, kernel, types, facts.cost);
  if (!facts.launches.empty()) facts.cost = cost_of_launches(facts.launches);
  return facts;
}

}  // namespace

Result<KnownKernels::Facts> kernel_facts(const OpDef& op, const NodeTypes& types) {
  return facts_of(TRY(prepare_kernel(op, types)), op, types);
}

const KnownKernels::Known* KnownKernels::find(const Alike& known, const std::string& key,
                                              const NodeTypes& types) {
  const auto alike = known.find(key);
  if (alike == known.end()) return nullptr;
  const auto found = std::find_if(alike->second.begin(), alike->second.end(),
                                  [&](const Known& one) { return one.attrs == types.attrs; });
  return found == alike->second.end() ? nullptr : &*found;
}

Result<KnownKernels::Facts> KnownKernels::of(const OpDef& op, const NodeTypes& types) {
  const std::string key = key_of(op, types);
  if (key.empty()) return kernel_facts(op, types);
  if (const Known* const known = find(known_, key, types)) return known->facts;
  Facts facts = TRY(kernel_facts(op, types));
  known_[key].push_back({types.attrs, facts});
  return facts;
}

Status KnownKernels::own(const OpDef& op, const NodeTypes& types) {
  const std::string key = key_of(op, types);
  const auto outcome = [](const Result<Facts>& facts) { return facts ? Status() : Status(facts.error()); };
  if (const Known* const known = find(own_, key, types)) return outcome(known->facts);
  const auto kernel = op.prepare(types.target)(types);
  const Result<Facts> facts = kernel ? facts_of(*kernel, op, types) : Result<Facts>(kernel.error());
  if (!key.empty()) own_[key].push_back({types.attrs, facts});
  if (!key.empty() && facts)
    known_[key].push_back({types.attrs, facts});  // the one that prepare_kernel takes, too
  return outcome(facts);
}

}  // namespace gradloom
