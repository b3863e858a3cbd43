// Compiled programs on disk: one file per source, architecture and compiler. Plain C++.
#pragma once

#include <string>

namespace gradloom::kernels::gpu {

// Name of the file for this code.
std::string cache_name(const std::string& source, const std::string& architecture,
                       const std::string& compiler);
// Code that was written whole; "" when there is none or it is damaged.
std::string read_cache(const std::string& folder, const std::string& name);
// Makes the last folder of the path when it is missing. Failure leaves no file:
// the program compiles again next time.
void write_cache(const std::string& folder, const std::string& name, const std::string& code);

}  // namespace gradloom::kernels::gpu
