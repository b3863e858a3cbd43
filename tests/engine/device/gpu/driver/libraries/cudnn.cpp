// libcudnn for the strict driver: the graph interface. Operations are computed on the host (operations.cpp) when their turn in the stream
// comes; what descriptors must be is in cudnn_rules.cpp, and what callers must not do is a complaint.
#include <algorithm>
#include <cstdio>
#include <set>

#include "tests/engine/device/gpu/driver/libraries/cudnn_descriptor.h"

using namespace gradloom::kernels::gpu;
using namespace gradloom::strict;

namespace {

constexpr LibraryStatuses kStatuses{CUDNN_STATUS_BAD_PARAM, 4000, 5000};  // .. ALLOC_FAILED, EXECUTION_FAILED
constexpr int kNotSupported = 3000;

struct Handle {
  void* stream = nullptr;
};
Made<Handle>& handles() {
  static auto& all = *new Made<Handle>("cudnn handles");
  return all;
}
Made<std::shared_ptr<Descriptor>>& descriptors() {
  static auto& all = *new Made<std::shared_ptr<Descriptor>>("cudnn descriptors");
  return all;
}
thread_local std::string last_words;

Descriptor* descriptor_of(LibraryCall& call, cudnnBackendDescriptor_t handle) {
  const std::shared_ptr<Descriptor>* const found = call.failed() ? nullptr : descriptors().get(call, handle);
  return found != nullptr ? found->get() : nullptr;
}

int refuse(LibraryCall& call, const std::string& why) {
  last_words = why;
  return call.wrong(why);
}

// What a descriptor that was finalized tells: one value after the other in `values`, of which there is room for `capacity`.
template <class T>
void tell(const std::vector<T>& all, std::int64_t capacity, std::int64_t* count, void* values) {
  *count = std::int64_t(all.size());
  std::copy_n(all.begin(), std::min(capacity, *count), static_cast<T*>(values));
}

// Into descriptors of this kind that the caller has made.
void fill(LibraryCall& call, const Descriptor& from, cudnnBackendDescriptorType_t kind, std::int64_t capacity,
          std::int64_t* count, void* values) {
  *count = std::int64_t(from.engines.size());
  for (std::int64_t i = 0; i < std::min(capacity, *count); ++i) {
    Descriptor* const to = descriptor_of(call, static_cast<void**>(values)[i]);
    if (to == nullptr) return;
    if (to->type != kind || to->finalized) {
      refuse(call, "a result's descriptor is of another kind, or finalized");
      return;
    }
    to->graph = from.graph;
    to->handle = from.handle;
    to->engines = {from.engines[std::size_t(i)]};
    to->finalized = true;
  }
}

// The addresses of a run, by id.
std::map<std::int64_t, void*> addresses_of(const Descriptor& pack) {
  Attributes a(pack);
  const auto ids = a.list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64);
  const auto addresses = a.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR);
  std::map<std::int64_t, void*> all;
  for (std::size_t i = 0; i < ids.size(); ++i) all[ids[i]] = addresses[i];
  return all;
}

// Gives the graph's tensors their addresses. False, which was said: one has none, or none that it can have.
bool place(LibraryCall& call, const Descriptor& plan, const Descriptor& pack, OperationGraph* graph,
           void** workspace) {
  const std::map<std::int64_t, void*> addresses = addresses_of(pack);
  for (Array& t : graph->tensors) {
    if (t.is_virtual) continue;
    const auto found = addresses.find(t.id);
    if (found == addresses.end()) {
      refuse(call, "tensor " + std::to_string(t.id) + " has no address");
    } else if (t.by_value) {
      t.held = std::make_shared<std::vector<std::byte>>(t.bytes());
      std::memcpy(t.held->data(), found->second, t.bytes());
      t.at = t.held->data();
    } else {
      t.at = found->second;
      (void)call.device_memory(("tensor " + std::to_string(t.id)).c_str(), t.at, t.bytes(),
                               std::size_t(t.boundary));
    }
  }
  Attributes a(pack);
  *workspace = a.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                   ? a.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR)
                   : nullptr;
  if (const std::int64_t bytes = plan.engines[0].workspace_bytes; bytes > 0)
    (void)call.device_memory("the workspace", *workspace, std::size_t(bytes), 16);
  return !call.failed();
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED std::size_t cudnnGetVersion() { return 91900; }
EXPORTED const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
         : int(status) == kNotSupported   ? "CUDNN_STATUS_NOT_SUPPORTED"
         : int(status) == 4000            ? "CUDNN_STATUS_INTERNAL_ERROR"
                                          : "CUDNN_STATUS_EXECUTION_FAILED";
}
EXPORTED void cudnnGetLastErrorString(char* text, std::size_t capacity) {
  std::snprintf(text, capacity, "%s", last_words.c_str());
  last_words.clear();
}

EXPORTED cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const LibraryCall call("cudnnCreate", kStatuses, STRICT_ALLOCATES);
  if (!call.failed()) *handle = reinterpret_cast<cudnnHandle_t>(handles().make({}));
  return cudnnStatus_t(call.status());
}
EXPORTED cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  LibraryCall call("cudnnDestroy", kStatuses);
  return cudnnStatus_t(handles().destroy(call, handle));
}
EXPORTED cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, void* stream) {
  LibraryCall call("cudnnSetStream", kStatuses);
  Handle* const found = call.failed() ? nullptr : handles().get(call, handle);
  if (found != nullptr && door().stream_id(stream) == 0)
    refuse(call, "the stream is none, or the default stream");
  if (found != nullptr) found->stream = stream;
  return cudnnStatus_t(call.status());
}

EXPORTED cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                    cudnnBackendDescriptor_t* descriptor) {
  const LibraryCall call("cudnnBackendCreateDescriptor", kStatuses);
  if (!call.failed()) *descriptor = descriptors().make(std::make_shared<Descriptor>(Descriptor{type}));
  return cudnnStatus_t(call.status());
}
EXPORTED cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  LibraryCall call("cudnnBackendDestroyDescriptor", kStatuses);
  return cudnnStatus_t(descriptors().destroy(call, descriptor));
}

EXPORTED cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                                cudnnBackendAttributeName_t name,
                                                cudnnBackendAttributeType_t type, std::int64_t count,
                                                const void* values) {
  LibraryCall call("cudnnBackendSetAttribute", kStatuses);
  Descriptor* const d = descriptor_of(call, handle);
  if (d == nullptr) return cudnnStatus_t(call.status());
  if (d->finalized) return cudnnStatus_t(refuse(call, "the descriptor is finalized"));
  if (count < 0 || (count > 0 && values == nullptr)) return cudnnStatus_t(refuse(call, "no values"));
  const auto* const bytes = static_cast<const std::byte*>(values);
  Attribute attribute{type, count, {bytes, bytes + std::size_t(count) * bytes_of(type)}, {}};
  for (std::int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; ++i) {
    const auto* const part = descriptors().get(call, static_cast<void* const*>(values)[i]);
    if (part != nullptr && !(*part)->finalized) refuse(call, "a part that is not finalized");
    if (part == nullptr || call.failed()) return cudnnStatus_t(call.status());
    attribute.parts.push_back(*part);
  }
  d->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

EXPORTED cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  LibraryCall call("cudnnBackendFinalize", kStatuses);
  Descriptor* const d = descriptor_of(call, handle);
  if (d == nullptr) return cudnnStatus_t(call.status());
  if (d->finalized) return cudnnStatus_t(refuse(call, "the descriptor is finalized"));
  if (const auto wrong = finalize(*d)) return cudnnStatus_t(refuse(call, *wrong));
  d->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

EXPORTED cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle,
                                                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                                                std::int64_t capacity, std::int64_t* count, void* values) {
  LibraryCall call("cudnnBackendGetAttribute", kStatuses);
  Descriptor* const d = descriptor_of(call, handle);
  if (d == nullptr) return cudnnStatus_t(call.status());
  if (!d->finalized) return cudnnStatus_t(refuse(call, "the descriptor is not finalized"));
  const Engine* const engine = !d->engines.empty() ? &d->engines[0] : nullptr;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    fill(call, *d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, capacity, count, values);
  else if (name == CUDNN_ATTR_ENGINECFG_ENGINE && engine != nullptr)
    fill(call, *d, CUDNN_BACKEND_ENGINE_DESCRIPTOR, capacity, count, values);
  else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && engine != nullptr)
    tell(engine->numerical, capacity, count, values);
  else if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && engine != nullptr)
    tell(engine->behavior, capacity, count, values);
  else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && engine != nullptr)
    tell(std::vector{engine->number}, capacity, count, values);
  else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && engine != nullptr)
    tell(std::vector{engine->workspace_bytes}, capacity, count, values);
  else
    refuse(call, "attribute " + std::to_string(name) + " of a descriptor that has none");
  return cudnnStatus_t(call.status());
}

EXPORTED cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                           cudnnBackendDescriptor_t pack_handle) {
  LibraryCall call("cudnnBackendExecute", kStatuses);
  const Handle* const on = call.failed() ? nullptr : handles().get(call, handle);
  const Descriptor *const plan = descriptor_of(call, plan_handle), *const pack =
                                                                       descriptor_of(call, pack_handle);
  if (on == nullptr || plan == nullptr || pack == nullptr) return cudnnStatus_t(call.status());
  if (!plan->finalized || plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !pack->finalized ||
      pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR || plan->handle != static_cast<void*>(handle))
    return cudnnStatus_t(refuse(call, "no plan of this handle, or no addresses, or not finalized"));
  OperationGraph graph = *plan->graph;
  void* workspace = nullptr;
  if (!place(call, *plan, *pack, &graph, &workspace)) return cudnnStatus_t(call.status());
  const std::size_t bytes = std::size_t(plan->engines[0].workspace_bytes);
  return cudnnStatus_t(call.submit(on->stream, "operations", [graph, workspace, bytes] {
    if (bytes > 0) std::memset(workspace, 0xA5, bytes);  // whatever an engine leaves there
    run(graph);
  }));
}
