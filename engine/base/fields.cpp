#include "engine/base/fields.h"

#include <cmath>
#include <optional>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

class Lister final : public FieldVisitor {
 public:
  std::vector<FieldRow> rows;
  void field(const char* name, bool& value, const FieldInfo& info) override {
    add(name, "bool", value ? "true" : "false", info);
  }
  void field(const char* name, std::int64_t& value, const FieldInfo& info) override {
    add(name, "int", std::to_string(value), info);
  }
  void field(const char* name, double& value, const FieldInfo& info) override {
    add(name, "float", number_text(value), info);
  }
  void field(const char* name, std::string& value, const FieldInfo& info) override {
    add(name, "text", value, info);
  }

 private:
  void add(const char* name, const char* type, std::string value, const FieldInfo& info) {
    FieldRow row{name, type, std::move(value), info.help, info.unit, info.min, info.max, {}};
    for (const char* c : info.choices) row.choices.emplace_back(c);
    rows.push_back(std::move(row));
  }
};

class Setter final : public FieldVisitor {
 public:
  Setter(const std::string& name, const std::string& text) : name_(name), text_(text) {}
  bool found = false;
  std::string problem;

  void field(const char* name, bool& value, const FieldInfo&) override {
    if (!take(name)) return;
    if (text_ == "true" || text_ == "1")
      value = true;
    else if (text_ == "false" || text_ == "0")
      value = false;
    else
      problem = "expects true or false";
  }
  void field(const char* name, std::int64_t& value, const FieldInfo& info) override {
    if (!take(name)) return;
    const std::optional<std::int64_t> parsed = parse_number<std::int64_t>(text_);
    if (!parsed)
      problem = "expects an integer";
    else if (check_range(static_cast<double>(*parsed), info))
      value = *parsed;
  }
  void field(const char* name, double& value, const FieldInfo& info) override {
    if (!take(name)) return;
    const std::optional<double> parsed = parse_number<double>(text_);
    if (!parsed || !std::isfinite(*parsed))
      problem = "expects a number";
    else if (check_range(*parsed, info))
      value = *parsed;
  }
  void field(const char* name, std::string& value, const FieldInfo& info) override {
    if (!take(name)) return;
    bool known = info.choices.empty();
    for (const char* c : info.choices) known = known || text_ == c;
    if (known) {
      value = text_;
      return;
    }
    problem = "expects one of";
    for (const char* c : info.choices) problem += std::string(" ") + c;
  }

 private:
  bool take(const char* name) {
    if (name_ != name) return false;
    found = true;
    return true;
  }
  bool check_range(double v, const FieldInfo& info) {
    if (v >= info.min && v <= info.max) return true;
    problem = "must be between " + number_text(info.min) + " and " + number_text(info.max);
    return false;
  }
  const std::string& name_;
  const std::string& text_;
};

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

}  // namespace

std::vector<FieldRow> list_fields(const Fields& fields) {
  Lister lister;
  fields(lister);
  return std::move(lister.rows);
}

Status set_fields(const Fields& fields, const std::vector<std::pair<std::string, std::string>>& values,
                  const std::string& owner) {
  for (const auto& [name, text] : values) {
    Setter setter(name, text);
    fields(setter);
    if (!setter.found) {
      std::string known;
      for (const FieldRow& row : list_fields(fields)) known += (known.empty() ? "" : ", ") + row.name;
      return Error{Errc::usage, owner + " has no option '" + escaped(name) + "'" +
                                    (known.empty() ? "" : " (known: " + known + ")")};
    }
    if (!setter.problem.empty())
      return Error{Errc::usage, owner + ": option " + name + "=" + escaped(text) + " " + setter.problem};
  }
  return {};
}

std::string print_fields(const Fields& fields) {
  std::string out;
  for (const FieldRow& row : list_fields(fields))
    out += (out.empty() ? "" : ",") + row.name + "=" + row.value;
  return out;
}

std::vector<std::string> split_top_level(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      parts.emplace_back(trimmed(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}') {
      --depth;
    }
  }
  return parts;
}

Result<NamedOptions> parse_named_options(std::string_view text) {
  NamedOptions out;
  text = trimmed(text);
  const std::size_t brace = text.find('{');
  out.name = std::string(trimmed(text.substr(0, brace)));
  if (out.name.empty()) return Error{Errc::usage, "empty name in '" + escaped(text) + "'"};
  if (brace == std::string_view::npos) return out;
  if (text.back() != '}') return Error{Errc::usage, "missing '}' in '" + escaped(text) + "'"};
  const std::string_view body = trimmed(text.substr(brace + 1, text.size() - brace - 2));
  if (body.empty()) return out;
  for (const std::string& part : split_top_level(body)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      return Error{Errc::usage,
                   "expected name=value, got '" + escaped(part) + "' in '" + escaped(text) + "'"};
    out.values.emplace_back(std::string(trimmed(std::string_view(part).substr(0, equals))),
                            std::string(trimmed(std::string_view(part).substr(equals + 1))));
  }
  return out;
}

}  // namespace gradloom
