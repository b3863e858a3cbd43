// Steps of recurrent networks: kernels/recurrent.h for every element.
#include "kernels/recurrent.h"

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

template <class T>
struct Plain {
  using A = T;
  static GRADLOOM_INLINE T load(const void* p, i64 i) { return static_cast<const T*>(p)[i]; }
  static GRADLOOM_INLINE void store(void* p, i64 i, T v) { static_cast<T*>(p)[i] = v; }
};

constexpr i64 kElementWork = 400;  // some exponentials

template <class Element, class Args>
void for_elements(const Args& args) {
  const i64 elements = args.cell.batch * args.cell.hidden;
  parallel_pieces(elements, 64, elements * kElementWork, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) Element(args, i).run();
  });
}

template <class T>
void steps(const RecurrentStepArgs& args) {
  for_elements<RecurrentStep<Plain<T>>>(args);
}
template <class T>
void step_grads(const RecurrentStepGradArgs& args) {
  for_elements<RecurrentStepGrad<Plain<T>>>(args);
}

}  // namespace

void recurrent_step(const RecurrentStepArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.cell.dtype, steps, args); }
void recurrent_step_grad(const RecurrentStepGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.cell.dtype, step_grads, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
