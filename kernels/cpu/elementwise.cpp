// Interpreter of elementwise programs. The iteration space is cut into tiles; for each tile every instruction
// runs once over values that stay in L1. Dense inputs are read in place and results that are outputs are
// written in place; broadcast and strided inputs are copied into the tile first.
#include "kernels/cpu/elementwise_tiles.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// All that one tile touches, when that leaves tiles of a useful size: two thirds of the L1 cache.
constexpr i64 kTileBytes = i64(32) * 1024;
constexpr i64 kMinTile = 64;  // a multiple of 4 (Philox blocks)
constexpr i64 kMaxTile = 8192;
constexpr i64 kMaxProgramTile = 1024;  // of several operators
constexpr i64 kMinRun = 256;           // neighbours of a strided input that are worth a tile of their own
constexpr i64 kMostSlotBytes = i64(kEwMaxRegisters) * kMinTile * 8;

// Where a register's tile is found.
enum class Place : std::uint8_t { slot, output, dense_input, uniform };

struct Register {
  Place place = Place::slot;
  std::int16_t index = -1;  // slot, output or input
  std::int16_t last_use = -1;
  std::uint8_t bytes = 4;
};

// An input that is neither dense nor constant, over dims merged for this input alone.
struct Strided {
  int rank;  // not initialized: a plan has room for many
  i64 dims[kEwMaxRank], strides[kEwMaxRank];
};

struct Plan {
  int inputs, constants, instructions, registers, outputs;
  i64 count;  // elements
  i64 tile;   // elements per tile
  int slots = 0;
  i64 slot_bytes;
  i64 work = 0;  // of arithmetic per element, for the decision to go parallel
  Register reg[kEwMaxRegisters];
  bool output_copied[kEwMaxOutputs];  // written at the end of the tile
  Strided strided[kEwMaxRegisters];
};

// Merges dims that this input steps through evenly. Returns true if it is dense.
bool merge_dims(const EwProgram& program, const EwInput& input, Strided* out) {
  const i64* const dims = program.dims.data();
  const i64* const strides = input.strides.data();
  int rank = 0;
  for (int d = 0; d < program.rank; ++d) {
    if (dims[d] == 1) continue;
    if (rank > 0 && out->strides[rank - 1] == strides[d] * dims[d]) {
      out->dims[rank - 1] *= dims[d];
      out->strides[rank - 1] = strides[d];
    } else {
      out->dims[rank] = dims[d];
      out->strides[rank] = strides[d];
      ++rank;
    }
  }
  out->rank = rank;
  return rank == 0 || (rank == 1 && out->strides[0] == 1);
}

int operand_count(const EwInstruction& instruction) {
  int n = 0;
  while (n < 3 && instruction.operands.data()[n] >= 0) ++n;
  return n;
}

// Last uses; which registers are uniform (one value), dense inputs or outputs written in place.
void place_registers(const ElementwiseArgs& args, Plan& plan) {
  const EwProgram& program = *args.program;
  const EwInput* const inputs = program.inputs.data();
  const EwInstruction* const code = program.code.data();
  const EwOutput* const outputs = program.outputs.data();
  const int first_result = plan.inputs + plan.constants;
  for (int i = 0; i < plan.inputs; ++i) {
    Register& reg = plan.reg[i];
    reg.bytes = std::uint8_t(dtype_bytes(inputs[i].dtype));
    reg.index = std::int16_t(i);
    if (merge_dims(program, inputs[i], &plan.strided[i])) {
      reg.place = Place::dense_input;
    } else if (plan.strided[i].rank == 1 && plan.strided[i].strides[0] == 0) {
      reg.place = Place::uniform;
    }
  }
  for (int c = 0; c < plan.constants; ++c) {
    plan.reg[plan.inputs + c].bytes = std::uint8_t(dtype_bytes(program.constants.data()[c].dtype));
    plan.reg[plan.inputs + c].place = Place::uniform;
  }
  for (int k = 0; k < plan.instructions; ++k) {
    plan.reg[first_result + k].bytes = std::uint8_t(dtype_bytes(code[k].result_type));
    const int n = operand_count(code[k]);
    for (int o = 0; o < n; ++o) plan.reg[code[k].operands.data()[o]].last_use = std::int16_t(k);
    plan.work += ew_row(code[k].op).weight;
  }
  for (int o = 0; o < plan.outputs; ++o) {
    const int source = outputs[o].reg;
    plan.output_copied[o] = true;
    if (source < first_result || plan.reg[source].place == Place::output) continue;
    // An input that shares the output's memory must not be needed after the output is written.
    bool hidden = false;
    for (int i = 0; i < plan.inputs; ++i) {
      if (args.inputs[i] != args.outputs[o]) continue;
      hidden = hidden || plan.reg[i].last_use > source - first_result;
      for (int p = 0; p < plan.outputs; ++p) hidden = hidden || outputs[p].reg == i;
    }
    if (hidden) continue;
    plan.reg[source].place = Place::output;
    plan.reg[source].index = std::int16_t(o);
    plan.output_copied[o] = false;
  }
  for (int o = 0; o < plan.outputs; ++o) {
    if (plan.output_copied[o]) plan.reg[outputs[o].reg].last_use = std::int16_t(plan.instructions);
  }
}

// Read and written for an element.
i64 element_bytes(const EwProgram& program, const Plan& plan) {
  i64 bytes = 0;
  for (int i = 0; i < plan.inputs; ++i)
    if (plan.reg[i].place != Place::uniform) bytes += plan.reg[i].bytes;
  for (int o = 0; o < plan.outputs; ++o) bytes += plan.reg[program.outputs.data()[o].reg].bytes;
  return bytes;
}

// The largest tile up to `tile` that never lies across two runs of neighbours of the input, a multiple of 4
// (Philox blocks) too; `tile` where there is none of a useful size.
i64 within_runs(const Strided& in, i64 tile) {
  const i64 run = in.dims[in.rank - 1];
  if (in.strides[in.rank - 1] != 1 || run % 4 != 0) return tile;
  for (i64 parts = ceil_div(run, tile); run / parts >= kMinRun; ++parts)
    if (run % (4 * parts) == 0) return run / parts;
  return tile;
}

// Gives tile buffers to the registers that need one; a buffer is free again after its register's last use.
void assign_slots(const ElementwiseArgs& args, Plan& plan) {
  const EwInstruction* const code = args.program->code.data();
  std::int16_t free_slots[kEwMaxRegisters];
  int free_count = 0;
  std::uint8_t widest = 1;
  const auto take = [&](int r) {
    Register& reg = plan.reg[r];
    reg.index = free_count > 0 ? free_slots[--free_count] : std::int16_t(plan.slots++);
    widest = reg.bytes > widest ? reg.bytes : widest;
  };
  const int first_result = plan.inputs + plan.constants;
  bool loaded[kEwMaxRegisters] = {};
  for (int r = 0; r < first_result; ++r) {
    if (plan.reg[r].place != Place::uniform || plan.reg[r].last_use < 0) continue;
    take(r);  // filled once per thread, never given back
  }
  for (int k = 0; k < plan.instructions; ++k) {
    const int n = operand_count(code[k]);
    for (int o = 0; o < n; ++o) {
      const int r = code[k].operands.data()[o];
      if (r >= first_result || plan.reg[r].place != Place::slot || loaded[r]) continue;
      take(r);
      loaded[r] = true;
    }
    // The result may take over the buffer of an operand that ends here: tile loops go element by element. Not
    // when the types differ in width.
    const auto release = [&](bool same_width) {
      for (int o = 0; o < n; ++o) {
        const int r = code[k].operands.data()[o];
        Register& reg = plan.reg[r];
        if (reg.place != Place::slot || reg.last_use != k || reg.index < 0) continue;
        if ((reg.bytes == plan.reg[first_result + k].bytes) != same_width) continue;
        bool repeated = false;
        for (int p = 0; p < o; ++p) repeated = repeated || code[k].operands.data()[p] == r;
        if (!repeated) free_slots[free_count++] = reg.index;
      }
    };
    release(true);
    if (plan.reg[first_result + k].place == Place::slot) {
      take(first_result + k);
      if (plan.reg[first_result + k].last_use < 0)
        free_slots[free_count++] = plan.reg[first_result + k].index;
    }
    release(false);
  }
  // Strided inputs that are outputs as they are.
  for (int r = 0; r < first_result; ++r) {
    if (plan.reg[r].place == Place::slot && plan.reg[r].last_use == plan.instructions && !loaded[r]) take(r);
  }
  i64 tile = plan.instructions > 1 ? kMaxProgramTile : kMaxTile, touched = plan.slots + plan.outputs;
  for (int r = 0; r < plan.inputs; ++r) touched += plan.reg[r].place == Place::dense_input ? 1 : 0;
  if (plan.slots > 0) tile = smaller(tile, kTileBytes / (touched * i64(widest)));
  tile = larger(kMinTile, tile / kMinTile * kMinTile);
  for (int r = 0; r < plan.inputs; ++r)
    if (plan.reg[r].place == Place::slot) tile = within_runs(plan.strided[r], tile);
  plan.tile = tile;
  plan.slot_bytes = aligned_bytes(tile * widest);
}

template <class T>
void splat(const void* value, void* out, i64 n) {
  const T v = *static_cast<const T*>(value);
  T* y = static_cast<T*>(out);
  for (i64 i = 0; i < n; ++i) y[i] = v;
}

void splat_bytes(int bytes, const void* value, void* out, i64 n) {
  switch (bytes) {
    case 1: return splat<std::uint8_t>(value, out, n);
    case 2: return splat<std::uint16_t>(value, out, n);
    case 4: return splat<std::uint32_t>(value, out, n);
    default: return splat<std::uint64_t>(value, out, n);
  }
}

// Where element `first` of a strided input is, in row-major order of its dims.
struct Position {
  i64 index[kEwMaxRank], offset = 0;

  Position(const Strided& in, i64 first) {
    for (int d = in.rank - 1; d >= 0; --d) {
      index[d] = first % in.dims[d];
      first /= in.dims[d];
      offset += index[d] * in.strides[d];
    }
  }
};

// Whether elements first .. first + n of a strided input are neighbours in memory.
bool neighbours(const Strided& in, i64 first, i64 n) {
  const int last = in.rank - 1;
  return in.strides[last] == 1 && first % in.dims[last] + n <= in.dims[last];
}

// Elements first .. first + n of a strided input.
template <class T>
void gather_strided(const Strided& in, const T* base, i64 first, T* out, i64 n) {
  auto [index, offset] = Position(in, first);
  const int last = in.rank - 1;
  const i64 inner = in.dims[last], stride = in.strides[last];
  while (n > 0) {
    const i64 run = smaller(n, inner - index[last]);
    const T* const x = base + offset;
    if (stride == 1) {
      __builtin_memcpy(out, x, std::size_t(run) * sizeof(T));
    } else if (stride == 0) {
      const T v = *x;
      for (i64 i = 0; i < run; ++i) out[i] = v;
    } else {
      for (i64 i = 0; i < run; ++i) out[i] = x[i * stride];
    }
    out += run;
    n -= run;
    offset -= index[last] * stride;
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      offset += in.strides[d];
      if (++index[d] < in.dims[d]) break;
      offset -= index[d] * in.strides[d];
      index[d] = 0;
    }
  }
}

void load_strided(const Strided& in, int bytes, const void* base, i64 first, void* out, i64 n) {
  switch (bytes) {
    case 1:
      return gather_strided(in, static_cast<const std::uint8_t*>(base), first,
                            static_cast<std::uint8_t*>(out), n);
    case 2:
      return gather_strided(in, static_cast<const std::uint16_t*>(base), first,
                            static_cast<std::uint16_t*>(out), n);
    case 4:
      return gather_strided(in, static_cast<const std::uint32_t*>(base), first,
                            static_cast<std::uint32_t*>(out), n);
    default:
      return gather_strided(in, static_cast<const std::uint64_t*>(base), first,
                            static_cast<std::uint64_t*>(out), n);
  }
}

// A constant in its own type, as bytes.
std::uint64_t constant_bits(const EwConstant& constant) {
  std::uint64_t bits = 0;
  cast_tile(DType::f64, constant.dtype, 0, &constant.value, &bits, 1);
  return bits;
}

void fill_uniform(const ElementwiseArgs& args, const Plan& plan, char* slots) {
  const EwConstant* const constants = args.program->constants.data();
  for (int r = 0; r < plan.inputs + plan.constants; ++r) {
    const Register& reg = plan.reg[r];
    if (reg.place != Place::uniform || reg.last_use < 0) continue;
    const i64 n = smaller(plan.tile, plan.count);
    if (r < plan.inputs) {
      splat_bytes(reg.bytes, args.inputs[r], slots + reg.index * plan.slot_bytes, n);
    } else {
      const std::uint64_t bits = constant_bits(constants[r - plan.inputs]);
      splat_bytes(reg.bytes, &bits, slots + reg.index * plan.slot_bytes, n);
    }
  }
}

// x^0.5, x^2, x^3 without the general power function.
bool simple_power(const ElementwiseArgs& args, const Plan& plan, const EwInstruction& instruction,
                  const void* base, void* out, i64 n) {
  const int exponent = instruction.operands.data()[1] - plan.inputs;
  if (exponent < 0 || exponent >= plan.constants) return false;
  const double value = args.program->constants.data()[exponent].value;
  const DType type = instruction.operand_type;
  if (value == 0.5) {
    operator_tile(EwOp::Sqrt, type)(base, nullptr, nullptr, out, n);
  } else if (value == 2.0) {
    operator_tile(EwOp::Square, type)(base, nullptr, nullptr, out, n);
  } else if (value == 3.0) {
    if (type == DType::f64) {
      const double* x = static_cast<const double*>(base);
      double* y = static_cast<double*>(out);
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i];
    } else {
      const float* x = static_cast<const float*>(base);
      float* y = static_cast<float*>(out);
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i];
    }
  } else {
    return false;
  }
  return true;
}

// Asks for a part of what the tile after this one reads: while operators compute from tiles in L1, the memory
// would idle, and the hardware's own prefetching pauses between tiles. Part k of `parts`.
void prefetch_next(const ElementwiseArgs& args, const Plan& plan, i64 next, i64 n, int k, int parts) {
  for (int r = 0; r < plan.inputs; ++r) {
    const Register& reg = plan.reg[r];
    if (reg.place != Place::dense_input) continue;
    const i64 bytes = n * reg.bytes;
    const char* const from = static_cast<const char*>(args.inputs[r]) + next * reg.bytes;
    for (i64 at = bytes * k / parts; at < bytes * (k + 1) / parts; at += 64) fetch(from + at);
  }
}

void run_tile(const ElementwiseArgs& args, const Plan& plan, char* slots, i64 first, i64 n) {
  const EwProgram& program = *args.program;
  const EwInstruction* const code = program.code.data();
  const EwOutput* const outputs = program.outputs.data();
  const int first_result = plan.inputs + plan.constants;
  const char* strided[kEwMaxRegisters];  // where the tiles of such inputs are, once they were needed
  for (int i = 0; i < plan.inputs; ++i) strided[i] = nullptr;
  const auto address = [&](int r) -> char* {
    const Register& reg = plan.reg[r];
    switch (reg.place) {
      case Place::output: return static_cast<char*>(args.outputs[reg.index]) + first * reg.bytes;
      case Place::dense_input:
        return const_cast<char*>(static_cast<const char*>(args.inputs[reg.index])) + first * reg.bytes;
      default: return slots + reg.index * plan.slot_bytes;
    }
  };
  const auto read = [&](int r) -> const char* {
    char* const at = address(r);
    if (r >= plan.inputs || plan.reg[r].place != Place::slot) return at;
    if (strided[r] != nullptr) return strided[r];
    const Strided& in = plan.strided[r];
    const int bytes = plan.reg[r].bytes;
    if (neighbours(in, first, n))
      return strided[r] = static_cast<const char*>(args.inputs[r]) + Position(in, first).offset * bytes;
    load_strided(in, bytes, args.inputs[r], first, at, n);
    return strided[r] = at;
  };
  for (int k = 0; k < plan.instructions; ++k) {
    if (plan.instructions > 1) prefetch_next(args, plan, first + n, n, k, plan.instructions);
    const EwInstruction& instruction = code[k];
    const int operands = operand_count(instruction);
    const char* operand[3] = {};
    for (int o = 0; o < operands; ++o) operand[o] = read(instruction.operands.data()[o]);
    char* const out = address(first_result + k);
    const auto random = [&] {
      bool scalars = true;
      for (int o = 1; o < operands; ++o)
        scalars = scalars && plan.reg[instruction.operands.data()[o]].place == Place::uniform;
      return DropoutTile{first, args.random->seed ^ instruction.key, args.random->step, scalars};
    };
    switch (instruction.op) {
      case EwOp::Cast:
        cast_tile(instruction.operand_type, instruction.result_type, unsigned(instruction.key), operand[0],
                  out, n);
        break;
      case EwOp::Dropout:
        dropout_tile(random(), instruction.operand_type, operand[0], operand[1], operand[2], out, n);
        break;
      case EwOp::DropoutMask:
        dropout_mask_tile(random(), instruction.operand_type, operand[0], operand[1], out, n);
        break;
      case EwOp::Uniform:
        uniform_tile(random(), instruction.operand_type, operand[0], operand[1], out, n);
        break;
      default:
        if (instruction.op == EwOp::Pow && simple_power(args, plan, instruction, operand[0], out, n)) break;
        operator_tile(instruction.op, instruction.operand_type)(operand[0], operand[1], operand[2], out, n);
    }
  }
  for (int o = 0; o < plan.outputs; ++o) {
    if (!plan.output_copied[o]) continue;
    const Register& reg = plan.reg[outputs[o].reg];
    const char* const from = read(outputs[o].reg);
    __builtin_memmove(static_cast<char*>(args.outputs[o]) + first * reg.bytes, from,
                      std::size_t(n * reg.bytes));
  }
}

}  // namespace

void elementwise(const ElementwiseArgs& args) {
  const EwProgram& program = *args.program;
  Plan plan;
  plan.inputs = int(program.inputs.size());
  plan.constants = int(program.constants.size());
  plan.instructions = int(program.code.size());
  plan.outputs = int(program.outputs.size());
  plan.registers = plan.inputs + plan.constants + plan.instructions;
  if (plan.registers > kEwMaxRegisters || plan.outputs > kEwMaxOutputs)
    __builtin_trap();  // the planner's limit
  plan.count = 1;
  for (int d = 0; d < program.rank; ++d) plan.count *= program.dims.data()[d];
  if (plan.count == 0) return;
  place_registers(args, plan);
  assign_slots(args, plan);
  const i64 tiles = ceil_div(plan.count, plan.tile);
  const i64 work = plan.count * (plan.work + element_bytes(program, plan)) / 2;
  parallel_ranges(tiles, work, [&](i64 begin, i64 end) {  // no sums here
    alignas(64) char slots[kMostSlotBytes];
    fill_uniform(args, plan, slots);
    for (i64 tile = begin; tile < end; ++tile) {
      const i64 first = tile * plan.tile;
      run_tile(args, plan, slots, first, smaller(plan.tile, plan.count - first));
    }
  });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
