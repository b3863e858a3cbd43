// Kernels that read and write places which indices choose.
//   index_gather       out[i, :] = data[place(i), :]; index_scatter: out[place(i), :] reduced with updates[i, :], in order of i
//   one_hot            values[1] at the index, values[0] elsewhere
//   reverse_sequence   the first lengths[b] positions of a sequence turned around
// Scatters run in parallel over what cannot share a place, so duplicates meet in order.
#include "kernels/cpu/kernel.h"
#include "kernels/index_walk.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// Walks over items and where they begin, without divisions after the first.
struct Cursor {
  const IndexWalk& walk;
  i64 base = 0, point[kEwMaxRank] = {};

  Cursor(const IndexWalk& walk_, i64 item) : walk(walk_) {
    for (int d = walk.rank - 1; d >= 0; --d) {
      point[d] = item % walk.dims[d];
      base += point[d] * walk.base[d];
      item /= walk.dims[d];
    }
  }
  GRADLOOM_INLINE void next() {
    for (int d = walk.rank - 1; d >= 0; --d) {
      base += walk.base[d];
      if (++point[d] < walk.dims[d]) return;
      base -= point[d] * walk.base[d];
      point[d] = 0;
    }
  }
};

// f.template operator()<Index>() with the type of the indices.
template <class F>
GRADLOOM_INLINE void with_index(DType type, const F& f) {
  if (type == DType::i64) {
    f.template operator()<std::int64_t>();
  } else {
    f.template operator()<std::int32_t>();
  }
}

// ---- index_gather -----------------------------------------------------------------------------------------

template <class T, class Index>
void gather_elements(const IndexGatherArgs& args) {
  const T* const data = static_cast<const T*>(args.data);
  const Index* const indices = static_cast<const Index*>(args.indices);
  T* const out = static_cast<T*>(args.out);
  const i64 items = items_of(args.walk);
  parallel_pieces(items, 8192, items * 4, [&](i64 begin, i64 end) {
    Cursor cursor(args.walk, begin);
    for (i64 i = begin; i < end; ++i, cursor.next()) {
      const i64 place = moved(args.walk, indices, i, cursor.base);
      out[i] = place >= 0 ? data[place] : T(0);
    }
  });
}

template <class Index>
void gather_blocks(const IndexGatherArgs& args) {
  const i64 bytes = args.walk.block * i64(args.element_bytes), items = items_of(args.walk);
  const char* const data = static_cast<const char*>(args.data);
  const Index* const indices = static_cast<const Index*>(args.indices);
  char* const out = static_cast<char*>(args.out);
  parallel_pieces(items, larger(1, 32768 / bytes), items * bytes, [&](i64 begin, i64 end) {
    Cursor cursor(args.walk, begin);
    for (i64 i = begin; i < end; ++i, cursor.next()) {
      const i64 place = moved(args.walk, indices, i, cursor.base);
      if (place >= 0) {
        __builtin_memcpy(out + i * bytes, data + place * i64(args.element_bytes), std::size_t(bytes));
      } else {
        __builtin_memset(out + i * bytes, 0, std::size_t(bytes));
      }
    }
  });
}

// ---- index_scatter ----------------------------------------------------------------------------------------

struct Replace {
  template <class T>
  GRADLOOM_INLINE T operator()(T, T b) const {
    return b;
  }
};
struct Plus {
  template <class T>
  GRADLOOM_INLINE T operator()(T a, T b) const {
    return T(a + b);
  }
};
struct Times {
  template <class T>
  GRADLOOM_INLINE T operator()(T a, T b) const {
    return T(a * b);
  }
};
struct Larger {
  template <class T>
  GRADLOOM_INLINE T operator()(T a, T b) const {
    return max(a, b);
  }
};
struct Smaller {
  template <class T>
  GRADLOOM_INLINE T operator()(T a, T b) const {
    return min(a, b);
  }
};

// Columns: inner items of one element each, or the elements of one item's block.
constexpr i64 kScatterStrip = 1024;

template <class T, class Index, class Join>
void scatter_items(const IndexScatterArgs& args, const Join& join) {
  const IndexWalk& walk = args.walk;
  const Index* const indices = static_cast<const Index*>(args.indices);
  const T* const updates = static_cast<const T*>(args.updates);
  T* const out = static_cast<T*>(args.out);
  const i64 columns = walk.inner * walk.block, strips = ceil_div(columns, kScatterStrip);
  parallel_for(walk.outer * strips, walk.outer * walk.n * columns * 4, [&](i64 part) {
    const i64 o = part / strips, first = part % strips * kScatterStrip,
              last = smaller(columns, first + kScatterStrip);
    if (walk.inner > 1) {
      for (i64 k = 0; k < walk.n; ++k) {
        const i64 row = (o * walk.n + k) * walk.inner;
        Cursor cursor(walk, row + first);
        for (i64 i = row + first; i < row + last; ++i, cursor.next()) {
          const i64 place = moved(walk, indices, i, cursor.base);
          if (place >= 0) out[place] = join(out[place], updates[i]);
        }
      }
      return;
    }
    Cursor cursor(walk, o * walk.n);
    for (i64 i = o * walk.n; i < (o + 1) * walk.n; ++i, cursor.next()) {
      const i64 place = moved(walk, indices, i, cursor.base);
      if (place < 0) continue;
      const T* const from = updates + i * walk.block;
      T* const to = out + place;
#pragma GCC ivdep
      for (i64 c = first; c < last; ++c) to[c] = join(to[c], from[c]);
    }
  });
}

template <class T>
void scatter_replace(const IndexScatterArgs& args) {
  with_index(args.walk.index_dtype, [&]<class Index>() { scatter_items<T, Index>(args, Replace()); });
}

template <class T>
void scatter_reduce(const IndexScatterArgs& args) {
  with_index(args.walk.index_dtype, [&]<class Index>() {
    switch (args.reduction) {
      case ScatterReduction::add: return scatter_items<T, Index>(args, Plus());
      case ScatterReduction::mul: return scatter_items<T, Index>(args, Times());
      case ScatterReduction::max: return scatter_items<T, Index>(args, Larger());
      case ScatterReduction::min: return scatter_items<T, Index>(args, Smaller());
      case ScatterReduction::none: return scatter_items<T, Index>(args, Replace());
    }
  });
}

// ---- one_hot ----------------------------------------------------------------------------------------------

i64 number_at(DType type, const void* data, i64 i) {
  switch (type) {
    case DType::f32: return i64(static_cast<const float*>(data)[i]);
    case DType::f64: return i64(static_cast<const double*>(data)[i]);
    case DType::i64:
    case DType::u64: return static_cast<const i64*>(data)[i];
    case DType::u32: return static_cast<const std::uint32_t*>(data)[i];
    case DType::i16: return static_cast<const std::int16_t*>(data)[i];
    case DType::u16: return static_cast<const std::uint16_t*>(data)[i];
    case DType::i8: return static_cast<const std::int8_t*>(data)[i];
    case DType::u8: return static_cast<const std::uint8_t*>(data)[i];
    default: return static_cast<const std::int32_t*>(data)[i];
  }
}

template <class T>
void hot(const OneHotArgs& args) {
  const T off = static_cast<const T*>(args.values)[0], on = static_cast<const T*>(args.values)[1];
  T* const out = static_cast<T*>(args.out);
  const i64 rows = args.outer * args.depth, work = rows * args.inner;
  parallel_pieces(rows, larger(1, 8192 / larger(1, args.inner)), work, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row)
      for (i64 i = 0; i < args.inner; ++i) out[row * args.inner + i] = off;
    for (i64 o = begin / args.depth; o * args.depth < end; ++o)
      for (i64 i = 0; i < args.inner; ++i) {
        i64 k = number_at(args.index_dtype, args.indices, o * args.inner + i);
        k = k < 0 ? k + args.depth : k;
        const i64 row = o * args.depth + k;
        if (k >= 0 && k < args.depth && row >= begin && row < end) out[row * args.inner + i] = on;
      }
  });
}

}  // namespace

void index_gather(const IndexGatherArgs& args) {
  if (args.walk.block == 0) return;
  with_index(args.walk.index_dtype, [&]<class Index>() {
    if (args.walk.block > 1) return gather_blocks<Index>(args);
    switch (args.element_bytes) {
      case 1: return gather_elements<std::uint8_t, Index>(args);
      case 2: return gather_elements<std::uint16_t, Index>(args);
      case 4: return gather_elements<std::uint32_t, Index>(args);
      default: return gather_elements<std::uint64_t, Index>(args);
    }
  });
}

void index_scatter(const IndexScatterArgs& args) {
  if (items_of(args.walk) == 0) return;
  if (args.reduction == ScatterReduction::none) {
    switch (dtype_bytes(args.dtype)) {
      case 1: return scatter_replace<std::uint8_t>(args);
      case 2: return scatter_replace<std::uint16_t>(args);
      case 4: return scatter_replace<std::uint32_t>(args);
      default: return scatter_replace<std::uint64_t>(args);
    }
  }
  switch (args.dtype) {
    case DType::f64: return scatter_reduce<double>(args);
    case DType::i32: return scatter_reduce<std::int32_t>(args);
    case DType::i64: return scatter_reduce<std::int64_t>(args);
    default: return scatter_reduce<float>(args);
  }
}

void one_hot(const OneHotArgs& args) {
  if (args.depth == 0) return;
  switch (args.element_bytes) {
    case 1: return hot<std::uint8_t>(args);
    case 2: return hot<std::uint16_t>(args);
    case 4: return hot<std::uint32_t>(args);
    default: return hot<std::uint64_t>(args);
  }
}

void reverse_sequence(const ReverseSequenceArgs& args) {
  const char* const x = static_cast<const char*>(args.x);
  char* const y = static_cast<char*>(args.y);
  const i64 bytes = args.inner * i64(args.element_bytes), rows = args.batch * args.time;
  if (bytes == 0) return;
  parallel_pieces(rows, larger(1, 32768 / bytes), rows * bytes, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const i64 b = args.time_first ? row % args.batch : row / args.time;
      const i64 t = args.time_first ? row / args.batch : row % args.time;
      const i64 length = smaller(args.lengths[b], args.time), from = t < length ? length - 1 - t : t;
      const i64 source = args.time_first ? from * args.batch + b : b * args.time + from;
      __builtin_memcpy(y + row * bytes, x + source * bytes, std::size_t(bytes));
    }
  });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
