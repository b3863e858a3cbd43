// Interned rows of unknown operators, and the one error that names them all.
#include "engine/onnx/read/opaque.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "engine/base/text.h"
#include "engine/onnx/expand/expansion.h"

namespace gradloom {

namespace {

struct OpaqueRow {
  std::string name, domain;
  OpDef op;
};

}  // namespace

const OpDef* opaque_op(const std::string& name, const std::string& domain) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::unique_ptr<OpaqueRow>> rows;
  const std::lock_guard lock(mutex);
  std::unique_ptr<OpaqueRow>& row = rows[{domain, name}];
  if (row == nullptr) {
    row = std::make_unique<OpaqueRow>();
    row->name = name;
    row->domain = domain;
    row->op.name = row->name.c_str();
    row->op.domain = row->domain.c_str();
    row->op.summary = "not supported";
    row->op.min_inputs = 0;
    row->op.max_inputs = row->op.max_outputs = 1 << 30;
  }
  return &row->op;
}

Error unsupported_error(const std::vector<UnknownOp>& unknown) {
  constexpr std::size_t kShownNodes = 8, kShownOps = 100;
  struct Group {
    std::string reason;
    std::vector<const UnknownOp*> nodes;
  };
  std::map<std::string, Group> groups;
  for (const UnknownOp& u : unknown) {
    Group& group = groups[escaped((u.domain.empty() ? "" : u.domain + ".") + u.op_type)];
    group.nodes.push_back(&u);
    if (group.reason.empty()) group.reason = u.reason;
  }
  std::string text = std::to_string(groups.size()) +
                     (groups.size() == 1 ? " operator is" : " operators are") + " not supported: ";
  std::size_t shown = 0;
  for (const auto& [name, group] : groups) {
    if (shown > 0) text += ", ";
    if (++shown > kShownOps) {
      text += "...";
      break;
    }
    text +=
        name + " (" + std::to_string(group.nodes.size()) + (group.nodes.size() == 1 ? " node: " : " nodes: ");
    for (std::size_t i = 0; i < group.nodes.size() && i < kShownNodes; ++i)
      text += (i ? ", " : "") + escaped(group.nodes[i]->node);
    if (group.nodes.size() > kShownNodes) text += ", ...";
    text += (group.reason.empty() ? "" : "; " + group.reason) + ")";
  }
  const bool foreign = std::any_of(unknown.begin(), unknown.end(), [](const UnknownOp& u) {
    return u.reason.empty() && !u.domain.empty() && u.domain != "gradloom" && u.domain != kMicrosoft;
  });
  if (foreign) text += "; operators of your own come from a library that --ops LIB.so names";
  return Error{Errc::bad_input, text};
}

}  // namespace gradloom
