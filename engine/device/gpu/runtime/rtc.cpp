#include "engine/device/gpu/runtime/rtc.h"

#include <cstdlib>
#include <vector>

#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

// The two interfaces are the same but for names: nvrtc.h, hiprtc.h. Results are 0 for success.
struct Program_;
using Program = Program_*;

struct Rtc {
  Library library;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* header_text,
                const char* const* header_names);
  int (*compile)(Program, int count, const char* const* options);
  int (*destroy)(Program*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*code_size)(Program, std::size_t*);
  int (*code)(Program, char*);
  int (*version)(int* major, int* minor);
  const char* (*error_text)(int);
  bool ready = false;

  Rtc(std::initializer_list<const char*> names, const std::string& prefix, const char* code_name)
      : library(names) {
    const auto bind = [&](auto& function, const std::string& name) {
      return library.bind(function, (prefix + name).c_str());
    };
    ready = library && bind(create, "CreateProgram") && bind(compile, "CompileProgram") &&
            bind(destroy, "DestroyProgram") && bind(log_size, "GetProgramLogSize") &&
            bind(log, "GetProgramLog") && bind(code_size, "Get" + std::string(code_name) + "Size") &&
            bind(code, std::string("Get") + code_name) && bind(version, "Version") &&
            bind(error_text, "GetErrorString");
  }

  std::string version_text(const char* name) {
    int major = 0, minor = 0;
    if (!ready || version(&major, &minor) != 0) return "";
    return std::string(name) + " " + std::to_string(major) + "." + std::to_string(minor);
  }
};

Rtc& nvrtc() {
  static Rtc rtc({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "nvrtc", "CUBIN");
  return rtc;
}
Rtc& hiprtc() {  // a library of its own since ROCm 6
  static Rtc rtc({"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.7", "libamdhip64.so.6",
                  "libamdhip64.so.5", "libamdhip64.so"},
                 "hiprtc", "Code");
  return rtc;
}

template <class Size, class Get>
std::string text_of(Program program, Size size, Get get) {
  std::size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0) return "";
  std::string text(bytes, '\0');
  return get(program, text.data()) == 0 ? text : "";
}

// `ptx`: takes PTX in place of the binary.
RtcOutput compile(Rtc& rtc, const std::string& source, const std::vector<std::string>& options, bool ptx) {
  if (!rtc.ready) return {"", rtc.library.error()};
  Program program = nullptr;
  int status = rtc.create(&program, source.c_str(), "gradloom_programs.cu", 0, nullptr, nullptr);
  if (status != 0) return {"", rtc.error_text(status)};
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  status = rtc.compile(program, int(texts.size()), texts.data());
  RtcOutput output;
  if (status != 0) {
    output.error =
        std::string(rtc.error_text(status)) + ": " + text_of(program, rtc.log_size, rtc.log).c_str();
  } else if (ptx) {
    int (*size)(Program, std::size_t*) = nullptr;
    int (*get)(Program, char*) = nullptr;
    if (rtc.library.bind(size, "nvrtcGetPTXSize") && rtc.library.bind(get, "nvrtcGetPTX"))
      output.code = text_of(program, size, get);
  } else {
    output.code = text_of(program, rtc.code_size, rtc.code);
  }
  if (output.code.empty() && output.error.empty()) output.error = "the compiler gave no code";
  rtc.destroy(&program);
  return output;
}

// The newest architecture that NVRTC knows, 0 when it does not say.
int newest_architecture(Rtc& rtc) {
  int (*count_of)(int*) = nullptr;
  int (*list)(int*) = nullptr;
  int count = 0;
  if (!rtc.library.bind(count_of, "nvrtcGetNumSupportedArchs") ||
      !rtc.library.bind(list, "nvrtcGetSupportedArchs"))
    return 0;
  if (count_of(&count) != 0 || count <= 0) return 0;
  std::vector<int> all(std::size_t(count), 0);
  return list(all.data()) == 0 ? all.back() : 0;
}

}  // namespace

RtcOutput nvrtc_compile(const std::string& source, const std::string& architecture) {
  Rtc& rtc = nvrtc();
  if (!rtc.ready) return {"", rtc.library.error()};
  const int wanted = architecture.size() > 3 ? std::atoi(architecture.c_str() + 3) : 0,
            newest = newest_architecture(rtc);
  const bool ptx = newest > 0 && wanted > newest;
  const std::string target = ptx ? "compute_" + std::to_string(newest) : architecture;
  return compile(rtc, source, {"--gpu-architecture=" + target, "--std=c++20"}, ptx);
}

RtcOutput hiprtc_compile(const std::string& source, const std::string& architecture) {
  return compile(hiprtc(), source, {"--offload-arch=" + architecture, "-std=c++20", "-fwrapv"}, false);
}

std::string nvrtc_version() { return nvrtc().version_text("nvrtc"); }
std::string hiprtc_version() { return hiprtc().version_text("hiprtc"); }

}  // namespace gradloom::kernels::gpu
