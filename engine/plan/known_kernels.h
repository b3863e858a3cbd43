// What planning asked of kernels: nodes that are alike are prepared once, in one plan and in plans of much the same
// graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// Alike: the same operator and attributes, types, processor and known contents. Contents are told apart by where they
// lie, so the graphs have to be copies of one that outlives this.
class KnownKernels {
 public:
  struct Facts {
    std::string kernel;  // its name
    std::int64_t workspace_bytes = 0;
    Cost cost;
  };
  // Errors: prepare_kernel's, which are not kept.
  Result<Facts> of(const OpDef& op, const NodeTypes& types);

 private:
  struct Known {
    Attrs attrs;
    Facts facts;
  };
  std::map<std::string, std::vector<Known>> known_;  // by all but the attributes
};

// Of one node.
Result<KnownKernels::Facts> kernel_facts(const OpDef& op, const NodeTypes& types);

}  // namespace gradloom
