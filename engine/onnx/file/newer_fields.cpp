// All of them are length-delimited: strings or messages.
#include "engine/onnx/file/newer_fields.h"

#include <google/protobuf/unknown_field_set.h>

namespace gradloom {

namespace {

constexpr int kNodeOverload = 8, kNodeMetadata = 9, kValueMetadata = 4, kGraphMetadata = 16,
              kFunctionAttributeDefaults = 11, kFunctionOverload = 13;

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

template <class Visit>
void for_each(const UnknownFieldSet& fields, int number, Visit visit) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED)
      visit(field.length_delimited());
  }
}

std::string metadata_entry(const UnknownFieldSet& fields, int number, const std::string& key) {
  std::string value;
  for_each(fields, number, [&](const std::string& bytes) {
    onnx::StringStringEntryProto entry;
    if (entry.ParseFromString(bytes) && entry.key() == key) value = entry.value();
  });
  return value;
}

std::string text_field(const UnknownFieldSet& fields, int number) {
  std::string text;
  for_each(fields, number, [&](const std::string& bytes) { text = bytes; });
  return text;
}

}  // namespace

std::string overload_of(const onnx::NodeProto& node) {
  return text_field(node.unknown_fields(), kNodeOverload);
}

std::string overload_of(const onnx::FunctionProto& function) {
  return text_field(function.unknown_fields(), kFunctionOverload);
}

bool attribute_defaults(const onnx::FunctionProto& function, std::vector<onnx::AttributeProto>* defaults) {
  bool parsed = true;
  for_each(function.unknown_fields(), kFunctionAttributeDefaults, [&](const std::string& bytes) {
    parsed = defaults->emplace_back().ParseFromString(bytes) && parsed;
  });
  return parsed;
}

std::string metadata_of(const onnx::NodeProto& node, const std::string& key) {
  return metadata_entry(node.unknown_fields(), kNodeMetadata, key);
}

std::string metadata_of(const onnx::ValueInfoProto& value, const std::string& key) {
  return metadata_entry(value.unknown_fields(), kValueMetadata, key);
}

std::string metadata_of(const onnx::GraphProto& graph, const std::string& key) {
  return metadata_entry(graph.unknown_fields(), kGraphMetadata, key);
}

void add_metadata(onnx::NodeProto& node, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(kNodeMetadata,
                                                                        entry.SerializeAsString());
}

std::vector<std::string> python_list(const std::string& text) {
  std::vector<std::string> entries;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return entries;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    const char quote = text[i];
    if (quote != '\'' && quote != '"') continue;
    const std::size_t end = text.find(quote, i + 1);
    if (end == std::string::npos) return {};
    entries.push_back(text.substr(i + 1, end - i - 1));
    i = end;
  }
  return entries;
}

}  // namespace gradloom
