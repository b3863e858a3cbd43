// Facts about a kernel from the symbol table of the program or library that holds it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gradloom::kernels::gpu::host {

struct SharedVariable {
  unsigned char* at;
  std::size_t bytes;
};

struct KernelSymbol {
  std::string name;  // "softmax_rows<float>"; an address when the table was stripped
  // __shared__ variables of the kernel itself, not of the functions it calls.
  std::vector<SharedVariable> shared;
  std::size_t shared_bytes = 0;
};

// The variable that holds this byte and the byte's number in it: "shared parts+8"; an address when it has no symbol.
std::string shared_name(const void* byte);
// Function and file of an instruction, with its address there, which addr2line takes: "softmax_rows<float>, program 0x1a2b".
std::string code_name(const void* code);

// Kept until forget_kernel_symbols(), which must be called when a library is unloaded.
KernelSymbol kernel_symbol(const void* function);
void forget_kernel_symbols();

}  // namespace gradloom::kernels::gpu::host
