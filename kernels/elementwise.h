// A fused elementwise program: straight-line code over the elements of one iteration space.
// One program is one kernel: every input is read once, every output written once, temporaries stay in a tile.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"

namespace gradloom::kernels {

enum class EwOp : std::uint8_t {
#define EW(name, ...) name,
#include "kernels/elementwise.def"
#undef EW
  // Those without a formula. A row more in the list changes no number of theirs.
  Cast = 240,  // operand type -> result type
  Dropout,  // a: x, b: ratio (0..1), c: training (boolean).  keep ? x * (1 / (1 - ratio)) : 0; identity when
            // not training
  DropoutMask,  // a: ratio, b: training -> boolean keep mask
  Uniform,      // a: low, b: high -> low + u (high - low), u uniform in [0, 1)
  // Of floats over the elements of a row (EwProgram::row), one number for each: added up in f32, f64 of f64; NaN wins.
  RowSum,
  RowMean,
  RowMax,
  RowMin,
};
constexpr bool ew_reduces(EwOp op) { return op >= EwOp::RowSum; }
// The operator draws random numbers, by a key and the places of elements in the iteration space.
constexpr bool ew_draws(EwOp op) {
  return op == EwOp::Dropout || op == EwOp::DropoutMask || op == EwOp::Uniform;
}

// What kernels/elementwise.def says of an operator.
struct EwRange {
  double low = -2, high = 2;
};
struct EwRow {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  EwOp op;
  const char *name, *formula;
  int arity;
  char types;  // 'X': those of Cast, Dropout, .., which have no formula
  const char* summary;
  bool ours = false;  // an operator of domain "gradloom"
  int since = 1;      // the first opset that has it; 1: also those before the oldest that is read
  double flops = 1;   // per element, as usually counted
  int weight = 1;     // time of an element on the CPU, in additions (measured): how finely work is cut
  bool full_precision = false;  // enlarges relative errors, or leaves the range of its operand soon
  bool commutative = false;     // gives the same for a and b in either order
  bool chained = false;         // files may give it any number of inputs
  double neutral_a = kNone, neutral_b = kNone;  // the a that gives b, the b that gives a
  EwRange a{}, b{};                             // of which its samples are
  double kink = kNone;                          // where the slope jumps
};
std::span<const EwRow> ew_formulas();             // those of elementwise.def, in the order of EwOp
const EwRow& ew_row(EwOp op);                     // of all
const EwRow* find_ew_row(std::string_view name);  // null: there is none

constexpr int kEwMaxRegisters = 256;  // inputs + constants + instructions of one program
constexpr int kEwMaxOutputs = 64;
constexpr std::int64_t kEwMostRow = 8192;  // elements of a row: 32 of each thread of a block

struct EwInput {
  DType dtype;
  std::array<std::int64_t, kEwMaxRank> strides{};  // elements per step of each iteration dim; 0 = broadcast
};

// Register numbering: inputs first (0..inputs-1), then constants, then one register per instruction.
struct EwInstruction {
  EwOp op;
  DType operand_type;  // type of the operands (of b, c for Where; of a for Cast)
  DType result_type;
  std::array<std::int16_t, 3> operands{-1, -1, -1};
  // Dropout, DropoutMask, Uniform: identity of the original forward node. Cast to a small float:
  // kCastUnsaturated, .. (small_types.h).
  std::uint64_t key = 0;
};

struct EwConstant {
  DType dtype;
  double value;  // exact for every type used (integers up to 2^53)
};

struct EwOutput {
  std::int16_t reg;
  DType dtype;
};

// Iteration space: row-major dims[0..rank); outputs are dense in it. rank 0 = one element.
struct EwProgram {
  int rank = 0;
  // Elements of a row, the product of the last dims (before they are collapsed): what RowSum, .. go over; 0: no instruction does.
  // Such programs are for GPUs. No output lies over an input; an output that has one number per row is dense in the rows.
  std::int64_t row = 0;
  std::array<std::int64_t, kEwMaxRank> dims{};
  std::vector<EwInput> inputs;
  std::vector<EwConstant> constants;
  std::vector<EwInstruction> code;
  std::vector<EwOutput> outputs;
};

// Of a program with rows, by register: whether it has one number per row, and after how many reductions, one behind the other, it
// is known.
struct EwRowPlace {
  bool per_row = true;
  int wave = 0;
};
std::vector<EwRowPlace> ew_row_places(const EwProgram& program);

// Merges adjacent dims that every input steps through evenly and drops dims of size
// 1. Call once when planning.
void ew_collapse_dims(EwProgram& program);

}  // namespace gradloom::kernels
