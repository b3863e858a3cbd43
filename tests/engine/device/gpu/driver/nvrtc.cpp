// NVRTC, and hipRTC (GRADLOOM_HIP), for the strict driver: text of kernels/gpu/program_source.h to a shared library of the host, which that driver loads
// (modules.cpp). After it comes a text that tells how many bytes each program's argument has, as code for GPUs does. Compiled
// libraries are kept where the tests of host-gpu keep theirs, so that each program is compiled once. Its calls fail on demand, as those
// of the device's other libraries do (libraries/door.h); a device that is lost is nothing to a compiler.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>

#include "engine/device/gpu/host/compiler.h"
#include "engine/device/gpu/runtime/cache.h"
#include "tests/engine/device/gpu/driver/libraries/door.h"

namespace {

struct Program {
  std::string source, code, log;
};

// "ew_1 24\n" for each "GRADLOOM_PROGRAM(ew_1, ew_1_Params) {"; members of arguments are pointers.
std::string argument_sizes(const std::string& source) {
  const std::string word = "\nGRADLOOM_PROGRAM(";
  std::string text;
  for (std::size_t at = source.find(word); at != std::string::npos; at = source.find(word, at + 1)) {
    const std::size_t begin = at + word.size();
    const std::string name = source.substr(begin, source.find(',', begin) - begin);
    // "  const void* in[2];", a line each.
    std::istringstream members(source.substr(source.find("struct " + name + "_Params {"), at));
    std::size_t count = 0;
    std::string line;
    for (std::getline(members, line); std::getline(members, line) && line != "};";) {
      const std::size_t bracket = line.find('[');
      count += bracket == std::string::npos ? 1 : std::strtoull(line.c_str() + bracket + 1, nullptr, 10);
    }
    text += name + " " + std::to_string(count * sizeof(void*)) + "\n";
  }
  return text;
}

std::string compiled(const std::string& source, std::string* error) {
  using namespace gradloom::kernels::gpu;
  const std::string folder = GRADLOOM_HOST_PROGRAMS,
                    name = cache_name(source, "host", host::program_compiler());
  std::string code = read_cache(folder, name);
  if (!code.empty()) return code;
  code = host::compile_program(source, error);
  if (!code.empty()) write_cache(folder, name, code);
  return code;
}

#if defined(GRADLOOM_HIP)
#define RTC(name) hiprtc##name
#define RTC_CODE(part) hiprtcGetCode##part
constexpr const char* kOptions[] = {"--offload-arch=gfx1030", "-std=c++20", "-fwrapv"};
#else
#define RTC(name) nvrtc##name
#define RTC_CODE(part) nvrtcGetCUBIN##part
constexpr const char* kOptions[] = {"--gpu-architecture=sm_90", "--std=c++20"};
#endif

constexpr int kCompilation = 6, kInvalidOption = 5, kInternal = 11;

// A call begins. Not 0: it fails.
int begun(const char* name) {
  const StrictDoor* const door = gradloom::strict::find_door();
  const int status = door != nullptr ? door->begin(name, 0) : STRICT_OK;
  return status == STRICT_FAILS ? kInternal : status > 0 ? status : 0;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define NAME_OF(function) NAME_TEXT(function)
#define NAME_TEXT(function) #function
#define BEGIN(function) \
  if (const int failed = begun(NAME_OF(function)); failed != 0) return failed

EXPORTED int RTC(Version)(int* major, int* minor) {
  BEGIN(RTC(Version));
  *major = 13;
  *minor = 0;
  return 0;
}
EXPORTED const char* RTC(GetErrorString)(int status) {
  return status == 0              ? "NVRTC_SUCCESS"
         : status == kCompilation ? "NVRTC_ERROR_COMPILATION"
         : status == kInternal    ? "NVRTC_ERROR_INTERNAL_ERROR"
                                  : "NVRTC_ERROR_INVALID_OPTION";
}
EXPORTED int RTC(GetNumSupportedArchs)(int* count) {
  BEGIN(RTC(GetNumSupportedArchs));
  *count = 2;
  return 0;
}
EXPORTED int RTC(GetSupportedArchs)(int* list) {
  BEGIN(RTC(GetSupportedArchs));
  list[0] = 80;
  list[1] = 90;
  return 0;
}
EXPORTED int RTC(CreateProgram)(Program** program, const char* source, const char*, int, const char* const*,
                                const char* const*) {
  BEGIN(RTC(CreateProgram));
  *program = new Program{source, "", ""};
  return 0;
}
EXPORTED int RTC(DestroyProgram)(Program** program) {
  BEGIN(RTC(DestroyProgram));
  delete *program;
  *program = nullptr;
  return 0;
}
EXPORTED int RTC(CompileProgram)(Program* program, int count, const char* const* options) {
  BEGIN(RTC(CompileProgram));
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    if (std::find(std::begin(kOptions), std::end(kOptions), option) != std::end(kOptions)) continue;
    program->log = "unknown option " + option;
    return kInvalidOption;
  }
  program->code = compiled(program->source, &program->log);
  if (!program->code.empty()) program->code += argument_sizes(program->source) + '\0';
  return program->code.empty() ? kCompilation : 0;
}
EXPORTED int RTC(GetProgramLogSize)(Program* program, std::size_t* bytes) {
  BEGIN(RTC(GetProgramLogSize));
  *bytes = program->log.size() + 1;
  return 0;
}
EXPORTED int RTC(GetProgramLog)(Program* program, char* log) {
  BEGIN(RTC(GetProgramLog));
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return 0;
}
EXPORTED int RTC_CODE(Size)(Program* program, std::size_t* bytes) {
  BEGIN(RTC_CODE(Size));
  *bytes = program->code.size();
  return 0;
}
EXPORTED int RTC_CODE()(Program* program, char* code) {
  BEGIN(RTC_CODE());
  std::memcpy(code, program->code.data(), program->code.size());
  return 0;
}
