// The oneDNN engine, prepared calls and the scope of the thread count.
#include "kernels/prepared/dnnl.h"

#include <omp.h>

#include <cstring>

#include "kernels/prepared/bf16.h"

namespace gradloom::kernels::prepared {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream own(engine());
  return own;
}

Call::Call(const Call& other) : primitive_(other.primitive_) {
  for (std::size_t i = 0; i < other.arguments_.size(); ++i)
    add(other.arguments_[i].arg, other.memories_[i].get_desc());
}

Call& Call::operator=(const Call& other) {
  if (this != &other) *this = Call(other);
  return *this;
}

void Call::add(int slot, const dnnl::memory::desc& desc) {
  memories_.push_back(dnnl::memory(desc, engine(), DNNL_MEMORY_NONE));
  arguments_.push_back({slot, memories_.back().get()});
}

// oneDNN's C functions: the C++ wrapper of execute builds its list of arguments anew each time.
void Call::run(std::initializer_list<const void*> addresses) {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    void* const address = const_cast<void*>(addresses.begin()[i]);
    if (memories_[i].get_data_handle() != address) memories_[i].set_data_handle(address);
  }
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream().get(),
                                                 static_cast<int>(arguments_.size()), arguments_.data()),
                          "could not execute a primitive");
}

Call reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  Call call(dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from, engine(), to)));
  call.add(DNNL_ARG_FROM, from);
  call.add(DNNL_ARG_TO, to);
  return call;
}

// oneDNN cuts its work by the number of threads that it may have, and a part whose thread does not come is
// never computed. OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS=0 let OpenMP bring fewer: here they do not hold.
ThreadScope::ThreadScope(int count) : before_(omp_get_max_threads()) {
  omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
  if (before_ != count) omp_set_num_threads(count);
}

ThreadScope::~ThreadScope() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

bool is_reference(const char* implementation) { return std::strstr(implementation, "ref") != nullptr; }

}  // namespace gradloom::kernels::prepared

bool gradloom::kernels::has_bf16_products() {
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}
