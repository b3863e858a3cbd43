// Matrix units: products of 16 x 16 tiles that the lanes of a warp hold in registers, operands f16 or bf16, sums f32; and
// what goes with them: copies to shared memory that do not wait, 2^x of the hardware.
//
// A tile of operands or of sums has one layout per width of a warp, so that sums become the left operand of the next
// product where they are. Element i of lane l is at (row, column), and columns of an operand are what is summed over:
//   32 lanes   row l / 4 + 8 (i / 2 % 2), column 2 (l % 4) + i % 2 + 8 (i / 4): PTX's m16n8k16, of which two make a product
//              (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"); the right operand's columns are its rows here
//   64 lanes   row l % 16, column 4 (l / 16) + i: CDNA's v_mfma_f32_16x16x16, of the operands exchanged (AMD matrix instruction calculator)
// Processors without either (RDNA, gfx900 to gfx908) exchange elements by shuffles and multiply them one by one; so does the
// host, on the real layouts, and where lane l finds the rows that ldmatrix reads is computed as on CUDA.
#pragma once

#include "kernels/gpu/gpu.h"

#if !defined(GRADLOOM_GPU_HOST) && !defined(__HIP__)
#define GRADLOOM_MMA_PTX
#elif defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__)
#define GRADLOOM_MMA_CDNA
#endif

namespace gradloom::kernels::gpu {

constexpr int kTile = 16;
constexpr int kTileElements = kTile * kTile / kWarp;  // of a lane
// Tiles that a warp takes, one below the other: 128 threads take 64 rows, whatever a warp is.
constexpr int kWarpTiles = kWarp / 32;
constexpr int kLaneRows = kWarp == 32 ? 2 : 1;  // of a tile, that a lane has elements of

GRADLOOM_DEVICE int lane_number() { return int(threadIdx.x) % kWarp; }
GRADLOOM_DEVICE int warp_number() { return int(threadIdx.x) / kWarp; }

GRADLOOM_DEVICE int tile_row(int lane, int i) { return kWarp == 32 ? lane / 4 + i / 2 % 2 * 8 : lane % 16; }
GRADLOOM_DEVICE int tile_column(int lane, int i) {
  return kWarp == 32 ? lane % 4 * 2 + i % 2 + i / 4 * 8 : lane / 16 * 4 + i;
}
// Which of the lane's rows element i is of.
constexpr GRADLOOM_HD int lane_row(int i) { return kWarp == 32 ? i / 2 % 2 : 0; }
// Who has an element, and as which.
GRADLOOM_DEVICE int tile_lane(int row, int column) {
  return kWarp == 32 ? row % 8 * 4 + column % 8 / 2 : column / 4 * 16 + row;
}
GRADLOOM_DEVICE int tile_element(int row, int column) {
  return kWarp == 32 ? column / 8 * 4 + row / 8 * 2 + column % 2 : column % 4;
}

struct Sums {
  float v[kTileElements];
};
// Two neighbours along the columns in a word, the first in the lower half.
template <class T>
struct Operand {
  unsigned word[kTileElements / 2];
};

// What all lanes that have elements of a row make of v, a commutative op.
template <class Op>
GRADLOOM_DEVICE float row_reduce(float v, Op op) {
  constexpr int kFirst = kWarp == 32 ? 1 : 16;
  v = op(v, shuffle_xor(v, kFirst));
  return op(v, shuffle_xor(v, 2 * kFirst));
}

// ---- between registers and memory -----------------------------------------------------------------------------------------------

#if defined(GRADLOOM_MMA_PTX)
GRADLOOM_DEVICE unsigned rounded_pair(float low, float high, f16) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
GRADLOOM_DEVICE unsigned rounded_pair(float low, float high, bf16) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#else
template <class T>
GRADLOOM_DEVICE unsigned rounded_pair(float low, float high, T) {
  return unsigned(from_accum<T>(low).bits) | unsigned(from_accum<T>(high).bits) << 16;
}
#endif

// Sums, rounded, as they are.
template <class T>
GRADLOOM_DEVICE Operand<T> operand_of(const Sums& sums) {
  Operand<T> to;
#pragma unroll
  for (int j = 0; j < kTileElements / 2; ++j)
    to.word[j] = rounded_pair(sums.v[2 * j], sums.v[2 * j + 1], T{});
  return to;
}

// Where lane `lane` of 32 gives ldmatrix the beginning of a row of 8 elements, of the lane / 8-th of four 8 x 8 matrices.
template <bool turned>
GRADLOOM_DEVICE int matrix_row(int lane, int pitch) {
  const int inner = lane % 8 + (turned ? lane / 16 : lane / 8 % 2) * 8;
  return inner * pitch + (turned ? lane / 8 % 2 : lane / 16) * 8;
}

// Tile of shared memory, rows `pitch` elements apart and at 16-byte boundaries; turned: its rows are the operand's columns.
template <bool turned, class T>
GRADLOOM_DEVICE Operand<T> load_operand(const T* tile, int pitch) {
  Operand<T> to;
  const int lane = lane_number();
#if defined(GRADLOOM_MMA_PTX)
  const unsigned at = unsigned(__cvta_generic_to_shared(tile + matrix_row<turned>(lane, pitch)));
  if constexpr (turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                 : "r"(at)
                 : "memory");
#else
#pragma unroll
  for (int j = 0; j < kTileElements / 2; ++j) {
    const T *low, *high;
    if constexpr (
        kWarp ==
        32) {  // as ldmatrix: word j is of matrix j, whose rows begin where lanes 8 j and following say
      if constexpr (turned) {
        low = tile + matrix_row<true>(8 * j + lane % 4 * 2, pitch) + lane / 4;
        high = tile + matrix_row<true>(8 * j + lane % 4 * 2 + 1, pitch) + lane / 4;
      } else {
        low = tile + matrix_row<false>(8 * j + lane / 4, pitch) + lane % 4 * 2;
        high = low + 1;
      }
    } else {
      const int row = tile_row(lane, 2 * j), column = tile_column(lane, 2 * j);
      low = turned ? tile + column * pitch + row : tile + row * pitch + column;
      high = turned ? low + pitch : low + 1;
    }
    to.word[j] = unsigned(low->bits) | unsigned(high->bits) << 16;
  }
#endif
  return to;
}

template <class T>
GRADLOOM_DEVICE void store_operand(T* tile, int pitch, const Operand<T>& from) {
  const int lane = lane_number();
#pragma unroll
  for (int j = 0; j < kTileElements / 2; ++j) {
    T* const at = tile + tile_row(lane, 2 * j) * pitch + tile_column(lane, 2 * j);
    *reinterpret_cast<unsigned*>(at) = from.word[j];
  }
}

// 16 bytes at 16-byte boundaries, at once; clang takes the elements of a Pack apart where it can.
template <class T>
GRADLOOM_DEVICE void move_pack(T* to, const T* from) {
#if defined(__HIP__)
  using Words4 = unsigned __attribute__((ext_vector_type(4)));
  *reinterpret_cast<Words4*>(to) = *reinterpret_cast<const Words4*>(from);
#else
  store_pack(to, load_pack(from));
#endif
}

// 16 bytes from global to shared memory, there after wait_copies() of the same thread and a barrier.
template <class T>
GRADLOOM_DEVICE void copy_pack(T* to, const T* from) {
#if defined(GRADLOOM_MMA_PTX)
  const unsigned at = unsigned(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(__cvta_generic_to_global(from))
               : "memory");
#else
  move_pack(to, from);
#endif
}
GRADLOOM_DEVICE void wait_copies() {
#if defined(GRADLOOM_MMA_PTX)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// 2^x to 2 ulp; results below 2^-126 may be 0.
GRADLOOM_DEVICE float power_of_2(float x) {
#if defined(GRADLOOM_MMA_PTX)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(GRADLOOM_GPU_HOST)
  return exp(x * 0.693147181f);
#else
  return __builtin_exp2f(x);
#endif
}

// ---- products -------------------------------------------------------------------------------------------------------------------

// Neighbours along the columns, as they are multiplied.
struct ElementPair {
  float low, high;
};
template <class T>
GRADLOOM_DEVICE ElementPair pair_of(unsigned word) {
  return {to_float(T{static_cast<unsigned short>(word)}),
          to_float(T{static_cast<unsigned short>(word >> 16)})};
}

// sums += left right^T, from words of other lanes: fetch(right, lane, word).
template <class Fetch>
GRADLOOM_DEVICE void multiply_fetched(Sums& sums, const Fetch& fetch) {
  const int lane = lane_number();
#pragma unroll
  for (int k = 0; k < kTile; k += 2) {
    ElementPair left[kTileElements], right[kTileElements];
#pragma unroll
    for (int i = 0; i < kTileElements; ++i) {
      const int same_row = kWarp == 32 ? i & 2 : 0, same_column = kWarp == 32 ? i & 5 : i;
      const int row = tile_row(lane, i), column = tile_column(lane, i);
      left[i] = same_row < i ? left[same_row]
                             : fetch(false, tile_lane(row, k), tile_element(lane_row(i) * 8, k) / 2);
      right[i] = same_column < i ? right[same_column]
                                 : fetch(true, tile_lane(column, k), tile_element(i / 4 * 8, k) / 2);
      sums.v[i] += left[i].low * right[i].low;
      sums.v[i] += left[i].high * right[i].high;
    }
  }
}

template <class T>
GRADLOOM_DEVICE void multiply_by_shuffles(Sums& sums, const Operand<T>& left, const Operand<T>& right) {
  multiply_fetched(sums, [&](bool of_right, int lane, int j) {
    return pair_of<T>(shuffle((of_right ? right : left).word[j], lane));
  });
}

#if defined(GRADLOOM_MMA_PTX)
#define GRADLOOM_MMA(T, name)                                                                         \
  GRADLOOM_DEVICE void multiply_half(float* c, const Operand<T>& a, unsigned b0, unsigned b1) {       \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                               \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"               \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                     \
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b0), "r"(b1)); \
  }
GRADLOOM_MMA(f16, "f16")
GRADLOOM_MMA(bf16, "bf16")
#undef GRADLOOM_MMA
#elif defined(GRADLOOM_MMA_CDNA)
using Floats4 = float __attribute__((ext_vector_type(4)));
GRADLOOM_DEVICE Floats4 multiply_cdna(const Operand<f16>& a, const Operand<f16>& b, Floats4 c) {
  using Halves4 = _Float16 __attribute__((ext_vector_type(4)));
  return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Halves4, a), __builtin_bit_cast(Halves4, b),
                                               c, 0, 0, 0);
}
GRADLOOM_DEVICE Floats4 multiply_cdna(const Operand<bf16>& a, const Operand<bf16>& b, Floats4 c) {
  using Shorts4 = short __attribute__((ext_vector_type(4)));
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Shorts4, a),
                                                   __builtin_bit_cast(Shorts4, b), c, 0, 0, 0);
}
#endif

// sums += left right^T. All lanes of the warp must take part.
template <class T>
GRADLOOM_DEVICE void multiply(Sums& sums, const Operand<T>& left, const Operand<T>& right) {
#if defined(GRADLOOM_MMA_PTX)
  multiply_half(sums.v, left, right.word[0], right.word[2]);
  multiply_half(sums.v + 4, left, right.word[1], right.word[3]);
#elif defined(GRADLOOM_MMA_CDNA)
  // Rows and columns of the instruction's result are exchanged in this layout.
  sums = __builtin_bit_cast(Sums, multiply_cdna(right, left, __builtin_bit_cast(Floats4, sums)));
#elif defined(GRADLOOM_GPU_HOST)
  ElementPair own[2][kTileElements / 2];
  for (int j = 0; j < kTileElements / 2; ++j) {
    own[0][j] = pair_of<T>(left.word[j]);
    own[1][j] = pair_of<T>(right.word[j]);
  }
  const auto* const all = gather(own);
  multiply_fetched(sums, [&](bool of_right, int lane, int j) { return all[lane][of_right][j]; });
#else
  multiply_by_shuffles(sums, left, right);
#endif
}

}  // namespace gradloom::kernels::gpu
