// The table of elementwise operators, and the iteration space of their programs made simple.
#include "kernels/elementwise.h"

#include <iterator>

namespace gradloom::kernels {
namespace {

constexpr EwRow kFormulas[] = {
#define EW(name_, arity_, types_, formula_, summary_, ...) \
  {.op = EwOp::name_,                                      \
   .name = #name_,                                         \
   .formula = #formula_,                                   \
   .arity = arity_,                                        \
   .types = #types_[0],                                    \
   .summary = summary_ __VA_OPT__(, ) __VA_ARGS__},
#include "kernels/elementwise.def"
#undef EW
};
static_assert(std::size(kFormulas) <= std::size_t(EwOp::Cast));

constexpr EwRow kOthers[] = {
    // from EwOp::Cast on
    {.op = EwOp::Cast,
     .name = "Cast",
     .formula = "",
     .arity = 1,
     .types = 'X',
     .summary = "Another element type; floats to integers truncate and saturate"},
    {.op = EwOp::Dropout,
     .name = "Dropout",
     .formula = "",
     .arity = 3,
     .types = 'X',
     .summary = "",
     .weight = 12},
    {.op = EwOp::DropoutMask,
     .name = "DropoutMask",
     .formula = "",
     .arity = 2,
     .types = 'X',
     .summary = "",
     .weight = 12},
    {.op = EwOp::Uniform,
     .name = "Uniform",
     .formula = "",
     .arity = 2,
     .types = 'X',
     .summary = "",
     .weight = 12},
};

bool mergeable(const EwProgram& program, int outer, int inner) {
  for (const EwInput& input : program.inputs) {
    if (input.strides[outer] != input.strides[inner] * program.dims[inner]) return false;
  }
  return true;
}

}  // namespace

std::span<const EwRow> ew_formulas() { return kFormulas; }

const EwRow& ew_row(EwOp op) {
  return op < EwOp::Cast ? kFormulas[std::size_t(op)] : kOthers[std::size_t(op) - std::size_t(EwOp::Cast)];
}

const EwRow* find_ew_row(std::string_view name) {
  for (const std::span<const EwRow> rows :
       {std::span<const EwRow>(kFormulas), std::span<const EwRow>(kOthers)})
    for (const EwRow& row : rows)
      if (name == row.name) return &row;
  return nullptr;
}

void ew_collapse_dims(EwProgram& program) {
  int rank = 0;
  for (int d = 0; d < program.rank; ++d) {
    if (program.dims[d] == 1) continue;
    program.dims[rank] = program.dims[d];
    for (EwInput& input : program.inputs) input.strides[rank] = input.strides[d];
    ++rank;
    if (rank >= 2 && mergeable(program, rank - 2, rank - 1)) {
      program.dims[rank - 2] *= program.dims[rank - 1];
      for (EwInput& input : program.inputs) input.strides[rank - 2] = input.strides[rank - 1];
      --rank;
    }
  }
  for (int d = rank; d < program.rank; ++d) {
    program.dims[d] = 1;
    for (EwInput& input : program.inputs) input.strides[d] = 0;
  }
  program.rank = rank;
}

}  // namespace gradloom::kernels
