// Descriptors of cuDNN's graph interface in the stand-in (cudnn.cpp): attributes as they were set, and what finalizing makes of them.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/device/gpu/driver/libraries/door.h"
#include "tests/engine/device/gpu/driver/libraries/operations.h"

namespace gradloom::strict {

struct Descriptor;
using DescriptorPtr = std::shared_ptr<const Descriptor>;

struct Attribute {
  kernels::gpu::cudnnBackendAttributeType_t type;
  std::int64_t count;
  std::vector<std::byte> bytes;
  std::vector<DescriptorPtr> parts;  // of descriptors: as they were
};

// An engine for a graph of operations.
struct Engine {
  std::int64_t number = 0, workspace_bytes = 0;
  std::vector<int> numerical, behavior;  // notes
};

struct Descriptor {
  kernels::gpu::cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, Attribute> attributes{};
  // Of a graph and what is made of it.
  std::shared_ptr<const OperationGraph> graph{};
  std::vector<Engine> engines{};  // suggested; of a configuration and a plan: the one
  void* handle = nullptr;         // that it is for
};

// What finalize finds wrong with a descriptor; it makes graph, engines and handle of the attributes.
std::optional<std::string> finalize(Descriptor& d);

// ---- attributes -------------------------------------------------------------------------------------------------------------------

inline std::size_t bytes_of(kernels::gpu::cudnnBackendAttributeType_t type) {
  using namespace kernels::gpu;
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_FRACTION: return 16;
    default: return 4;
  }
}

// Reads attributes; the first thing that is wrong stays.
class Attributes {
 public:
  explicit Attributes(const Descriptor& d) : d_(d) {}
  const std::optional<std::string>& wrong() const { return wrong_; }
  void say(const std::string& what) {
    if (!wrong_) wrong_ = what;
  }
  bool has(int name) const { return d_.attributes.count(name) != 0; }
  template <class T>
  std::vector<T> list(int name, kernels::gpu::cudnnBackendAttributeType_t type) {
    const Attribute* const found = find(name, type);
    std::vector<T> values(found != nullptr ? std::size_t(found->count) : 0);
    if (!values.empty()) std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
    return values;
  }
  template <class T>
  T one(int name, kernels::gpu::cudnnBackendAttributeType_t type) {
    const Attribute* const found = find(name, type);
    T value{};
    if (found == nullptr) return value;
    if (found->count != 1)
      say("attribute " + std::to_string(name) + " has " + std::to_string(found->count) + " values");
    else
      std::memcpy(&value, found->bytes.data(), sizeof value);
    return value;
  }
  std::int64_t number(int name) { return one<std::int64_t>(name, kernels::gpu::CUDNN_TYPE_INT64); }
  // Null, with a word of it: it is missing or of another kind.
  const Descriptor* part(int name, kernels::gpu::cudnnBackendDescriptorType_t kind) {
    const Attribute* const found = find(name, kernels::gpu::CUDNN_TYPE_BACKEND_DESCRIPTOR);
    if (found == nullptr) return nullptr;
    if (found->parts.size() == 1 && found->parts[0]->type == kind) return found->parts[0].get();
    say("attribute " + std::to_string(name) + " is not one descriptor of kind " + std::to_string(kind));
    return nullptr;
  }

 private:
  const Attribute* find(int name, kernels::gpu::cudnnBackendAttributeType_t type) {
    const auto found = d_.attributes.find(name);
    if (found == d_.attributes.end())
      say("attribute " + std::to_string(name) + " is missing");
    else if (found->second.type != type)
      say("attribute " + std::to_string(name) + " is of type " + std::to_string(found->second.type) +
          " and not " + std::to_string(type));
    else
      return &found->second;
    return nullptr;
  }
  const Descriptor& d_;
  std::optional<std::string> wrong_;
};

}  // namespace gradloom::strict
