// A libFuzzer program of one target (GRADLOOM_FUZZ_TARGET): `./dev fuzz` builds and runs them.
#include <cstring>
#include <string>

#include "kernels/cpu.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace {

const gradloom::fuzz::Target& target = *gradloom::fuzz::find_target(GRADLOOM_FUZZ_TARGET);

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// A request that the machine cannot meet is an error that we report, not a bug. libomp's and protobuf's
// globals are not leaks of ours.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:detect_leaks=0"; }

// One process runs per core, and a thread that only runs sometimes makes its coverage waver.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  gradloom::kernels::set_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (!target.model || seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string mutated = gradloom::fuzz::mutate_model({reinterpret_cast<const char*>(data), size}, seed);
  if (mutated.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, mutated.data(), mutated.size());
  return mutated.size();
}
