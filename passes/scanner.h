// Words, numbers and signs of a text that people write: patterns and rule files. Blanks, line ends and comments
// (`//` to the end of the line) only separate them. Errors are Errc::usage and name line and column.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace gradloom {

class Scanner {
 public:
  enum class Kind : std::uint8_t { word, number, string, sign, end };
  struct Token {
    Kind kind = Kind::end;
    std::string text;  // of a string: without its quotes
    double number = 0;
    int line = 1, column = 1;
    std::size_t offset = 0;  // in the text
  };

  // `source`: what errors call the text; empty: nothing. REQUIRES that the text outlives the scanner.
  explicit Scanner(std::string_view text, std::string source = "") : text_(text), source_(std::move(source)) {
    next();
  }
  const Token& token() const { return token_; }  // the next one, not yet taken
  bool at_end() const { return token_.kind == Kind::end; }
  bool at(std::string_view sign) const { return token_.kind == Kind::sign && token_.text == sign; }
  // The text from there to the next token, without blanks at its end
  std::string between(const Token& from) const;
  Token take();
  bool take_if(std::string_view sign);
  Status expect(std::string_view sign);
  Result<std::string> word(const char* what);  // "expected <what>, got ..."
  // A word with '-' in it, as names of rules are. REQUIRES that a word is next.
  std::string dashed_word();
  Error error(const std::string& why) const { return error_at(token_, why); }
  Error error_at(const Token& where, const std::string& why) const;

 private:
  void next();
  void skip_blanks();
  std::string_view text_;
  std::string source_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  Token token_;
};

}  // namespace gradloom
