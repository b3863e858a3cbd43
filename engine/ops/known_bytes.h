// Bytes that are known when planning and that kernels read or write while running: tables of indices and
// weights, results of operators whose inputs are constants. On the CPU they are read where they lie; on a GPU
// they are stored to the workspace in front of the kernels.
#pragma once

#include <memory>
#include <vector>

#include "engine/ir/op.h"
#include "kernels/launcher.h"

namespace gradloom {

class KnownBytes {
 public:
  explicit KnownBytes(kernels::Target target) : target_(target) {}

  // Where the contents will be, for at().
  template <class T>
  std::size_t add(const std::vector<T>& contents) {
    return add(contents.data(), contents.size() * sizeof(T));
  }
  std::size_t add(const void* contents, std::size_t bytes);
  std::size_t workspace_bytes() const { return kernels::shares_host_memory(target_) ? 0 : bytes_.size(); }

  // To be called before at() in every run: the start of what was added. `workspace`: workspace_bytes() bytes.
  const char* place(const kernels::Launcher& on, void* workspace) const;

 private:
  kernels::Target target_;
  std::vector<char> bytes_;
};

// Copies `count` bytes of host memory, which lives on, to the device.
void store_bytes(const kernels::Launcher& on, kernels::Target target, const void* from, void* to,
                 std::int64_t count);

// A kernel whose outputs are these tensors, in the order of the node's;
// outputs that nobody asked for are left out.
Kernel known_outputs(const NodeTypes& types, const char* name, std::vector<Tensor> outputs);

}  // namespace gradloom
