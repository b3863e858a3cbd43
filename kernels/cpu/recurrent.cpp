// Steps of recurrent networks: kernels/recurrent.h for every element;
// loops over the units of usual cells are vectors.
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

constexpr i64 kElementWork = 400;      // some exponentials
constexpr i64 kUsualElementWork = 32;  // the same in vectors

template <class Element, class Args>
void for_elements(const Args& args) {
  const i64 elements = args.cell.batch * args.cell.hidden;
  parallel_pieces(elements, 64, elements * kElementWork, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) Element(args, i).run();
  });
}

template <class Element, RecurrentKind kind, class Args>
void for_units(const Args& args) {
  constexpr i64 kUnits = 512;
  const i64 hidden = args.cell.hidden, pieces = ceil_div(hidden, kUnits), items = args.cell.batch;
  parallel_for(items * pieces, items * hidden * kUsualElementWork, [&](i64 part) {
    const i64 item = part / pieces, begin = part % pieces * kUnits, end = smaller(hidden, begin + kUnits);
    const Args own = args;  // nothing that is stored can change it
    const Element element(own, item, begin);
    if (!element.active()) {
      for (i64 unit = begin; unit < end; ++unit) element.at(unit).run();
    } else if (own.part == 0) {
#pragma GCC ivdep
      for (i64 unit = begin; unit < end; ++unit) element.at(unit).template run_as<kind>(0);
    } else {
#pragma GCC ivdep
      for (i64 unit = begin; unit < end; ++unit) element.at(unit).template run_as<kind>(1);
    }
  });
}

using Gated = UsualCell<RecurrentFunction::sigmoid, RecurrentFunction::tanh>;
using Tanh = UsualCell<RecurrentFunction::tanh, RecurrentFunction::tanh>;
using Relu = UsualCell<RecurrentFunction::relu, RecurrentFunction::relu>;

bool has_functions(const RecurrentCell& cell, RecurrentFunction f, RecurrentFunction g) {
  const i64 count = cell.kind == RecurrentKind::rnn ? 1 : cell.kind == RecurrentKind::lstm ? 3 : 2;
  for (i64 i = 0; i < count; ++i)
    if (cell.activations[i].function != (i == 0 ? f : g)) return false;
  return true;
}

template <class T, template <class, class> class Element, class Args>
void run(const Args& args, bool usual) {
  const RecurrentCell& cell = args.cell;
  usual = usual && !cell.coupled && cell.clip == __builtin_inf();
  using enum RecurrentFunction;
  if (usual && cell.kind == RecurrentKind::rnn) {
    if (has_functions(cell, tanh, tanh)) return for_units<Element<Plain<T>, Tanh>, RecurrentKind::rnn>(args);
    if (has_functions(cell, relu, relu)) return for_units<Element<Plain<T>, Relu>, RecurrentKind::rnn>(args);
  }
  if (usual && has_functions(cell, sigmoid, tanh)) {
    switch (cell.kind) {
      case RecurrentKind::rnn: break;
      case RecurrentKind::gru: return for_units<Element<Plain<T>, Gated>, RecurrentKind::gru>(args);
      case RecurrentKind::gru_linear:
        return for_units<Element<Plain<T>, Gated>, RecurrentKind::gru_linear>(args);
      case RecurrentKind::lstm: return for_units<Element<Plain<T>, Gated>, RecurrentKind::lstm>(args);
    }
  }
  for_elements<Element<Plain<T>, AnyCell>>(args);
}

template <class T>
void steps(const RecurrentStepArgs& args) {
  run<T, RecurrentStep>(args, args.bias != nullptr && args.peepholes == nullptr);
}
template <class T>
void step_grads(const RecurrentStepGradArgs& args) {
  run<T, RecurrentStepGrad>(args, args.peepholes == nullptr);
}

}  // namespace

void recurrent_step(const RecurrentStepArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.cell.dtype, steps, args); }
void recurrent_step_grad(const RecurrentStepGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.cell.dtype, step_grads, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
