// Compilers for generated source (program_source.h) at run time: NVRTC and hipRTC, found when first used. Plain C++.
#pragma once

#include <string>

namespace gradloom::kernels::gpu {

struct RtcOutput {
  std::string code;   // cubin or PTX (zero-terminated); HIP code object. Empty: failed
  std::string error;  // no compiler found, or its log
};

// architecture: "sm_90". A device newer than the compiler gets PTX of the newest architecture known.
RtcOutput nvrtc_compile(const std::string& source, const std::string& architecture);
// architecture: "gfx90a", with features as the device reports them ("gfx90a:sramecc+:xnack-").
RtcOutput hiprtc_compile(const std::string& source, const std::string& architecture);

// "nvrtc 13.0", "hiprtc 5.2"; "" when there is none.
std::string nvrtc_version();
std::string hiprtc_version();

}  // namespace gradloom::kernels::gpu
