#include "passes/scanner.h"

#include <charconv>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_word(char c) { return starts_word(c) || is_digit(c) || c == '.'; }

}  // namespace

void Scanner::skip_blanks() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    } else if (text_.substr(at_, 2) == "//") {
      const std::size_t end = text_.find('\n', at_);
      at_ = (end == std::string_view::npos ? text_.size() : end) - 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

void Scanner::next() {
  skip_blanks();
  token_ = {Kind::end, "", 0, line_, static_cast<int>(at_ - line_start_) + 1, at_};
  if (at_ >= text_.size()) return;
  const std::size_t start = at_;
  const char c = text_[at_];
  if (starts_word(c)) {
    token_.kind = Kind::word;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
  } else if (is_digit(c)) {
    token_.kind = Kind::number;
    const auto [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), token_.number);
    // A number out of range reads as what it is not: the sign alone is an error where it stands.
    if (code != std::errc()) token_.kind = Kind::sign;
    at_ = static_cast<std::size_t>(end - text_.data());
  } else if (c == '"') {
    token_.kind = Kind::string;
    while (++at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    }
    if (at_ < text_.size() && text_[at_] == '"') {
      token_.text = std::string(text_.substr(start + 1, at_ - start - 1));
      ++at_;
      return;
    }
    token_.kind = Kind::sign;  // an open quote
  } else {
    token_.kind = Kind::sign;
    const std::string_view two = text_.substr(at_, 2);
    const bool is_two = two == "->" || two == "==" || two == "!=" || two == "<=" || two == ">=";
    at_ += is_two ? 2 : 1;
  }
  token_.text = std::string(text_.substr(start, at_ - start));
}

std::string Scanner::between(const Token& from) const {
  const std::string text(text_.substr(from.offset, token_.offset - from.offset));
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

Scanner::Token Scanner::take() {
  Token taken = std::move(token_);
  next();
  return taken;
}

bool Scanner::take_if(std::string_view sign) {
  if (!at(sign)) return false;
  next();
  return true;
}

Status Scanner::expect(std::string_view sign) {
  if (take_if(sign)) return {};
  return error("expected '" + std::string(sign) + "', got " +
               (at_end() ? std::string("the end") : "'" + escaped(token_.text) + "'"));
}

Result<std::string> Scanner::word(const char* what) {
  if (token_.kind == Kind::word) return take().text;
  return error(std::string("expected ") + what + ", got " +
               (at_end() ? std::string("the end") : "'" + escaped(token_.text) + "'"));
}

std::string Scanner::dashed_word() {
  std::string text = token_.text;
  while (at_ < text_.size() && (in_word(text_[at_]) || text_[at_] == '-') && text_.substr(at_, 2) != "->")
    text += text_[at_++];
  next();
  return text;
}

Error Scanner::error_at(const Token& where, const std::string& why) const {
  return {Errc::usage, (source_.empty() ? "" : escaped(source_) + ":") + std::to_string(where.line) + ":" +
                           std::to_string(where.column) + ": " + why};
}

}  // namespace gradloom
