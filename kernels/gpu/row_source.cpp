// Source text for programs with rows (EwProgram::row). The threads of a row, up to 32 of a warp or a whole block, take chunks of
// consecutive elements, a vector each, and walk over the row once for each wave (EwRowPlace): the reductions of one wave are known
// when the next begins. What a later walk needs again lies in registers, as far as these reach; else it is computed, and its inputs
// are read, again. A number per row is computed by all threads of the row and stored by the first. Which thread takes what, and so
// the order of every sum, follows from the row's length and the types alone.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/gpu/program_text.h"
#include "kernels/gpu/program_writer.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kMostValues = 16;   // elements of a thread at most, while there are threads
constexpr int kHeldWords = 64;    // 32-bit registers of a thread for what later walks need
constexpr int kWarpThreads = 32;  // of one row, where a block has several rows

// How the threads of a block share rows out.
struct RowShares {
  std::int64_t rows = 0, row = 0;
  int lanes = 1;    // consecutive elements of a chunk
  int threads = 1;  // per row
  int chunks = 1;   // per thread
  int rows_per_block = 1;

  explicit RowShares(const ProgramLayout& layout)
      : rows(layout.count / layout.program.row), row(layout.program.row), lanes(layout.lanes) {
    while (row % lanes != 0) lanes = lanes == 8 ? 4 : 1;
    if (row <= kWarpThreads * kMostValues) {
      while (threads < kWarpThreads && std::int64_t{threads} * lanes < row) threads *= 2;
      rows_per_block = int(kProgramThreads) / threads;
    } else {
      threads = 2 * kWarpThreads;
      while (threads < int(kProgramThreads) && std::int64_t{threads} * kMostValues < row) threads *= 2;
    }
    const std::int64_t at_once = std::int64_t{threads} * lanes;
    chunks = int((row + at_once - 1) / at_once);
  }
  bool whole_chunks() const { return std::int64_t{chunks} * threads * lanes == row; }
  unsigned blocks() const { return unsigned((rows + rows_per_block - 1) / rows_per_block); }
};

// What one walk over a row does.
struct Walk {
  std::vector<bool> load, unpack, compute;  // by register: inputs; held from an earlier walk; instructions
};

// Which values each walk computes, and which of them stay in registers.
class Schedule {
 public:
  Schedule(const ProgramLayout& layout, const RowShares& shares)
      : layout_(layout),
        places_(ew_row_places(layout.program)),
        first_(places_.size(), kNever),
        held_(places_.size(), false) {
    const EwProgram& program = layout.program;
    first_result_ = int(program.inputs.size() + program.constants.size());
    for (std::size_t k = 0; k < program.code.size(); ++k)
      if (ew_reduces(program.code[k].op)) want(program.code[k].operands[0]);
    for (const EwOutput& output : program.outputs)
      if (!places_[std::size_t(output.reg)].per_row) want(output.reg);
    for (int w = 0; w < walks(); ++w)
      for (const int reg : wanted_[std::size_t(w)]) find_first(reg, w);
    words_.assign(std::size_t(walks()), 0);
    values_ = shares.chunks * shares.lanes;
    done_.resize(std::size_t(walks()));
    for (int w = walks(); w-- > 0;) {
      Walk& walk = done_[std::size_t(w)];
      walk.load = walk.unpack = walk.compute = std::vector<bool>(places_.size(), false);
      for (const int reg : wanted_[std::size_t(w)]) plan(reg, w, walk);
    }
  }

  int walks() const { return int(wanted_.size()); }
  const Walk& walk(int w) const { return done_[std::size_t(w)]; }
  const EwRowPlace& place(int reg) const { return places_[std::size_t(reg)]; }
  bool held(int reg) const { return held_[std::size_t(reg)]; }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();

  // A reduction's operand, or a result of the program.
  void want(int reg) {
    const auto wave = std::size_t(place(reg).wave);
    if (wanted_.size() <= wave) wanted_.resize(wave + 1);
    wanted_[wave].push_back(reg);
  }

  template <class F>
  void each_operand(int reg, const F& f) const {
    if (reg < first_result_) return;
    for (const std::int16_t operand : layout_.program.code[std::size_t(reg - first_result_)].operands)
      if (operand >= 0 && !place(operand).per_row) f(int(operand));
  }

  // The first walk that needs the value, were nothing held.
  void find_first(int reg, int w) {
    if (place(reg).per_row || first_[std::size_t(reg)] <= w) return;
    first_[std::size_t(reg)] = w;
    each_operand(reg, [&](int operand) { find_first(operand, w); });
  }

  // Walks are planned from the last: what one of them takes from registers, the first that needs it puts there.
  void plan(int reg, int w, Walk& walk) {
    const auto r = std::size_t(reg);
    if (place(reg).per_row || walk.load[r] || walk.unpack[r] || walk.compute[r]) return;
    if (first_[r] < w && hold(reg, w)) {
      walk.unpack[r] = true;
      return;
    }
    (reg < first_result_ ? walk.load : walk.compute)[r] = true;
    each_operand(reg, [&](int operand) { plan(operand, w, walk); });
  }

  // From the first walk that needs it up to walk w, if registers reach. Inputs that all rows share are read again: they are near.
  bool hold(int reg, int w) {
    if (reg < first_result_ && !of_one_row(reg)) return false;
    const int words = values_ * (dtype_bytes(layout_.type_of(reg)) > 4 ? 2 : 1);
    const int from = first_[std::size_t(reg)];
    if (held(reg)) return true;  // until a later walk
    for (int b = from; b < w; ++b)
      if (words_[std::size_t(b)] + words > kHeldWords) return false;
    for (int b = from; b < w; ++b) words_[std::size_t(b)] += words;
    return held_[std::size_t(reg)] = true;
  }

  // Whether rows have elements of their own in the input.
  bool of_one_row(int reg) const {
    const EwProgram& program = layout_.program;
    const EwInput& input = program.inputs[std::size_t(reg)];
    std::int64_t inside = 1;
    for (int d = program.rank; d-- > 0;) {
      inside *= program.dims[std::size_t(d)];
      if (inside > program.row && input.strides[std::size_t(d)] != 0) return true;
    }
    return false;
  }

  const ProgramLayout& layout_;
  std::vector<EwRowPlace> places_;
  int first_result_ = 0, values_ = 0;
  std::vector<std::vector<int>> wanted_;  // by walk
  std::vector<int> first_;                // by register
  std::vector<bool> held_;                // by register
  std::vector<int> words_;                // by walk: held when it ends
  std::vector<Walk> done_;
};

class RowGenerator : ProgramWriter {
 public:
  explicit RowGenerator(const EwProgram& program)
      : ProgramWriter(program), shares_(layout_), schedule_(layout_, shares_) {}

  GeneratedKernel generate() {
    if (layout_.count == 0) return finish("rows_", 1, kProgramThreads);
    begin();
    numbers_per_row(0);
    for (int w = 0; w < schedule_.walks(); ++w) {
      walk(w);
      reduce(w);
      numbers_per_row(w + 1);
    }
    store_numbers();
    return finish("rows_", shares_.blocks(), unsigned(shares_.threads * shares_.rows_per_block));
  }

 private:
  int register_count() const { return first_result() + int(program().code.size()); }
  const EwInstruction& code(int reg) const { return program().code[std::size_t(reg - first_result())]; }
  bool reduces(int reg) const { return reg >= first_result() && ew_reduces(code(reg).op); }
  bool per_row(int reg) const { return schedule_.place(reg).per_row; }
  std::string number(std::int64_t n) const { return index_text(n, layout_.wide); }

  // This thread's row, and where it begins. Threads behind the last row compute that one, and store nothing: all take part in shuffles.
  void begin() {
    const bool alone = shares_.rows_per_block == 1, rest = shares_.rows % shares_.rows_per_block != 0;
    const std::string threads = index_text(shares_.threads, false);
    line("const unsigned lane = threadIdx.x" + (alone ? "" : " % " + threads) + ";");
    const std::string block = layout_.wide ? "(unsigned long long)blockIdx.x" : "blockIdx.x";
    const std::string row =
        alone ? block : block + " * " + number(shares_.rows_per_block) + " + threadIdx.x / " + threads;
    if (rest) {
      line("const " + index_type() + " at = " + row + ";");
      line("const bool exists = at < " + number(shares_.rows) + ";");
    }
    line("const " + index_type() + " row = " + (rest ? "exists ? at : " + number(shares_.rows - 1) : row) +
         ";");
    line("const " + index_type() + " start = row * " + number(shares_.row) + ";");
    std::string whole;
    for (std::size_t i = 0; i < program().inputs.size() && shares_.lanes > 1; ++i)
      if (layout_.access(i, shares_.lanes) == Access::row_vector)
        whole += and_boundary(whole, program().inputs[i].dtype, shares_.lanes, "in", i);
    for (std::size_t o = 0; o < program().outputs.size() && shares_.lanes > 1; ++o)
      if (!per_row(program().outputs[o].reg))
        whole += and_boundary(whole, layout_.type_of(program().outputs[o].reg), shares_.lanes, "out", o);
    line("const bool whole = " + (whole.empty() ? "true" : whole) + ";");
    line("const int valid = " + std::to_string(shares_.lanes) + ";");
    constants();
    for (std::size_t i = 0; i < program().inputs.size(); ++i)
      if (layout_.used[i] && per_row(int(i)))
        line("const " + storage_of(int(i)) + " " + register_text(int(i)) + " = " + input_pointer(i) + "[" +
             offset_text(layout_, program().inputs[i], "start") + "];");
  }

  // What follows from the reductions before wave w, once per row.
  void numbers_per_row(int w) {
    for (int reg = first_result(); reg < register_count(); ++reg)
      if (per_row(reg) && !reduces(reg) && schedule_.place(reg).wave == w) instruction(reg, {});
  }

  std::string held_text(int reg) const { return "h" + std::to_string(reg); }
  std::string sum_text(int reg) const { return "s" + std::to_string(reg); }
  std::string compute_type(int reg) const { return type_names(code(reg).operand_type).compute; }
  std::string operator_text(int reg) const {
    const EwOp op = code(reg).op;
    return op == EwOp::RowMax ? "Max()" : (op == EwOp::RowMin ? "Min()" : "Sum()");
  }
  std::string identity(int reg) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const EwOp op = code(reg).op;
    const double value = op == EwOp::RowMax ? -infinity : (op == EwOp::RowMin ? infinity : 0);
    return compute_type(reg) + "(" + exact_text(value) + ")";
  }

  // The reductions whose operand walk w sees.
  template <class F>
  void each_reduction(int w, const F& f) const {
    for (int reg = first_result(); reg < register_count(); ++reg)
      if (reduces(reg) && schedule_.place(reg).wave == w + 1) f(reg);
  }
  template <class F>
  void each_stored(int w, const F& f) const {
    for (std::size_t o = 0; o < program().outputs.size(); ++o) {
      const int reg = program().outputs[o].reg;
      if (!per_row(reg) && schedule_.place(reg).wave == w) f(o, reg);
    }
  }

  void walk(int w) {
    const Walk& work = schedule_.walk(w);
    const std::string n = std::to_string(shares_.lanes), chunk = "k * " + n + " + j";
    for (int reg = 0; reg < register_count(); ++reg)
      if (schedule_.held(reg) && !work.unpack[std::size_t(reg)] && made(work, reg) && !declared(w, reg))
        line(storage_of(reg) + " " + held_text(reg) + "[" + std::to_string(shares_.chunks * shares_.lanes) +
             "] = {};");
    each_reduction(
        w, [&](int reg) { line(compute_type(reg) + " " + sum_text(reg) + " = " + identity(reg) + ";"); });
    unrolled("for (int k = 0; k < " + std::to_string(shares_.chunks) + "; ++k)");
    line("const unsigned c = (k * " + index_text(shares_.threads, false) + " + lane) * " +
         index_text(shares_.lanes, false) + ";");
    if (!shares_.whole_chunks())  // the last alone may lie behind the row
      line("if (k == " + std::to_string(shares_.chunks - 1) + " && c >= " + index_text(shares_.row, false) +
           ") continue;");
    line("[[maybe_unused]] const " + index_type() + " first = start + c;");
    for (std::size_t i = 0; i < program().inputs.size(); ++i)
      if (work.load[i]) load_row(i, shares_.lanes);
    const std::vector<std::string> uniform = draw(work);
    each_stored(w, [&](std::size_t o, int reg) {
      line("Lanes<" + storage_of(reg) + ", " + n + "> y" + std::to_string(o) + ";");
    });
    unrolled("for (int j = 0; j < " + n + "; ++j)");
    for (int reg = 0; reg < register_count(); ++reg) value(work, reg, chunk, uniform);
    each_reduction(w, [&](int reg) {
      line(sum_text(reg) + " = " + operator_text(reg) + "(" + sum_text(reg) + ", " + compute_type(reg) +
           "(widen(" + register_text(code(reg).operands[0]) + ")));");
    });
    each_stored(w, [&](std::size_t o, int reg) {
      line("y" + std::to_string(o) + ".v[j] = " + register_text(reg) + ";");
    });
    close();
    const std::string guard = shares_.rows % shares_.rows_per_block != 0 ? "if (exists) " : "";
    each_stored(w, [&](std::size_t o, int) {
      line(guard + "store_lanes(" + output_pointer(o) + " + first, y" + std::to_string(o) +
           ", whole, valid);");
    });
    close();
  }

  static bool made(const Walk& work, int reg) {
    return work.load[std::size_t(reg)] || work.compute[std::size_t(reg)];
  }
  // A walk before w made it.
  bool declared(int w, int reg) const {
    for (int before = 0; before < w; ++before)
      if (made(schedule_.walk(before), reg)) return true;
    return false;
  }

  // Element j of one value.
  void value(const Walk& work, int reg, const std::string& chunk, const std::vector<std::string>& uniform) {
    const auto r = std::size_t(reg);
    if (work.unpack[r])
      return line("const " + storage_of(reg) + " " + register_text(reg) + " = " + held_text(reg) + "[" +
                  chunk + "];");
    if (!made(work, reg)) return;
    if (work.load[r])
      unpack_row(r, shares_.lanes);
    else
      instruction(reg, uniform);
    if (schedule_.held(reg)) line(held_text(reg) + "[" + chunk + "] = " + register_text(reg) + ";");
  }

  // Random numbers of a chunk, for those operators that the walk runs.
  std::vector<std::string> draw(const Walk& work) {
    std::vector<std::string> names;
    for (const std::uint64_t key : random_keys(program())) {
      bool drawn = false;
      for (int reg = first_result(); reg < register_count(); ++reg)
        drawn = drawn || (work.compute[std::size_t(reg)] && ew_draws(code(reg).op) && code(reg).key == key);
      names.push_back(drawn ? draw_row(key, names.size(), shares_.lanes) : "");
    }
    return names;
  }

  void reduce(int w) {
    each_reduction(w, [&](int reg) {
      const std::string all = "row_reduce<" + std::to_string(shares_.threads) + ">(" + sum_text(reg) + ", " +
                              operator_text(reg) + ", " + identity(reg) + ")";
      const std::string mean = code(reg).op == EwOp::RowMean
                                   ? " / " + compute_type(reg) + "(" + exact_text(double(shares_.row)) + ")"
                                   : "";
      line("const " + storage_of(reg) + " " + register_text(reg) + " = cast<" +
           type_names(code(reg).result_type).cast + ">(" + all + mean + ");");
    });
  }

  void store_numbers() {
    const std::string exists = shares_.rows % shares_.rows_per_block != 0 ? " && exists" : "";
    for (std::size_t o = 0; o < program().outputs.size(); ++o)
      if (per_row(program().outputs[o].reg))
        line("if (lane == 0" + exists + ") " + output_pointer(o) +
             "[row] = " + register_text(program().outputs[o].reg) + ";");
  }

  const RowShares shares_;
  const Schedule schedule_;
};

}  // namespace

GeneratedKernel generate_rows(const EwProgram& program) { return RowGenerator(program).generate(); }

}  // namespace gradloom::kernels::gpu
