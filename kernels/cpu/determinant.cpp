// Determinants and their gradients: kernels/determinant.h for every matrix.
#include "kernels/determinant.h"

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// body(matrix, its slot) for all of them.
template <class Body>
void for_matrices(i64 matrices, i64 n, i64 slot_size, void* workspace, const Body& body) {
  const i64 slots = determinant_slots(matrices);
  parallel_for(slots, matrices * n * n * larger(n, 8), [&](i64 slot) {
    double* const work = static_cast<double*>(workspace) + slot * slot_size;
    for (i64 m = slot; m < matrices; m += slots) body(m, work);
  });
}

template <class T>
void determinants(const DeterminantArgs& args) {
  const i64 n = args.n;
  for_matrices(args.matrices, n, determinant_slot(n), args.workspace, [&](i64 m, double* work) {
    const T* const x = static_cast<const T*>(args.x) + m * n * n;
    for (i64 i = 0; i < n * n; ++i) work[i] = double(x[i]);
    static_cast<T*>(args.y)[m] = T(determinant_of(work, n));
  });
}

template <class T>
void gradients(const DeterminantGradArgs& args) {
  const i64 n = args.n;
  for_matrices(args.matrices, n, determinant_grad_slot(n), args.workspace, [&](i64 m, double* work) {
    const T* const x = static_cast<const T*>(args.x) + m * n * n;
    T* const dx = static_cast<T*>(args.dx) + m * n * n;
    const double dy = double(static_cast<const T*>(args.dy)[m]);
    for (i64 i = 0; i < n * n; ++i) work[i] = double(x[i]);
    cofactors(work, work + n * n, n, [&](i64 i, double cofactor) { dx[i] = T(dy * cofactor); });
  });
}

}  // namespace

void determinant(const DeterminantArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, determinants, args); }
void determinant_grad(const DeterminantGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, gradients, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
