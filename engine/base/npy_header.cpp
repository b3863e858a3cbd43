// A recursive-descent reader for {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
#include "engine/base/npy_header.h"

#include <cctype>
#include <iterator>

#include "engine/base/text.h"

namespace gradloom {

namespace {

struct Descr {
  DType dtype;
  const char* text;
};
constexpr Descr kDescrs[] = {
    {DType::f32, "<f4"}, {DType::f64, "<f8"},     {DType::i32, "<i4"}, {DType::i64, "<i8"},
    {DType::u8, "|u1"},  {DType::boolean, "|b1"}, {DType::f16, "<f2"}, {DType::i8, "|i1"},
    {DType::i16, "<i2"}, {DType::u16, "<u2"},     {DType::u32, "<u4"}, {DType::u64, "<u8"},
};

constexpr std::size_t kMaxRank = 32;  // NumPy's own limit

Result<DType> dtype_of_descr(const std::string& descr) {
  for (const Descr& known : kDescrs) {
    // One-byte types have no byte order: NumPy writes '|', others '<'.
    if (descr == known.text || (known.text[0] == '|' && descr.size() == 3 &&
                                (descr[0] == '<' || descr[0] == '>') && descr.substr(1) == known.text + 1)) {
      return known.dtype;
    }
  }
  return bad_input("has element type '" + escaped(descr) + "', which is not supported");
}

class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Result<Type> run() {
    std::string descr;
    bool fortran = false, has_descr = false, has_order = false, has_shape = false;
    Type type;
    TRY(expect('{'));
    while (!accept('}')) {
      const std::string key = TRY(quoted());
      TRY(expect(':'));
      bool& seen = key == "descr" ? has_descr : key == "fortran_order" ? has_order : has_shape;
      if (key != "descr" && key != "fortran_order" && key != "shape")
        return bad_input("has the unknown header key '" + escaped(key) + "'");
      if (seen) return damaged();
      seen = true;
      if (key == "descr") descr = TRY(quoted());
      if (key == "fortran_order") fortran = TRY(boolean());
      if (key == "shape") type.shape = TRY(tuple());
      if (!accept(',')) {
        TRY(expect('}'));
        break;
      }
    }
    skip_spaces();
    if (position_ != text_.size() || !has_descr || !has_order || !has_shape) return damaged();
    type.dtype = TRY(dtype_of_descr(descr));
    if (fortran) return bad_input("is in Fortran order, which is not supported");
    return type;
  }

 private:
  Error damaged() const {
    return bad_input("has a damaged header near character " + std::to_string(position_));
  }

  void skip_spaces() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
  }

  bool accept(char c) {
    skip_spaces();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  Status expect(char c) { return accept(c) ? Status{} : Status{damaged()}; }

  Result<std::string> quoted() {
    TRY(expect('\''));
    const std::size_t end = text_.find('\'', position_);
    if (end == std::string_view::npos) return damaged();
    std::string content(text_.substr(position_, end - position_));
    position_ = end + 1;
    return content;
  }

  Result<bool> boolean() {
    skip_spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(position_, word.size()) != word) continue;
      position_ += word.size();
      return value;
    }
    return damaged();
  }

  Result<Shape> tuple() {
    Shape shape;
    TRY(expect('('));
    while (!accept(')')) {
      skip_spaces();
      std::int64_t dim = 0;
      const std::size_t begin = position_;
      for (; position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0;
           ++position_) {
        if (__builtin_mul_overflow(dim, std::int64_t{10}, &dim) ||
            __builtin_add_overflow(dim, text_[position_] - '0', &dim))
          return damaged();
      }
      if (position_ == begin || shape.size() == kMaxRank) return damaged();
      shape.push_back(dim);
      if (!accept(',')) {
        TRY(expect(')'));
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace

Result<Type> parse_npy_header(std::string_view text) { return HeaderParser(text).run(); }

std::string npy_header(const Type& type) {
  std::string dict = "{'descr': '";
  for (const Descr& known : kDescrs) {
    if (known.dtype == type.dtype) dict += known.text;
  }
  dict += "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < type.shape.size(); ++i) dict += (i ? ", " : "") + std::to_string(type.shape[i]);
  dict += type.shape.size() == 1 ? ",), }" : "), }";
  const std::size_t start = 10;
  while ((start + dict.size() + 1) % 64 != 0) dict += ' ';
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace gradloom
