// The table of elementwise operators, and the iteration space of their programs made simple.
#include "kernels/elementwise.h"

#include <algorithm>
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
    {.op = EwOp::RowSum, .name = "RowSum", .formula = "", .arity = 1, .types = 'X', .summary = ""},
    {.op = EwOp::RowMean, .name = "RowMean", .formula = "", .arity = 1, .types = 'X', .summary = ""},
    {.op = EwOp::RowMax, .name = "RowMax", .formula = "", .arity = 1, .types = 'X', .summary = ""},
    {.op = EwOp::RowMin, .name = "RowMin", .formula = "", .arity = 1, .types = 'X', .summary = ""},
};

// Whether the input is the same along a row. A merged dim that holds more than the rest of a row is stepped through evenly.
bool same_along_rows(const EwProgram& program, const EwInput& input) {
  std::int64_t inside = 1;
  for (int d = program.rank; d-- > 0 && inside < program.row; inside *= program.dims[std::size_t(d)])
    if (program.dims[std::size_t(d)] != 1 && input.strides[std::size_t(d)] != 0) return false;
  return true;
}

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

std::vector<EwRowPlace> ew_row_places(const EwProgram& program) {
  std::vector<EwRowPlace> places;
  for (const EwInput& input : program.inputs) places.push_back({same_along_rows(program, input), 0});
  places.resize(places.size() + program.constants.size());
  for (const EwInstruction& instruction : program.code) {
    EwRowPlace place{!ew_draws(instruction.op), 0};
    for (const std::int16_t reg : instruction.operands) {
      if (reg < 0) continue;
      const EwRowPlace& operand = places[std::size_t(reg)];
      place.per_row = place.per_row && operand.per_row;
      place.wave = std::max(place.wave, operand.wave);
    }
    if (ew_reduces(instruction.op)) place = {true, place.wave + 1};
    places.push_back(place);
  }
  return places;
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
