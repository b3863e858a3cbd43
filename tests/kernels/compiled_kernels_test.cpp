// What nvcc and clang made of our kernels for Hopper and CDNA 2, in the plugins as they were built: registers, memory that threads keep
// apart (what is spilled lies there), shared memory and how many warps are resident, each within a stated table (compiled_kernels.def); and
// the instructions that attention and products of half types are for. Asked are cuobjdump (registers and memory; nvdisasm beside it for
// instructions) and LLVM's readelf and objdump, where they are installed.
// Sources: CUDA C++ Programming Guide, "Compute Capabilities" (9.0); LLVM, "User Guide for AMDGPU Backend" (code object metadata);
// Clang, "Offload Bundler" (format of bundles).
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/device/gpu/runtime/rtc.h"
#include "kernels/gpu/program_source.h"
#include "tests/folder.h"
#include "tests/kernels/gpu/programs.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

// ---- the table --------------------------------------------------------------------------------------------------------------------

struct Resources {
  int registers, scalars, scratch, shared, warps;  // warps: resident, of an SM or a SIMD
};
// Of a kernel's instances whose template arguments hold `with`; the first row that fits is theirs.
struct StatedRow {
  const char *kernel, *with;
  Resources cuda, hip;
};
constexpr StatedRow kStated[] = {
#define KERNEL(name, with, registers, stack, shared, warps, vector, scalar, scratch, lds, waves) \
  {#name, with, {registers, 0, stack, shared, warps}, {vector, scalar, scratch, lds, waves}},
#include "tests/kernels/compiled_kernels.def"
};

struct CompiledKernel {
  std::string name, arguments;  // "flash_kernel", "<f16, 64, 64>"
  Resources found;
};

const StatedRow* row_of(const CompiledKernel& kernel) {
  for (const StatedRow& row : kStated)
    if (kernel.name == row.kernel && kernel.arguments.find(row.with) != std::string::npos) return &row;
  return nullptr;
}

// A kernel of a mangled name, without what surrounds its own name and arguments.
CompiledKernel kernel_of(const std::string& mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = text != nullptr ? text : mangled;
  std::free(text);
  for (const char* around :
       {"(anonymous namespace)::", "gradloom::kernels::gpu::", "gradloom::kernels::", "void "})
    for (std::size_t at; (at = name.find(around)) != std::string::npos;) name.erase(at, std::strlen(around));
  const std::size_t end = name.find_first_of("<("), parameters = name.rfind(">(");
  CompiledKernel kernel{name.substr(0, end), "", {}};
  if (end < name.size() && name[end] == '<' && parameters != std::string::npos)
    kernel.arguments = name.substr(end, parameters + 1 - end);
  return kernel;
}

std::string text_of(const Resources& r) {
  std::string text;
  for (const int number : {r.registers, r.scalars, r.scratch, r.shared, r.warps})
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

void expect_within(const CompiledKernel& kernel, const Resources& stated) {
  const Resources& found = kernel.found;
  EXPECT_TRUE(found.registers <= stated.registers && found.scalars <= stated.scalars &&
              found.scratch <= stated.scratch && found.shared <= stated.shared && found.warps >= stated.warps)
      << kernel.name << kernel.arguments << ": " << text_of(found) << "; stated: " << text_of(stated);
}

// No kernel needs more than is stated, and each has a row.
void expect_within(const std::vector<CompiledKernel>& kernels, Resources StatedRow::*side) {
  std::set<const StatedRow*> met;
  std::map<std::string, Resources> missing;
  for (const CompiledKernel& kernel : kernels) {
    const Resources& found = kernel.found;
    const StatedRow* const row = row_of(kernel);
    if (row == nullptr) {
      auto& most = missing.try_emplace(kernel.name, found).first->second;
      most = {std::max(most.registers, found.registers), std::max(most.scalars, found.scalars),
              std::max(most.scratch, found.scratch), std::max(most.shared, found.shared),
              std::min(most.warps, found.warps)};
      continue;
    }
    met.insert(row);
    expect_within(kernel, row->*side);
  }
  for (const auto& [name, most] : missing) ADD_FAILURE() << name << " has no row: " << text_of(most);
  for (const StatedRow& row : kStated)
    EXPECT_TRUE(met.count(&row) == 1) << row.kernel << " " << row.with << " is no kernel any more";
}

// ---- tools ------------------------------------------------------------------------------------------------------------------------

// What a command writes; "" where it fails.
std::string output_of(const std::string& command) {
  FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char part[65536];
  while (const std::size_t bytes = fread(part, 1, sizeof part, pipe)) text.append(part, bytes);
  return pclose(pipe) == 0 ? text : "";
}

// The path of a tool, from PATH or where the vendors' and Debian's packages put it; "" none.
std::string tool(const std::string& name) {
  std::string found = output_of(
      "PATH=\"$PATH:/usr/local/cuda/bin:/opt/rocm/llvm/bin:/usr/lib/llvm-15/bin\" command -v " + name);
  while (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

int number_after(const std::string& line, const std::string& word) {
  const std::size_t at = line.find(word);
  return at == std::string::npos ? -1 : std::atoi(line.c_str() + at + word.size());
}

// ---- CUDA -------------------------------------------------------------------------------------------------------------------------

// Warps of an SM whose registers there are: 65,536, given to a warp 256 at a time.
int resident_warps(int registers) { return std::min(64, 65536 / ((registers * 32 + 255) / 256 * 256)); }

// Those of code for sm_90 in a report of cuobjdump, by mangled name. hopper: the report begins with such code.
std::map<std::string, CompiledKernel> hopper_kernels(const std::string& report, bool hopper = false) {
  std::map<std::string, CompiledKernel> kernels;
  std::istringstream lines(report);
  std::string function;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("arch = ", 0) == 0) hopper = line.rfind("arch = sm_90", 0) == 0;
    if (const std::size_t at = line.find("Function "); at != std::string::npos)
      function = line.substr(at + 9, line.rfind(':') - at - 9);
    const int registers = number_after(line, "REG:");
    if (!hopper || registers < 0) continue;
    CompiledKernel kernel = kernel_of(function);
    kernel.found = {registers, 0, number_after(line, "STACK:") + number_after(line, "LOCAL:"),
                    number_after(line, "SHARED:"), resident_warps(registers)};
    kernels.emplace(function, kernel);
  }
  return kernels;
}

class CompiledForCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    cuobjdump_ = tool("cuobjdump");
    if (cuobjdump_.empty()) GTEST_SKIP() << "no cuobjdump";
    if (!std::filesystem::exists(GRADLOOM_CUDA_PLUGIN)) GTEST_SKIP() << "no plugin for CUDA";
    kernels_ = hopper_kernels(
        output_of("\"" + cuobjdump_ + "\" --dump-resource-usage \"" GRADLOOM_CUDA_PLUGIN "\""));
    if (kernels_.empty()) GTEST_SKIP() << "the plugin has no code for sm_90";
  }
  std::string cuobjdump_;
  std::map<std::string, CompiledKernel> kernels_;
};

TEST_F(CompiledForCuda, EveryKernelIsWithinTheTable) {
  std::vector<CompiledKernel> all;
  for (const auto& [mangled, kernel] : kernels_) all.push_back(kernel);
  EXPECT_GT(all.size(), 500u);
  expect_within(all, &StatedRow::cuda);
}

TEST_F(CompiledForCuda, AttentionAndProductsUseTensorCoresAndWideLoads) {
  std::string functions;
  for (const auto& [mangled, kernel] : kernels_)
    if (kernel.name.rfind("flash_", 0) == 0 || kernel.name == "half_product_kernel")
      functions += (functions.empty() ? "" : ",") + mangled;
  ASSERT_NE(functions, "");
  std::istringstream lines(
      output_of("\"" + cuobjdump_ + "\" -sass -fun " + functions + " \"" GRADLOOM_CUDA_PLUGIN "\""));
  std::map<std::string, std::set<std::string>> of;
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find("Function : "); at != std::string::npos)
      current = line.substr(at + 11);
    for (const char* word : {"HMMA.16816.F32", "LDSM.16.M", "LDGSTS.E.BYPASS.128", "STG.E.128"})
      if (line.find(word) != std::string::npos) of[current].insert(word);
  }
  if (of.empty() && tool("nvdisasm").empty()) GTEST_SKIP() << "no nvdisasm";
  for (const auto& [mangled, words] : of) {
    const bool stores_rows = kernels_.count(mangled) != 0 && kernels_[mangled].name != "half_product_kernel";
    EXPECT_GE(words.size(), stores_rows ? 4u : 3u) << mangled;
  }
  // Attention: three kernels, three sizes of heads, two types; products: four forms of two types.
  EXPECT_EQ(of.size(), 26u);
}

// What ptxas says of the kernels of a source that nvcc compiles.
std::vector<CompiledKernel> kernels_of_source(const std::string& nvcc, const std::string& name,
                                              const std::string& folder) {
  const std::string root = GRADLOOM_SOURCE_DIR;
  std::istringstream lines(output_of("(\"" + nvcc + "\" -std=c++20 -O3 -arch=sm_90a -cubin -Xptxas=-v -I\"" +
                                     root + "\" \"" + root + "/kernels/gpu/" + name + ".cu\" -o \"" + folder +
                                     "/" + name + ".cubin\" 2>&1)"));
  std::vector<CompiledKernel> kernels;
  int stack = 0;
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find("entry function '"); at != std::string::npos)
      kernels.push_back(kernel_of(line.substr(at + 16, line.find('\'', at + 16) - at - 16)));
    if (line.find(" bytes stack frame") != std::string::npos) stack = std::atoi(line.c_str());
    const int registers = number_after(line, "Used ");
    if (registers < 0 || kernels.empty()) continue;
    kernels.back().found = {registers, 0, stack, 0, resident_warps(registers)};
  }
  return kernels;
}

// Compiled once more where nothing reads the plugin: attention's heads of 64 and 128 columns must not spill.
TEST(CompiledByNvcc, AttentionIsWithinTheTable) {
  const std::string nvcc = tool("nvcc");
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc";
  if (!tool("cuobjdump").empty()) GTEST_SKIP() << "the plugin is read by cuobjdump";
  const TemporaryFolder folder;
  auto forward = std::async(std::launch::async, kernels_of_source, nvcc, "attention", folder.path());
  std::vector<CompiledKernel> all = kernels_of_source(nvcc, "attention_grad", folder.path());
  for (const CompiledKernel& kernel : forward.get()) all.push_back(kernel);
  std::size_t instances = 0;
  for (const CompiledKernel& kernel : all) {
    const StatedRow* const row = row_of(kernel);
    ASSERT_NE(row, nullptr) << kernel.name << kernel.arguments;
    expect_within(kernel, row->cuda);
    instances += kernel.name.rfind("flash_", 0) == 0 && kernel.found.registers > 0;
  }
  EXPECT_EQ(instances, 18u);  // three kernels, three sizes of heads, two types
}

// Rows of all lengths, of which threads keep up to 64 registers from one walk to the next.
TEST(CompiledByNvrtc, RowsWithReductionsSpillNothing) {
  using namespace kernels;
  const std::string cuobjdump = tool("cuobjdump");
  if (cuobjdump.empty()) GTEST_SKIP() << "no cuobjdump";
  if (gpu::nvrtc_version().empty()) GTEST_SKIP() << "no NVRTC";
  std::string source = gpu::generated_prelude();
  std::map<std::string, std::string> names;
  const auto add = [&](const EwProgram& program, const std::string& name) {
    const gpu::GeneratedKernel kernel = gpu::generate(program);
    if (names.emplace(kernel.entry, name).second) source += kernel.source;
  };
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    for (const std::int64_t columns : {64, 768, 1001, 1600, 8191, 8192})
      add(test::norm_program(type, 512, columns),
          "norm of " + std::to_string(columns) + " of type " + std::to_string(int(type)));
  for (const std::int64_t columns : {11, 64, 640}) add(test::softmax_program(512, columns), "softmax");
  const gpu::RtcOutput output = gpu::nvrtc_compile(source, "sm_90");
  ASSERT_EQ(output.error, "");
  const TemporaryFolder folder;
  const std::string path = folder / "rows.cubin";
  std::ofstream(path, std::ios::binary) << output.code;
  const auto kernels =
      hopper_kernels(output_of("\"" + cuobjdump + "\" --dump-resource-usage \"" + path + "\""), true);
  EXPECT_EQ(kernels.size(), names.size());
  for (const auto& [entry, kernel] : kernels) {
    EXPECT_EQ(kernel.found.scratch, 0) << names[entry];
    EXPECT_GE(kernel.found.warps, 16) << names[entry] << ": " << kernel.found.registers << " registers";
  }
}

// ---- HIP --------------------------------------------------------------------------------------------------------------------------

// Code objects for `processor` in a file linked of bundles: magic, count, then of each {offset, size, length of the name} and name.
std::vector<std::string> code_objects(const std::string& path, const std::string& processor) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}}, magic = "__CLANG_OFFLOAD_BUNDLE__";
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    if (at + 8 <= all.size()) std::memcpy(&value, all.data() + at, 8);
    return value;
  };
  std::vector<std::string> found;
  for (std::size_t at = all.find(magic); at != std::string::npos; at = all.find(magic, at + magic.size())) {
    std::size_t next = at + magic.size() + 8;
    for (std::uint64_t left = std::min<std::uint64_t>(number(next - 8), 64); left > 0; --left) {
      const std::uint64_t offset = number(next), bytes = number(next + 8), length = number(next + 16);
      if (length > 256) break;
      const std::string name = all.substr(next + 24, length);
      next += 24 + length;
      if (name.find(processor) != std::string::npos) found.push_back(all.substr(at + offset, bytes));
    }
  }
  return found;
}

// Waves of a SIMD of CDNA 2 that there are registers (512, given 8 at a time) and LDS (64 KiB of a CU, of four SIMDs) for.
int resident_waves(int registers, int lds, int threads) {
  const int waves = std::min(8, 512 / std::max(8, (registers + 7) / 8 * 8)), of_block = (threads + 63) / 64;
  if (lds == 0) return waves;
  return std::min(waves, std::max(1, 65536 / lds * of_block / 4));
}

// Those in the notes of a code object.
std::vector<CompiledKernel> cdna_kernels(const std::string& notes) {
  std::vector<CompiledKernel> kernels;
  std::istringstream lines(notes);
  std::map<std::string, std::string> fields;
  const auto field = [&](const char* name) { return std::atoi(fields[name].c_str()); };
  const auto finish = [&] {
    if (fields.count("name") == 0) return fields.clear();
    CompiledKernel kernel = kernel_of(fields["name"]);
    const int registers = field("vgpr_count"), lds = field("group_segment_fixed_size");
    kernel.found = {registers, field("sgpr_count"), field("private_segment_fixed_size"), lds,
                    resident_waves(registers, lds, field("max_flat_workgroup_size"))};
    kernels.push_back(kernel);
    fields.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  - .", 0) == 0 || line.rfind("amdhsa.target", 0) == 0) finish();
    const std::size_t dot = line.find('.'), colon = line.find(':', dot);
    if (dot != 4 || colon == std::string::npos) continue;
    const std::size_t value = line.find_first_not_of(' ', colon + 1);
    if (value != std::string::npos) fields[line.substr(5, colon - 5)] = line.substr(value);
  }
  finish();
  return kernels;
}

class CompiledForHip : public ::testing::Test {
 protected:
  void SetUp() override {
    readelf_ = tool("llvm-readelf");
    objdump_ = tool("llvm-objdump");
    if (readelf_.empty() || objdump_.empty()) GTEST_SKIP() << "no llvm-readelf, llvm-objdump";
    if (!std::filesystem::exists(GRADLOOM_HIP_PLUGIN)) GTEST_SKIP() << "no plugin for HIP";
    for (const std::string& code : code_objects(GRADLOOM_HIP_PLUGIN, "gfx90a")) {
      const std::string path = folder_ / (std::to_string(files_.size()) + ".co");
      std::ofstream(path, std::ios::binary) << code;
      files_.push_back(path);
      const bool attends = code.find("flash_") != std::string::npos,
                 multiplies = code.find("half_product_kernel") != std::string::npos;
      if (attends || multiplies) matrix_files_.push_back(path);
    }
    if (files_.empty()) GTEST_SKIP() << "the plugin has no code for gfx90a";
  }
  const TemporaryFolder folder_;
  std::string readelf_, objdump_;
  std::vector<std::string> files_, matrix_files_;  // matrix_files_: of attention and products
};

TEST_F(CompiledForHip, EveryKernelIsWithinTheTable) {
  std::vector<CompiledKernel> all;
  for (const std::string& file : files_)
    for (const CompiledKernel& kernel : cdna_kernels(output_of("\"" + readelf_ + "\" --notes " + file)))
      all.push_back(kernel);
  EXPECT_GT(all.size(), 500u);
  expect_within(all, &StatedRow::hip);
}

TEST_F(CompiledForHip, AttentionAndProductsUseMatrixCoresAndWideLoads) {
  std::map<std::string, std::set<std::string>> of;
  for (const std::string& file : matrix_files_) {
    std::istringstream lines(output_of("\"" + objdump_ + "\" -d --no-show-raw-insn " + file));
    std::string current;
    for (std::string line; std::getline(lines, line);) {
      if (const std::size_t at = line.find(" <_Z"); at != std::string::npos && line.back() == ':')
        current = line.substr(at + 2, line.size() - at - 4);
      if (current.find("flash_") == std::string::npos &&
          current.find("half_product_kernel") == std::string::npos)
        continue;
      for (const char* word : {"v_mfma_f32_16x16x16", "_load_dwordx4", "ds_write_b128", "_store_dwordx4"})
        if (line.find(word) != std::string::npos) of[current].insert(word);
    }
  }
  for (const auto& [mangled, words] : of) {
    const bool stores_rows = mangled.find("flash_") != std::string::npos;
    EXPECT_GE(words.size(), stores_rows ? 4u : 3u) << mangled;
  }
  EXPECT_EQ(of.size(), 26u);
}

}  // namespace
}  // namespace gradloom
