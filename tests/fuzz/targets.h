// What the fuzzers run: bytes from a stranger go the whole way that the program would take them. Whatever
// they are, the engine must end in a value or a typed error: a crash, a sanitizer's report, a hang, memory
// without bound or a broken promise of the engine itself (verify, check_plan) is a find. fuzzer.cpp makes a
// libFuzzer program of each, corpus_test.cpp a test.
#pragma once

#include <span>
#include <string_view>

namespace gradloom::fuzz {

struct Target {
  const char* name;  // "import": also the folder of its kept cases, kept/<name>
  bool model;        // bytes are an ONNX file: mutate.h knows their structure
  void (*run)(std::string_view bytes);
};

// import        an ONNX file, for viewing and for running, to a verified graph
// compile       the same, then loss, autodiff, passes and plan, and one step if it is small
// recipe        the JSON of a recipe, back and forth
// npz           an .npz or .npy file
// safetensors   a .safetensors file, back and forth
// rules         a file of rules, then those and all passes on a small graph
std::span<const Target> targets();
const Target* find_target(std::string_view name);

}  // namespace gradloom::fuzz
