// What a vendor's library did with a kernel that was its to compute. Plain C++.
#pragma once

#include <string>

namespace gradloom::kernels::gpu {

struct Answer {
  bool taken = false;
  bool failed = false;  // it would have been its work: the library is missing, or a call of it failed
  std::string text;     // the algorithm, or why it was not taken
};

inline Answer taken_by(std::string algorithm) { return {true, false, std::move(algorithm)}; }
// It is not for the library.
inline Answer refused(std::string why) { return {false, false, std::move(why)}; }
inline Answer failed(std::string why) { return {false, true, std::move(why)}; }

}  // namespace gradloom::kernels::gpu
