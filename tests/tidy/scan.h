// Functions and types of a C++ file, found by its braces: enough for rules of style, without a
// compiler. Comments, strings, raw strings, characters and preprocessor lines are skipped. What
// opens a brace is told from the text since the last ; { or }: a namespace, a type, a function (the
// outermost one with parameters; lambdas are part of it) or something else, as an initializer is.
#pragma once

#include <cctype>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tidy {

struct Function {
  std::string head;                  // "Status run(Rewriter& rw) const"
  std::size_t line = 0, length = 0;  // lines, from the head's first to the closing brace
};

struct Scan {
  std::vector<Function> functions;
  std::vector<std::string>
      types;  // with their namespaces: "gradloom::viz::Window"; none of unnamed namespaces
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Scan run() {
    while (at_ < text_.size()) step();
    return std::move(scan_);
  }

 private:
  enum class Kind { namespace_, unnamed, type, function, other };
  struct Level {
    Kind kind;
    std::string name;  // of a namespace
    std::string head;
    std::size_t line;
  };

  bool next_is(std::string_view word) const { return text_.substr(at_, word.size()) == word; }

  void advance() {
    if (text_[at_++] == '\n') ++line_;
  }
  void advance_past(std::string_view end) {
    while (at_ < text_.size() && !next_is(end)) advance();
    for (std::size_t i = 0; i < end.size() && at_ < text_.size(); ++i) advance();
  }

  void step() {
    const char c = text_[at_];
    if (next_is("//")) return advance_past("\n");
    if (next_is("/*")) return advance_past("*/");
    if (c == '#' && at_line_start()) return skip_directive();
    if (next_is("R\"")) return skip_raw_string();
    if (c == '"' || (c == '\'' && !in_number())) return skip_quoted(c);
    if (c == '{') return open();
    if (c == '}') return close();
    if (c == ';' || is_access_label()) {
      head_.clear();
    } else if (!head_.empty() || !std::isspace(static_cast<unsigned char>(c))) {
      if (head_.empty()) head_line_ = line_;
      head_ += std::isspace(static_cast<unsigned char>(c)) ? ' ' : c;
    }
    advance();
  }

  bool at_line_start() const {
    for (std::size_t i = at_; i > 0; --i) {
      if (text_[i - 1] == '\n') return true;
      if (text_[i - 1] != ' ') return false;
    }
    return true;
  }
  bool in_number() const {  // 1'000
    return at_ > 0 && std::isxdigit(static_cast<unsigned char>(text_[at_ - 1])) != 0 &&
           at_ + 1 < text_.size() && std::isxdigit(static_cast<unsigned char>(text_[at_ + 1])) != 0 &&
           text_.substr(at_ + 2, 1) != "'";
  }
  bool is_access_label() const {
    return text_[at_] == ':' && (head_ == "public" || head_ == "private" || head_ == "protected");
  }

  void skip_directive() {
    while (at_ < text_.size() && (text_[at_] != '\n' || text_[at_ - 1] == '\\')) advance();
  }
  void skip_raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return advance();
    const std::string end = ")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"";
    advance_past(end);
    head_ += '"';
  }
  void skip_quoted(char quote) {
    advance();
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\') advance();
      if (at_ < text_.size()) advance();
    }
    if (at_ < text_.size()) advance();
    if (head_.empty()) head_line_ = line_;
    head_ += quote;
  }

  static std::string trimmed(std::string text) {
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  }
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

  // Without the template parameters before it.
  static std::string_view without_template(std::string_view head) {
    while (head.substr(0, 8) == "template") {
      int depth = 0;
      std::size_t i = head.find('<');
      for (; i < head.size(); ++i) {
        if (head[i] == '<') ++depth;
        if (head[i] == '>' && --depth == 0) break;
      }
      if (i >= head.size()) return {};
      head = head.substr(i + 1);
      while (!head.empty() && head.front() == ' ') head.remove_prefix(1);
    }
    return head;
  }
  static std::string_view first_word(std::string_view head) {
    std::size_t end = 0;
    while (end < head.size() && is_word(head[end])) ++end;
    return head.substr(0, end);
  }

  // A value in braces within something longer: an argument, or what a constructor gives a member
  // before its body.
  static bool opens_value(const std::string& head) {
    int depth = 0;
    std::size_t end = 0;  // of the parameters
    for (std::size_t i = 0; i < head.size(); ++i) {
      if (head[i] == '(') ++depth;
      if (head[i] == ')' && --depth == 0 && end == 0) end = i;
    }
    if (depth > 0) return true;
    if (end == 0 || !(is_word(head.back()) || head.back() == '>')) return false;
    for (std::size_t i = end; i + 1 < head.size(); ++i)
      if (head[i] == ':' && head[i + 1] != ':' && head[i - 1] != ':') return true;
    return false;
  }

  Level level_of(const std::string& head) const {
    const bool inside =
        !levels_.empty() && (levels_.back().kind == Kind::function || levels_.back().kind == Kind::other);
    const std::string_view plain = without_template(head);
    const std::string_view word = first_word(plain);
    Level level{Kind::other, "", head, head_line_};
    if (inside) return level;
    const std::size_t space = plain.find("namespace");
    if (word == "namespace" || (word == "inline" && space != std::string_view::npos)) {
      level.name = trimmed(std::string(plain.substr(space + 9)));
      if (!level.name.empty() && level.name.front() == ' ') level.name.erase(0, 1);
      level.kind = level.name.empty() ? Kind::unnamed : Kind::namespace_;
    } else if (word == "extern" && plain.find('(') == std::string_view::npos) {
      level.kind = Kind::namespace_;
    } else if (word == "class" || word == "struct" || word == "union" || word == "enum") {
      level.kind = Kind::type;
      level.name = type_name(plain);
    } else if (plain.find('(') != std::string_view::npos && plain.back() != '=' && plain.back() != ',') {
      level.kind = Kind::function;
    }
    return level;
  }

  // "class alignas(16) Name final : Base" -> "Name"; empty for what has none, specializations, and
  // members defined outside of their class.
  static std::string type_name(std::string_view head) {
    std::string name;
    for (std::size_t i = 0; i < head.size();) {
      if (head[i] == '(' || head[i] == '[') {
        const char end = head[i] == '(' ? ')' : ']';
        while (i < head.size() && head[i] != end) ++i;
      }
      if (i < head.size() && head[i] == '<') return "";
      if (i < head.size() && head[i] == ':') {
        if (head.substr(i, 2) == "::") return "";
        break;
      }
      if (i >= head.size() || !is_word(head[i])) {
        ++i;
        continue;
      }
      const std::string_view word = first_word(head.substr(i));
      static const std::set<std::string_view> keywords{"class", "struct", "union",
                                                       "enum",  "final",  "alignas"};
      if (!keywords.count(word)) name = word;
      i += word.size();
    }
    return name;
  }

  void open() {
    const std::string head = trimmed(head_);
    if (opens_value(head)) {
      levels_.push_back({Kind::other, "value", head_, head_line_});
      return advance();
    }
    Level level = level_of(head);
    if (level.kind == Kind::type && !level.name.empty()) {
      std::string name;
      bool named = true;
      for (const Level& outer : levels_) {
        named = named && outer.kind != Kind::unnamed && outer.kind != Kind::type;
        if (!outer.name.empty()) name += outer.name + "::";
      }
      if (named) scan_.types.push_back(name + level.name);
    }
    levels_.push_back(std::move(level));
    head_.clear();
    advance();
  }

  void close() {
    advance();
    if (levels_.empty()) return;
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    if (level.kind == Kind::function)
      scan_.functions.push_back({level.head, level.line, line_ - level.line + 1});
    if (level.kind == Kind::other && level.name == "value") {
      head_ = level.head + "{}";
      head_line_ = level.line;
    } else {
      head_.clear();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0, line_ = 1, head_line_ = 1;
  std::string head_;
  std::vector<Level> levels_;
  Scan scan_;
};

inline Scan scan(std::string_view text) { return Scanner(text).run(); }

}  // namespace tidy
