// The oneDNN engine and the scope of its thread count.
#include "kernels/prepared/dnnl.h"

#include <omp.h>

#include <cstring>

namespace gradloom::kernels::prepared {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream own(engine());
  return own;
}

ThreadScope::ThreadScope(int count) : before_(omp_get_max_threads()) {
  if (before_ != count) omp_set_num_threads(count);
}

ThreadScope::~ThreadScope() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

bool is_reference(const char* implementation) { return std::strstr(implementation, "ref") != nullptr; }

}  // namespace gradloom::kernels::prepared
