// What nvcc makes of our own attention for Hopper, where it is installed: nothing spilled in the instances that nearly all heads
// run (64 and 128 columns), and, where cuobjdump is too, tensor cores, matrices read by ldmatrix, 16 bytes at a time to
// and from memory.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

// What a command writes; "" where it fails.
std::string output_of(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char part[4096];
  while (const std::size_t bytes = fread(part, 1, sizeof part, pipe)) text.append(part, bytes);
  return pclose(pipe) == 0 ? text : "";
}

// The path of a tool of the toolkit, from PATH or where NVIDIA's packages put it; "" none.
std::string tool(const std::string& name) {
  std::string found = output_of("PATH=\"$PATH:/usr/local/cuda/bin\" command -v " + name);
  while (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

// "flash_grad_keys bf16 64" of a mangled name; "" of other functions.
std::string instance(const std::string& line) {
  static const std::regex form(R"((flash_[a-z]+(_[a-z]+)*)INS[0-9]*_[0-9](b?f16)ELi([0-9]+)E)");
  std::smatch m;
  return std::regex_search(line, m, form) ? m[1].str() + " " + m[3].str() + " " + m[4].str() : "";
}

struct Compiled {
  std::string file, report;  // the cubin; of ptxas
};
Compiled compile(const std::string& nvcc, const std::string& name, const std::string& folder) {
  const std::string root = GRADLOOM_SOURCE_DIR, file = folder + "/" + name + ".cubin";
  return {file, output_of("\"" + nvcc + "\" -std=c++20 -O3 -arch=sm_90a -cubin -Xptxas=-v -I\"" + root +
                          "\" \"" + root + "/kernels/gpu/" + name + ".cu\" -o \"" + file + "\"")};
}

// Lines that tell of spills, by instance.
std::map<std::string, std::string> spills(const std::string& report) {
  std::map<std::string, std::string> of;
  std::istringstream lines(report);
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Compiling entry function") != std::string::npos) current = instance(line);
    if (!current.empty() && line.find("bytes spill stores") != std::string::npos) of[current] = line;
  }
  return of;
}

// How often each wanted instruction stands in each instance.
std::map<std::string, std::map<std::string, int>> instructions(const std::string& sass) {
  std::map<std::string, std::map<std::string, int>> of;
  std::istringstream lines(sass);
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Function :") != std::string::npos) current = instance(line);
    if (current.empty()) continue;
    for (const char* word : {"HMMA.16816.F32", "LDSM.16.M", "LDGSTS.E.BYPASS.128", "STG.E.128"})
      if (line.find(word) != std::string::npos) ++of[current][word];
  }
  return of;
}

TEST(CompiledAttention, UsesTensorCoresAndSpillsNothing) {
  const std::string nvcc = tool("nvcc"), cuobjdump = tool("cuobjdump");
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc";
  const TemporaryFolder folder;
  auto forward = std::async(std::launch::async, compile, nvcc, "attention", folder.path());
  const Compiled gradient = compile(nvcc, "attention_grad", folder.path());
  std::size_t instances = 0;
  for (const Compiled& c : {forward.get(), gradient}) {
    ASSERT_NE(c.report, "") << c.file;
    for (const auto& [name, line] : spills(c.report)) {
      ++instances;
      if (name.substr(name.rfind(' ') + 1) == "256") continue;
      EXPECT_NE(line.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"),
                std::string::npos)
          << name << ":" << line;
    }
    if (cuobjdump.empty()) continue;
    const auto found = instructions(output_of("\"" + cuobjdump + "\" -sass \"" + c.file + "\""));
    EXPECT_FALSE(found.empty()) << c.file;
    for (const auto& [name, counts] : found) EXPECT_EQ(counts.size(), 4u) << name;
  }
  EXPECT_EQ(instances, 18u);  // three kernels, three sizes of heads, two types
}

}  // namespace
}  // namespace gradloom
