// Steps of recurrent networks: kernels/recurrent.h, one thread per element.
#include "kernels/gpu/kernels.h"
#include "kernels/recurrent.h"  // after it: HIP's words are not the compiler's own

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Stored {
  using A = Accum<T>;
  static GRADLOOM_HD A load(const void* p, long long i) { return to_accum(static_cast<const T*>(p)[i]); }
  static GRADLOOM_HD void store(void* p, long long i, A v) { static_cast<T*>(p)[i] = from_accum<T>(v); }
};

template <class Element, class Args>
__global__ void __launch_bounds__(kThreads) recurrent_elements(Args args) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < args.cell.batch * args.cell.hidden) Element(args, i).run();
}

template <class Element, class Args>
void launch_elements(const Args& args, Stream stream) {
  const long long elements = args.cell.batch * args.cell.hidden;
  if (elements > 0)
    launch(stream, recurrent_elements<Element, Args>, unsigned(ceil_div(elements, kThreads)), kThreads, 0,
           args);
}

template <class T>
void step_typed(const RecurrentStepArgs& args, Stream stream) {
  launch_elements<RecurrentStep<Stored<T>>>(args, stream);
}
template <class T>
void step_grad_typed(const RecurrentStepGradArgs& args, Stream stream) {
  launch_elements<RecurrentStepGrad<Stored<T>>>(args, stream);
}

}  // namespace

void recurrent_step(const RecurrentStepArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.cell.dtype, step_typed, args, stream);
}
void recurrent_step_grad(const RecurrentStepGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.cell.dtype, step_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
