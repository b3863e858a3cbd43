// What planning asked of kernels: nodes that are alike are prepared once, in one plan and in plans of much the same
// graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "engine/plan/launches.h"

namespace gradloom {

// Alike: the same operator and attributes, types, processor and known contents. Contents are told apart by where they
// lie, so the graphs have to be copies of one that outlives this.
class KnownKernels {
 public:
  struct Facts {
    std::string kernel;  // its name
    std::int64_t workspace_bytes = 0;
    Cost cost;
    std::vector<LaunchKind> launches;  // whose sum the cost is, on a GPU; empty: one
  };
  // Errors: prepare_kernel's, which are not kept.
  Result<Facts> of(const OpDef& op, const NodeTypes& types);
  // Whether the operator's own kernel takes them: prepare_kernel has one in f32 between conversions where that refuses f16 and
  // bf16. Errors: prepare's, which are kept.
  Status own(const OpDef& op, const NodeTypes& types);

 private:
  struct Known {
    Attrs attrs;
    Result<Facts> facts;
  };
  using Alike = std::map<std::string, std::vector<Known>>;  // by all but the attributes
  static const Known* find(const Alike& known, const std::string& key, const NodeTypes& types);

  Alike known_, own_;
};

// Of one node.
Result<KnownKernels::Facts> kernel_facts(const OpDef& op, const NodeTypes& types);

}  // namespace gradloom
