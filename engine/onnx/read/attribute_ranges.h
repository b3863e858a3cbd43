// The values that ONNX's specification allows for an attribute, beyond its type: one declaration per attribute,
// checked before any inference. Rules that depend on shapes (axes, lengths of lists, groups that divide channels)
// are checked by inference.
#pragma once

#include <span>
#include <string>

#include "engine/ir/graph.h"

namespace gradloom {

struct AttributeRange {
  enum class Kind {
    words,     // texts, and numbers that stand for something: one of `words`
    integers,  // integers and lists of them: low to high
    reals,     // reals and lists of them: low to high, and `low` itself; finite
  };
  const char* operators;  // names separated by spaces; empty: every operator that has the attribute
  const char* attribute;
  Kind kind;
  const char* words = "";  // separated by spaces
  double low = 0, high = 0;
};
// Those of single operators come before those of every operator. Words are those of all opsets: one that a
// later opset added is read in older files too.
std::span<const AttributeRange> attribute_ranges();

// "attribute 'group' is -1, it must be at least 1"; empty: it is in its range, or may be anything.
std::string attribute_out_of_range(const std::string& op_type, const std::string& attribute,
                                   const AttrValue& value);

}  // namespace gradloom
