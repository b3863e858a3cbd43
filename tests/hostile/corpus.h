// Files that strangers could send, made here, and what the program must answer to each: a table of cases, one
// row of threats after the other (O1 to O17 for ONNX files, D for data, P for parameters, R for recipes and sessions, T for traces).
// hostile_test.cpp runs the program on them, write_corpus.cpp writes them into a folder (seeds of the
// fuzzers, and for looking at them).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gradloom::hostile {

// Where a case puts its files. The program runs in `model`; nothing in `outside` may
// be read, made or changed.
struct Place {
  std::string model, outside;
  void write(const std::string& name, const std::string& bytes) const;  // into `model`
};

// The text of outside/secret.bin. No output may hold it.
constexpr const char* kCanary = "canary-7f3a91";

struct Command {
  std::vector<std::string> args;  // of gradloom
  int code;                       // its exit code
  std::string says;               // in the error line or, for code 0, in what it prints
};

struct Case {
  std::string row;   // "O7"
  std::string name;  // "symbolic link"
  std::function<void(const Place&)> make;
  std::vector<Command> runs;
  bool may_open_outside = false;  // a hard link is opened to be told apart; its bytes are never read
};

std::vector<Case> onnx_cases();      // onnx_cases.cpp: O1 to O6
std::vector<Case> odd_cases();       // odd_cases.cpp: O12 to O14, O16, O17
std::vector<Case> excluded_cases();  // excluded_cases.cpp: O13, values
std::vector<Case> nesting_cases();   // nesting_cases.cpp: O9
std::vector<Case> limit_cases();     // limit_cases.cpp: O10, O11
std::vector<Case> external_cases();  // external_cases.cpp: O7, O8, O15
std::vector<Case> other_cases();     // other_cases.cpp: data, parameters, recipes, sessions
std::vector<Case> trace_cases();     // trace_cases.cpp: traces of other profilers
std::vector<Case> all_cases();

}  // namespace gradloom::hostile
