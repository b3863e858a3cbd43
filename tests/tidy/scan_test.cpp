#include "tests/tidy/scan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidy {
namespace {

std::vector<std::string> heads(std::string_view text) {
  std::vector<std::string> list;
  for (const Function& f : scan(text).functions) list.push_back(f.head + " " + std::to_string(f.length));
  return list;
}
using Strings = std::vector<std::string>;

TEST(Scan, FindsFunctionsWithTheirLengths) {
  EXPECT_EQ(heads("int f() { return 1; }\n"
                  "namespace a {\n"
                  "// A comment is not part of it.\n"
                  "template <class T, class = std::enable_if_t<(sizeof(T) > 2)>>\n"
                  "int g(int x,\n"
                  "      int y) {\n"
                  "  return x;\n"
                  "}\n"
                  "}\n"),
            (Strings{"int f() 1",
                     "template <class T, class = std::enable_if_t<(sizeof(T) > 2)>> int g(int x,"
                     "       int y) 5"}));
}

TEST(Scan, WhatIsInsideAFunctionIsPartOfIt) {
  EXPECT_EQ(heads("void f() {\n"
                  "  struct Local { int get() { return 1; } };\n"
                  "  const auto g = [](int x) {\n"
                  "    if (x) { return; }\n"
                  "  };\n"
                  "}\n"),
            Strings{"void f() 6"});
}

TEST(Scan, MembersAndConstructors) {
  EXPECT_EQ(heads("class A final : public B {\n"
                  " public:\n"
                  "  A(int x) : B{x}, y_(x) {}\n"
                  "  A() noexcept : B{1}, z_{2} {\n"
                  "  }\n"
                  "  auto h() const -> std::vector<int> { return {}; }\n"
                  "  int y_ = 0, z_{1};\n"
                  "};\n"),
            (Strings{"A(int x) : B{}, y_(x) 1", "A() noexcept : B{}, z_{} 2",
                     "auto h() const -> std::vector<int> 1"}));
}

TEST(Scan, BracesInTextDoNotCount) {
  EXPECT_EQ(heads("const char* a = \"{ f() {\";\n"
                  "const char* b = R\"x({ \")\" g() {)x\";\n"
                  "constexpr int c[] = {1, '{', 1'000};\n"
                  "#define BODY(x) \\\n"
                  "  void x() {\n"
                  "/* { */ void f() { }  // }\n"
                  "const std::vector<int> d = make({1, 2});\n"
                  "void g() {\n"
                  "}\n"),
            (Strings{"void f() 1", "void g() 2"}));
}

TEST(Scan, TypesHaveTheirNamespaces) {
  EXPECT_EQ(scan("namespace a::b {\n"
                 "class Forward;\n"
                 "struct alignas(16) Wide { struct Inner {}; };\n"
                 "enum class Kind : int { one };\n"
                 "template <class T> class Box final {};\n"
                 "template <> class Box<int> {};\n"
                 "struct Wide::Later {};\n"
                 "namespace { struct Unnamed {}; }\n"
                 "void f() { struct Local {}; }\n"
                 "}\n"
                 "extern \"C\" {\n"
                 "struct Global { int x; };\n"
                 "}\n")
                .types,
            (Strings{"a::b::Wide", "a::b::Kind", "a::b::Box", "Global"}));
}

}  // namespace
}  // namespace tidy
