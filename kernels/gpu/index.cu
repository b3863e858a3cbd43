// Kernels that read and write places which indices choose.
//   index_gather       out[i, :] = data[place(i), :]
//   index_scatter      out[place(i), :] reduced with updates[i, :], in order of i: the items are sorted by place, stable (sort.h); then one
//                      thread per element of a place takes its items in order. A replaced element takes the last one.
//   one_hot            values[1] at the index, values[0] elsewhere
//   reverse_sequence   the first lengths[b] positions of a sequence turned around
// Moves go in units of up to 16 bytes.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/sort.h"
#include "kernels/index_walk.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 256;

struct alignas(16) Bytes16 {
  unsigned v[4];
};

GRADLOOM_DEVICE i64 thread_number() { return i64(blockIdx.x) * kThreads + i64(threadIdx.x); }
dim3 grid_of(i64 threads) { return dim3(unsigned(ceil_div(threads, kThreads))); }

// The largest unit that divides `bytes` and both addresses.
int unit_of(i64 bytes, const void* a, const void* b) {
  const auto bits = static_cast<unsigned long long>(bytes) | reinterpret_cast<unsigned long long>(a) |
                    reinterpret_cast<unsigned long long>(b);
  int unit = 16;
  while (bits % static_cast<unsigned>(unit) != 0) unit /= 2;
  return unit;
}

// f.template operator()<T>() with an element type of that many bytes.
template <class F>
void with_bytes(int bytes, const F& f) {
  switch (bytes) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::uint16_t>();
    case 4: return f.template operator()<std::uint32_t>();
    case 8: return f.template operator()<std::uint64_t>();
    default: return f.template operator()<Bytes16>();
  }
}
template <class F>
void with_index(DType type, const F& f) {
  if (type == DType::i64) {
    f.template operator()<std::int64_t>();
  } else {
    f.template operator()<std::int32_t>();
  }
}

// Where the items begin before their indices move them, without divisions.
struct Items {
  IndexWalk walk;
  Divider by[kEwMaxRank];
  explicit Items(const IndexWalk& walk_) : walk(walk_) {
    for (int d = 0; d < walk.rank; ++d) by[d] = Divider(walk.dims[d], items_of(walk));
  }
  template <class Index>
  GRADLOOM_DEVICE i64 place(const Index* indices, i64 item) const {
    i64 base = 0, number = item;
    for (int d = walk.rank - 1; d >= 0; --d) {
      const i64 rest = by[d](number);
      base += (number - rest * by[d].divisor) * walk.base[d];
      number = rest;
    }
    return moved(walk, indices, item, base);
  }
};

// ---- index_gather -----------------------------------------------------------------------------------------------------------------

// units: of a block; factor: elements per unit.
template <class T, class Index>
__global__ void __launch_bounds__(kThreads) gather_places(Items items, i64 count, Divider units, i64 factor,
                                                          const T* data, const Index* indices, T* out) {
  const i64 i = thread_number();
  if (i >= count) return;
  const i64 item = units(i), place = items.place(indices, item);
  out[i] = place >= 0 ? data[place / factor + (i - item * units.divisor)] : T{};
}

// ---- index_scatter ----------------------------------------------------------------------------------------------------------------

template <class Index>
struct FromPlaces {
  Items items;
  const Index* indices;
  i64 places;
  GRADLOOM_DEVICE Entry operator()(i64 item) const {
    const i64 place = items.place(indices, item);
    return {place >= 0 ? place / items.walk.block : places, item};
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) scatter_last(const Entry* sorted, i64 count, i64 places,
                                                         i64 total, Divider block, const T* updates, T* out) {
  const i64 i = thread_number();
  if (i >= total) return;
  const i64 at = block(i), column = i - at * block.divisor;
  const Entry entry = sorted[at];
  if (entry.row >= places || (at + 1 < count && sorted[at + 1].row == entry.row)) return;
  out[entry.row * block.divisor + column] = updates[entry.k * block.divisor + column];
}

template <class A>
GRADLOOM_DEVICE A joined(ScatterReduction reduction, A a, A b) {
  switch (reduction) {
    case ScatterReduction::add: return a + b;
    case ScatterReduction::mul: return a * b;
    case ScatterReduction::max: return max(a, b);
    case ScatterReduction::min: return min(a, b);
    case ScatterReduction::none: return b;
  }
  return b;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_sums(const Entry* sorted, i64 count, i64 places, i64 total, Divider block,
                 ScatterReduction reduction, const T* updates, T* out) {
  const i64 i = thread_number();
  if (i >= total) return;
  i64 at = block(i);
  const i64 column = i - at * block.divisor, row = sorted[at].row;
  if (row >= places || (at > 0 && sorted[at - 1].row == row)) return;
  T* const to = out + row * block.divisor + column;
  Accum<T> sum = to_accum(*to);
  for (; at < count && sorted[at].row == row; ++at)
    sum = joined(reduction, sum, to_accum(updates[sorted[at].k * block.divisor + column]));
  *to = from_accum<T>(sum);
}

template <class T>
void reduce_places(const IndexScatterArgs& args, const Entry* sorted, i64 count, Stream stream) {
  const i64 total = count * args.walk.block;
  launch(stream, scatter_sums<T>, grid_of(total), dim3(kThreads), 0, sorted, count, args.places, total,
         Divider(args.walk.block, total), args.reduction, static_cast<const T*>(args.updates),
         static_cast<T*>(args.out));
}

void replace_places(const IndexScatterArgs& args, const Entry* sorted, i64 count, Stream stream) {
  const i64 bytes = args.walk.block * i64(dtype_bytes(args.dtype));
  with_bytes(unit_of(bytes, args.updates, args.out), [&]<class T>() {
    const i64 units = bytes / i64(sizeof(T)), total = count * units;
    launch(stream, scatter_last<T>, grid_of(total), dim3(kThreads), 0, sorted, count, args.places, total,
           Divider(units, total), static_cast<const T*>(args.updates), static_cast<T*>(args.out));
  });
}

// ---- one_hot ----------------------------------------------------------------------------------------------------------------------

GRADLOOM_DEVICE i64 number_at(DType type, const void* data, i64 i) {
  switch (type) {
    case DType::f32: return i64(static_cast<const float*>(data)[i]);
    case DType::f16: return i64(to_float(static_cast<const f16*>(data)[i]));
    case DType::bf16: return i64(to_float(static_cast<const bf16*>(data)[i]));
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
__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(DType index_type, i64 count, Divider inner, Divider depth, const void* indices,
                   const T* values, T* out) {
  const i64 i = thread_number();
  if (i >= count) return;
  const i64 row = inner(i), o = depth(row);
  i64 k = number_at(index_type, indices, o * inner.divisor + (i - row * inner.divisor));
  k = k < 0 ? k + depth.divisor : k;
  out[i] = values[k == row - o * depth.divisor ? 1 : 0];
}

// ---- reverse_sequence -------------------------------------------------------------------------------------------------------------

// Rows [major, minor]: time and batch in the order of memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    reverse_kernel(bool time_first, i64 batch, i64 time, i64 count, Divider units, Divider minor, const T* x,
                   const std::int64_t* lengths, T* y) {
  const i64 i = thread_number();
  if (i >= count) return;
  const i64 row = units(i), high = minor(row), low = row - high * minor.divisor;
  const i64 b = time_first ? low : high, t = time_first ? high : low;
  const i64 length = min(lengths[b], time), from = t < length ? length - 1 - t : t;
  const i64 source = time_first ? from * batch + b : b * time + from;
  y[i] = x[source * units.divisor + (i - row * units.divisor)];
}

}  // namespace

void index_gather(const IndexGatherArgs& args, Stream stream) {
  const i64 count = items_of(args.walk), bytes = args.walk.block * i64(args.element_bytes);
  if (count * bytes == 0) return;
  with_bytes(unit_of(bytes, args.data, args.out), [&]<class T>() {
    with_index(args.walk.index_dtype, [&]<class Index>() {
      const i64 units = bytes / i64(sizeof(T)), total = count * units;
      launch(stream, gather_places<T, Index>, grid_of(total), dim3(kThreads), 0, Items(args.walk), total,
             Divider(units, total), i64(sizeof(T)) / i64(args.element_bytes),
             static_cast<const T*>(args.data), static_cast<const Index*>(args.indices),
             static_cast<T*>(args.out));
    });
  });
}

void index_scatter(const IndexScatterArgs& args, Stream stream) {
  const i64 count = items_of(args.walk);
  if (count * args.walk.block == 0) return;
  const Entry* sorted = nullptr;
  with_index(args.walk.index_dtype, [&]<class Index>() {
    sorted = sort_entries(
        FromPlaces<Index>{Items(args.walk), static_cast<const Index*>(args.indices), args.places}, count,
        args.places, args.workspace, stream);
  });
  if (args.reduction == ScatterReduction::none) return replace_places(args, sorted, count, stream);
  switch (args.dtype) {
    case DType::f64: return reduce_places<double>(args, sorted, count, stream);
    case DType::f16: return reduce_places<f16>(args, sorted, count, stream);
    case DType::bf16: return reduce_places<bf16>(args, sorted, count, stream);
    case DType::i32: return reduce_places<std::int32_t>(args, sorted, count, stream);
    case DType::i64: return reduce_places<std::int64_t>(args, sorted, count, stream);
    default: return reduce_places<float>(args, sorted, count, stream);
  }
}

void one_hot(const OneHotArgs& args, Stream stream) {
  const i64 count = args.outer * args.depth * args.inner;
  if (count == 0) return;
  with_bytes(int(args.element_bytes), [&]<class T>() {
    launch(stream, one_hot_kernel<T>, grid_of(count), dim3(kThreads), 0, args.index_dtype, count,
           Divider(args.inner, count), Divider(args.depth, count), args.indices,
           static_cast<const T*>(args.values), static_cast<T*>(args.out));
  });
}

void reverse_sequence(const ReverseSequenceArgs& args, Stream stream) {
  const i64 bytes = args.inner * i64(args.element_bytes), rows = args.batch * args.time;
  if (rows * bytes == 0) return;
  with_bytes(unit_of(bytes, args.x, args.y), [&]<class T>() {
    const i64 units = bytes / i64(sizeof(T)), count = rows * units;
    launch(stream, reverse_kernel<T>, grid_of(count), dim3(kThreads), 0, args.time_first, args.batch,
           args.time, count, Divider(units, count), Divider(args.time_first ? args.batch : args.time, count),
           static_cast<const T*>(args.x), args.lengths, static_cast<T*>(args.y));
  });
}

}  // namespace gradloom::kernels::gpu
