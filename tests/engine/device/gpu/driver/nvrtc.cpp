// NVRTC for the strict driver: text of kernels/gpu/program_source.h to a shared library of the host, which that driver loads
// (modules.cpp). Programs get a variable beside them that tells how many bytes their argument has, as code for GPUs does.
#include <cstring>
#include <string>

#include "engine/device/gpu/host/compiler.h"

namespace {

struct Program {
  std::string source, code, log;
};

// "GRADLOOM_PROGRAM(ew_1, ew_1_Params) {" of every program, but not the macro's definition.
std::string with_sizes(const std::string& source) {
  const std::string word = "\nGRADLOOM_PROGRAM(";
  std::string text = source;
  for (std::size_t at = source.find(word); at != std::string::npos; at = source.find(word, at + 1)) {
    const std::size_t begin = at + word.size();
    const std::string name = source.substr(begin, source.find(',', begin) - begin);
    text += "\nextern \"C\" __attribute__((visibility(\"default\"))) const unsigned long " + name +
            "_bytes = sizeof(gradloom::kernels::gpu::" + name + "_Params);\n";
  }
  return text;
}

constexpr int kCompilation = 6, kInvalidOption = 5;

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
EXPORTED const char* nvrtcGetErrorString(int status) {
  return status == 0              ? "NVRTC_SUCCESS"
         : status == kCompilation ? "NVRTC_ERROR_COMPILATION"
                                  : "NVRTC_ERROR_INVALID_OPTION";
}
EXPORTED int nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return 0;
}
EXPORTED int nvrtcGetSupportedArchs(int* list) {
  list[0] = 80;
  list[1] = 90;
  return 0;
}
EXPORTED int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                                const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}
EXPORTED int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
EXPORTED int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    if (option == "--gpu-architecture=sm_90" || option == "--std=c++20") continue;
    program->log = "unknown option " + option;
    return kInvalidOption;
  }
  program->code = gradloom::kernels::gpu::host::compile_program(with_sizes(program->source), &program->log);
  return program->code.empty() ? kCompilation : 0;
}
EXPORTED int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
EXPORTED int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return 0;
}
EXPORTED int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  *bytes = program->code.size();
  return 0;
}
EXPORTED int nvrtcGetCUBIN(Program* program, char* code) {
  std::memcpy(code, program->code.data(), program->code.size());
  return 0;
}
