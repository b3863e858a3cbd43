#include "engine/onnx/repair/traced_call.h"

#include "engine/base/parse_number.h"
#include "engine/onnx/file/newer_fields.h"

namespace gradloom {

namespace {

constexpr const char* kTraced = "pkg.torch.onnx.fx_node";

// Parts of "a, [b, c], d" at commas outside of brackets; what comes before the bracket that closes the whole.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && depth-- == 0) break;
    if (c == ',' && depth == 0) {
      parts.push_back(std::move(part));
      part.clear();
    } else if (c != ' ' || !part.empty()) {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

std::vector<std::string> values_in(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    const std::size_t end = text.find_first_of(", )]}", at);
    names.push_back(text.substr(at + 1, end == std::string::npos ? end : end - at - 1));
  }
  return names;
}

template <class T>
std::optional<T> parsed(const std::vector<std::string>& arguments, std::size_t i) {
  return i < arguments.size() ? parse_number<T>(arguments[i]) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> TracedCall::integer(std::size_t i) const {
  return parsed<std::int64_t>(arguments, i);
}
std::optional<double> TracedCall::number(std::size_t i) const { return parsed<double>(arguments, i); }

std::optional<TracedCall> traced_call_of(const onnx::NodeProto& node) {
  constexpr std::string_view kTarget = "call_function[target=torch.ops.", kArguments = "](args = (";
  const std::string text = metadata_of(node, kTraced);
  const std::size_t target = text.find(kTarget);
  if (text.empty() || text[0] != '%' || target == std::string::npos) return std::nullopt;
  const std::size_t function = target + kTarget.size(), end = text.find(kArguments, function);
  const std::size_t name_end = text.find_first_of(" :");
  if (end == std::string::npos || name_end > target) return std::nullopt;
  TracedCall call{text.substr(1, name_end - 1), text.substr(function, end - function), {}, {}};
  call.arguments = parts_of(std::string_view(text).substr(end + kArguments.size()));
  for (const std::string& argument : call.arguments)
    for (std::string& name : values_in(argument)) call.values.push_back(std::move(name));
  return call;
}

}  // namespace gradloom
