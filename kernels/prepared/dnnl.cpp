// The oneDNN engine, prepared calls, and parts of tensors.
#include "kernels/prepared/dnnl.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "kernels/prepared/bf16.h"
#include "kernels/signals.h"

namespace gradloom::kernels::prepared {
namespace {

// So many elements at least are one part of a reorder.
constexpr std::int64_t kReorderElements = 65536;

std::int64_t elements_of(const dnnl::memory::desc& desc) {
  std::int64_t count = 1;
  for (const std::int64_t size : desc.dims()) count *= size;
  return count;
}

// A dim can be cut at multiples of this.
std::int64_t block_of(const dnnl::memory::desc& desc, int dim) {
  const dnnl_blocking_desc_t& blocking = desc.data.format_desc.blocking;
  std::int64_t block = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i)
    if (blocking.inner_idxs[i] == dim) block *= blocking.inner_blks[i];
  return block;
}

Call reorder_call(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  require_room();
  Call call(dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from, engine(), to)));
  call.add(DNNL_ARG_FROM, from);
  call.add(DNNL_ARG_TO, to);
  return call;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

std::int64_t worthwhile_parts(double flops, double elements) {
  constexpr double kFlops = 2e6, kElements = 65536, kFew = 4, kMost = 64;
  const double parts = std::max(flops / kFlops, elements / kElements);
  return std::int64_t(std::clamp(std::max(parts, std::min(4 * parts, kFew)), 1.0, kMost));
}

void require_room() {
  constexpr std::size_t kRoom = std::size_t{16} << 20;  // more than the code of one primitive takes
  void* const room = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw OutOfMemory();
  munmap(room, kRoom);
}

OneThread::OneThread() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

void Call::add(int slot, const dnnl::memory::desc& desc) {
  for (Arguments& own : threads_) {
    own.memories.push_back(dnnl::memory(desc, engine(), DNNL_MEMORY_NONE));
    own.list.push_back({slot, own.memories.back().get()});
  }
}

// oneDNN's C functions: the C++ wrapper of execute builds its list of arguments anew each time.
void Call::run(std::initializer_list<const void*> addresses) {
  const NoSignals scope;
  Arguments& own = threads_[std::size_t(worker_number())];
  for (std::size_t i = 0; i < own.list.size(); ++i) {
    void* const address = const_cast<void*>(addresses.begin()[i]);
    if (own.memories[i].get_data_handle() != address) own.memories[i].set_data_handle(address);
  }
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), own.stream.get(),
                                                      static_cast<int>(own.list.size()), own.list.data());
  if (status == dnnl_out_of_memory) throw OutOfMemory();
  dnnl::error::wrap_c_api(status, "could not execute a primitive");
}

Slice slice(const dnnl::memory::desc& whole, int dim, std::int64_t begin, std::int64_t count) {
  dnnl::memory::dims dims = whole.dims(), offsets(dims.size(), 0);
  dims[std::size_t(dim)] = count;
  offsets[std::size_t(dim)] = begin;
  Slice part{whole.submemory_desc(dims, offsets), 0};
  part.offset = (part.desc.data.offset0 - whole.data.offset0) *
                std::int64_t(dnnl::memory::data_type_size(whole.data_type()));
  part.desc.data.offset0 = whole.data.offset0;
  return part;
}

Reorder::Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const OneThread scope;
  const dnnl::memory::dims dims = from.dims();
  int dim = 0;
  while (dim + 1 < int(dims.size()) && dims[std::size_t(dim)] == 1) ++dim;
  const std::int64_t size = dims[std::size_t(dim)], row = elements_of(from) / size,
                     least = (kReorderElements + row - 1) / row,
                     block = std::max(block_of(from, dim), block_of(to, dim)),
                     step = (least + block - 1) / block * block;
  for (std::int64_t begin = 0; begin < size; begin += step) {
    const bool last = begin + step >= size;
    const std::int64_t count = last ? size - begin : step;
    const Slice from_part = slice(from, dim, begin, count), to_part = slice(to, dim, begin, count);
    if (begin == 0 && !last) usual_ = reorder_call(from_part.desc, to_part.desc);
    if (last) last_ = reorder_call(from_part.desc, to_part.desc);
    parts_.push_back({from_part.offset, to_part.offset, last});
  }
}

void Reorder::run(const void* from, void* to) {
  const auto run_part = [&](std::int64_t number) {
    const OneThread scope;
    const Part& part = parts_[std::size_t(number)];
    (part.last ? last_ : usual_)
        .run({static_cast<const char*>(from) + part.from, static_cast<char*>(to) + part.to});
  };
  for_parts(std::int64_t(parts_.size()), run_part, last_.team());
}

bool has_avx512() {
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

bool is_reference(const char* implementation) { return std::strstr(implementation, "ref") != nullptr; }

}  // namespace gradloom::kernels::prepared

bool gradloom::kernels::has_bf16_products() {
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

bool gradloom::kernels::pair_products() {
  constexpr int kTiles = static_cast<int>(dnnl::cpu_isa::avx512_core_amx);
  const bool tiles = (static_cast<int>(dnnl::get_effective_cpu_isa()) & kTiles) == kTiles;
  return has_bf16_products() && !tiles && std::strcmp(cpu().isa, "v4") == 0;
}
