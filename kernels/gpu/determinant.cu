// Determinants and their gradients: kernels/determinant.h, one thread per matrix.
#include "kernels/gpu/kernels.h"
#include "kernels/determinant.h"  // after it: HIP's words are not the compiler's own

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 64;

GRADLOOM_DEVICE i64 slot_of_thread() { return i64(blockIdx.x) * kThreads + i64(threadIdx.x); }

template <class T>
__global__ void __launch_bounds__(kThreads) determinants(DeterminantArgs args, i64 slots) {
  const i64 slot = slot_of_thread(), size = args.n * args.n;
  if (slot >= slots) return;
  double* const work = static_cast<double*>(args.workspace) + slot * portable::determinant_slot(args.n);
  for (i64 m = slot; m < args.matrices; m += slots) {
    const T* const x = static_cast<const T*>(args.x) + m * size;
    for (i64 i = 0; i < size; ++i) work[i] = double(to_accum(x[i]));
    static_cast<T*>(args.y)[m] = from_accum<T>(Accum<T>(portable::determinant_of(work, args.n)));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) gradients(DeterminantGradArgs args, i64 slots) {
  const i64 slot = slot_of_thread(), size = args.n * args.n;
  if (slot >= slots) return;
  double* const work = static_cast<double*>(args.workspace) + slot * portable::determinant_grad_slot(args.n);
  for (i64 m = slot; m < args.matrices; m += slots) {
    const T* const x = static_cast<const T*>(args.x) + m * size;
    T* const dx = static_cast<T*>(args.dx) + m * size;
    const double dy = double(to_accum(static_cast<const T*>(args.dy)[m]));
    for (i64 i = 0; i < size; ++i) work[i] = double(to_accum(x[i]));
    portable::cofactors(work, work + size, args.n,
                        [&](i64 i, double cofactor) { dx[i] = from_accum<T>(Accum<T>(dy * cofactor)); });
  }
}

template <class T>
void launch_determinants(const DeterminantArgs& args, Stream stream) {
  const i64 slots = portable::determinant_slots(args.matrices);
  if (slots > 0)
    launch(stream, determinants<T>, dim3(unsigned(ceil_div(slots, kThreads))), dim3(kThreads), 0, args,
           slots);
}
template <class T>
void launch_gradients(const DeterminantGradArgs& args, Stream stream) {
  const i64 slots = portable::determinant_slots(args.matrices);
  if (slots > 0)
    launch(stream, gradients<T>, dim3(unsigned(ceil_div(slots, kThreads))), dim3(kThreads), 0, args, slots);
}

}  // namespace

void determinant(const DeterminantArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, launch_determinants, args, stream);
}
void determinant_grad(const DeterminantGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, launch_gradients, args, stream);
}

}  // namespace gradloom::kernels::gpu
