// One declaration of options for every reader of them: command line text, JSON, hash, help, and the window's
// editor are all FieldVisitors. A struct of options declares `void fields(FieldVisitor& v)`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

struct FieldInfo {
  const char* help = "";
  const char* unit = "";
  double min = -1e308, max = 1e308;
  std::vector<const char*> choices;  // for strings; empty = any
};

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void field(const char* name, bool& value, const FieldInfo& info) = 0;
  virtual void field(const char* name, std::int64_t& value, const FieldInfo& info) = 0;
  virtual void field(const char* name, double& value, const FieldInfo& info) = 0;
  virtual void field(const char* name, std::string& value, const FieldInfo& info) = 0;
};

// Something with fields, bound to an object.
using Fields = std::function<void(FieldVisitor&)>;

struct FieldRow {
  std::string name, type, value, help, unit;  // type: bool, int, float, text
  double min, max;
  std::vector<std::string> choices;
};
std::vector<FieldRow> list_fields(const Fields& fields);

// "max_nodes=16,keep=true" onto the fields: unknown names, wrong types and values out
// of range are usage errors.
Status set_fields(const Fields& fields, const std::vector<std::pair<std::string, std::string>>& values,
                  const std::string& owner);
std::string print_fields(const Fields& fields);  // "max_nodes=16,keep=true"; doubles round-trip

// "name{a=1,b=2}" -> name and pairs; "name" alone is fine. Used for passes, optimizers, losses, schedules.
struct NamedOptions {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;
};
Result<NamedOptions> parse_named_options(std::string_view text);
// Splits at top-level commas: "a{x=1,y=2},b" -> {"a{x=1,y=2}", "b"}.
std::vector<std::string> split_top_level(std::string_view text, char separator = ',');

}  // namespace gradloom
