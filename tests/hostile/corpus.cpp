#include "tests/hostile/corpus.h"

#include <fstream>

namespace gradloom::hostile {

void Place::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(model + "/" + name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto* part : {onnx_cases, odd_cases, excluded_cases, nesting_cases, limit_cases, external_cases,
                     other_cases, trace_cases})
    for (Case& c : part()) all.push_back(std::move(c));
  return all;
}

}  // namespace gradloom::hostile
