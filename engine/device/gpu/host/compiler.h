// The compiler of generated programs on the host: source text of kernels/gpu/program_source.h to a shared library.
#pragma once

#include <string>

namespace gradloom::kernels::gpu::host {

// The bytes of a shared library, by the compiler of the build (GRADLOOM_HOST_CXX in the environment: another one); "" with its
// words in *error when it fails.
std::string compile_program(const std::string& source, std::string* error);
// That compiler with its options: what its results depend on beside the source.
std::string program_compiler();

}  // namespace gradloom::kernels::gpu::host
