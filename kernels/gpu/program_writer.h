// What the writers of generated kernels share: lines of text, the argument struct, and how a thread reads consecutive
// elements (program_source.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gpu/program_layout.h"
#include "kernels/gpu/program_source.h"

namespace gradloom::kernels::gpu {

class ProgramWriter {
 protected:
  explicit ProgramWriter(const EwProgram& program) : layout_(program) {}

  const EwProgram& program() const { return layout_.program; }
  int input_count() const { return int(program().inputs.size()); }
  int first_result() const { return input_count() + int(program().constants.size()); }
  std::string index_type() const { return layout_.wide ? "unsigned long long" : "unsigned"; }
  std::string storage_of(int reg) const;

  void line(const std::string& text) { body_ += indent_ + text + "\n"; }
  void unrolled(const std::string& loop);  // opens a loop, whose lines are indented until close()
  void close();

  std::string input_pointer(std::size_t i) const;
  std::string output_pointer(std::size_t o) const;
  void constants();
  void instruction(int reg, const std::vector<std::string>& uniform);  // its operands' registers exist

  // A condition more: that the memory begins at a boundary of vectors.
  std::string and_boundary(const std::string& before, DType type, int lanes, const char* list,
                           std::size_t i) const;
  // Input i of the `lanes` elements from `first`: aI, or the register itself where it is one number for all of them.
  void load_row(std::size_t i, int lanes);
  void unpack_row(std::size_t i, int lanes);  // of element j
  // The random numbers of these elements, and the name of that of element j.
  std::string draw_row(std::uint64_t key, std::size_t number, int lanes);

  GeneratedKernel finish(const char* prefix, unsigned blocks, unsigned threads) const;

  const ProgramLayout layout_;
  std::string body_, indent_ = "  ";

 private:
  std::string params_members() const;
};

// Of a program with rows (EwProgram::row): one block, or some threads of a warp, per row.
GeneratedKernel generate_rows(const EwProgram& program);

}  // namespace gradloom::kernels::gpu
