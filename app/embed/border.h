// The border between C and the program: what a call returns, and that nothing else leaves it.
#pragma once

#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "app/embed/gradloom.h"
#include "app/output.h"
#include "engine/base/broken_invariant.h"
#include "engine/base/result.h"
#include "engine/base/tensor.h"
#include "engine/ir/graph.h"

namespace gradloom::embed {

// The code of a call, whose line is kept for gradloom_last_error.
int report(const Error& error) noexcept;
int report(Errc code, const char* line) noexcept;

// Runs the body of a call, a Status. `broken`, where the call has a handle: after a broken invariant it does no more work.
template <class Body>
int guarded(std::atomic<bool>* broken, const Body& body) noexcept {
  static const bool once = (throw_broken_invariants(), true);
  (void)once;
  if (broken != nullptr && *broken)
    return report(Errc::bug, "an internal error happened before: this handle can only be closed");
  try {
    const Status status = body();
    if (status.ok()) return GRADLOOM_OK;
    return report(status.error());
  } catch (const std::bad_alloc&) {
    return report(Errc::limit, "out of memory");
  } catch (const std::exception& e) {
    if (broken != nullptr) *broken = true;
    return report(Errc::bug, e.what());
  } catch (...) {
    if (broken != nullptr) *broken = true;
    return report(Errc::bug, "unexpected exception");
  }
}

// What a job or command says, for the caller's callback. `callbacks` outlives it.
Output::Listener listener(const gradloom_callbacks& callbacks);

// An argument that must be there.
Status given(const void* argument, const char* name);
Result<std::vector<std::string>> words_of(int count, const char* const* words);

// A struct of the caller, who may have been compiled with an older, shorter one.
template <class Struct>
Result<Struct> sized(const Struct* from, const char* name) {
  TRY(given(from, name));
  if (from->size < sizeof from->size || from->size > sizeof(Struct) + 4096)
    return Error{Errc::usage, std::string(name) + ": `size` is not the size of the struct"};
  Struct copy{};
  std::memcpy(&copy, from, std::min(from->size, sizeof(Struct)));
  return copy;
}

std::int32_t dtype_number(DType dtype);  // of TensorProto.DataType
// `type` and `name` live as long as the handle.
gradloom_value described(const std::string& name, const Type& type, bool gradient, bool used);
// Of every value that a node makes, in the order of the nodes: the number of its dims, and they.
std::vector<std::int64_t> extents_of(const Graph& graph);
// What is asked for is one of `count`.
Status check_index(int index, std::size_t count);

}  // namespace gradloom::embed
