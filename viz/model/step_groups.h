// What a step tree groups kernels by: the modules, told by their scopes, with what makes two layers alike, and the ONNX
// nodes that one forward kernel computes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/names.h"
#include "sessions/store.h"

namespace gradloom {

// The modules of a run as a tree. Two of them have the same structure when they hold modules of the same names, which are
// alike themselves; where they hold none, when their forward kernels are of the same operators (of a module without a
// forward pass all kernels count).
class ScopeStructures {
 public:
  // What is deeper than `most_levels`, and what there is beyond `most` modules, belongs to the module around it.
  ScopeStructures(const std::vector<KernelRow>& kernels, size_t most_levels, size_t most);
  std::vector<int32_t> way_to(int32_t row) const;  // modules from the outermost to the kernel's
  const std::string& label(int32_t scope) const { return scopes_[static_cast<size_t>(scope)].label; }
  int32_t structure(int32_t scope) const { return scopes_[static_cast<size_t>(scope)].structure; }

 private:
  struct Scope {
    std::string label;
    int32_t parent = -1, structure = -1;
    bool forward = false;  // there are forward kernels in it
    std::vector<int32_t> children;
    std::set<std::string> forward_ops, ops;
  };
  int32_t child(int32_t parent, const std::string& label);
  void add(const KernelInfo& kernel, size_t most_levels, size_t most);
  void find_structures();

  std::vector<Scope> scopes_;  // parents first; 0 is the whole model
  std::vector<int32_t> of_row_;
  std::map<std::pair<int32_t, std::string>, int32_t> by_label_;
  NameMap<int32_t> by_name_;
};

struct OnnxGroup {
  std::string type;        // "Transpose + MatMul + Add", "ReduceMean + Sub + 4 more + Add"
  std::string name;        // the last of its nodes, and how many more: "/query/Add +2"
  int32_t structure = -1;  // equal where the forward kernels have the same operators
};
struct OnnxGroups {
  std::vector<OnnxGroup> groups;
  std::vector<int32_t> of_row;  // -1: the kernel stands for no ONNX node
};
OnnxGroups onnx_groups(const std::vector<KernelRow>& kernels, const std::vector<std::string>& source_ops);

}  // namespace gradloom
