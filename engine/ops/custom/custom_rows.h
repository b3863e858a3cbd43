// Rows of operators that a library declares. OpDef's functions take no row, so each row has a number of its own,
// and functions made for that number.
#pragma once

#include <string>

#include "engine/ir/op.h"
#include "engine/ops/custom/gradloom_op.h"

namespace gradloom {

constexpr std::size_t kMostCustomOps = 128;

struct CustomOp {
  gradloom_op def;
  std::string domain, name, summary, title;  // title: "my.domain::Name"
  OpDef forward, backward;
};

// An attribute of a file, which may be of any type: one of another type is as good as none.
template <class T>
const T* attribute(const Attrs& attrs, const std::string& name) {
  const auto found = attrs.all().find(name);
  return found == attrs.all().end() ? nullptr : std::get_if<T>(&found->second);
}

// Operators by number; they live as long as the process, as graphs point to their rows.
extern CustomOp* custom_op_table[kMostCustomOps];
// Fills the rows of operator `number`, whose def and texts are there. It stands in the table before a row is used.
void make_custom_rows(CustomOp& op, std::size_t number);

}  // namespace gradloom
