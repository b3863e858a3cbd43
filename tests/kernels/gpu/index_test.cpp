// Chosen places on the executor against the CPU's kernels, which work in the same order: the same bits but
// for bf16's accumulation.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

IndexWalk elements(DType index, i64 outer, i64 size, i64 n, i64 inner) {
  IndexWalk walk{};
  walk.index_dtype = index;
  walk.rank = 3;
  walk.depth = 1;
  walk.outer = outer;
  walk.n = n;
  walk.inner = inner;
  walk.block = 1;
  const i64 dims[] = {outer, n, inner}, base[] = {size * inner, 0, 1};
  for (int d = 0; d < 3; ++d) {
    walk.dims[d] = dims[d];
    walk.base[d] = base[d];
  }
  walk.sizes[0] = size;
  walk.steps[0] = inner;
  return walk;
}

// data [rows, cols, block], `n` pairs of indices.
IndexWalk tuples(i64 rows, i64 cols, i64 block, i64 n) {
  IndexWalk walk{};
  walk.index_dtype = DType::i64;
  walk.rank = 1;
  walk.depth = 2;
  walk.outer = walk.inner = 1;
  walk.n = walk.dims[0] = n;
  walk.block = block;
  walk.sizes[0] = rows;
  walk.sizes[1] = cols;
  walk.steps[0] = cols * block;
  walk.steps[1] = block;
  return walk;
}

template <class T>
void check(const IndexWalk& walk, i64 places, ScatterReduction reduction, i64 index_below,
           std::size_t offset = 0) {
  const i64 items = walk.outer * walk.n * walk.inner;
  const auto data = numbers<T>(places * walk.block, 1), updates = numbers<T>(items * walk.block, 2);
  Random random(3);
  std::vector<std::int64_t> indices;
  for (i64 i = 0; i < items * walk.depth; ++i)
    indices.push_back(random.below(2 * index_below) - index_below + (i % 11 == 5 ? 100 * index_below : 0));
  std::vector<Host<T>> scattered = data, gathered(updates.size());
  IndexScatterArgs scatter{cpu_dtype<T>(), reduction,        walk,   places, indices.data(),
                           updates.data(), scattered.data(), nullptr};
  cpu().index_scatter(scatter);
  cpu().index_gather({sizeof(Host<T>), walk, data.data(), indices.data(), gathered.data()});
  const Results gpu = on_device([&](Device& device) {
    IndexScatterArgs call = scatter;
    call.dtype = gpu_dtype<T>();
    call.indices = device.in<std::int64_t>(indices);
    call.updates = device.in<T>(updates, offset);
    call.out = device.inout<T>("scattered", data, offset);
    call.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, call));
    device.run(index_scatter, call);
    device.run(index_gather, IndexGatherArgs{sizeof(T), walk, device.in<T>(data, offset), call.indices,
                                             device.out<T>("gathered", gathered.size(), offset)});
  });
  const bool rounds = kHalf<T> && reduction != ScatterReduction::none;
  expect_close(gpu.get<T>("scattered"), widen(scattered),
               rounds ? Tolerance{2 * kUnit<T>, 2 * kUnit<T>} : Tolerance{0, 0}, "scattered");
  expect_close(gpu.get<T>("gathered"), widen(gathered), {0, 0}, "gathered");
}

template <class T>
class GpuIndex : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(GpuIndex, Types);

TYPED_TEST(GpuIndex, Elements) {
  for (const auto reduction : {ScatterReduction::none, ScatterReduction::add, ScatterReduction::mul,
                               ScatterReduction::max, ScatterReduction::min}) {
    check<TypeParam>(elements(DType::i64, 2, 5, 9, 3), 30, reduction, 5);
    check<TypeParam>(elements(DType::i64, 1, 3, 50, 1), 3, reduction, 3);
  }
  check<TypeParam>(elements(DType::i64, 3, 100, 40, 9), 2700, ScatterReduction::add, 100,
                   1);  // several passes of the sort
  check<TypeParam>(elements(DType::i64, 2, 4, 0, 3), 24, ScatterReduction::add, 4);
}

TYPED_TEST(GpuIndex, Tuples) {
  for (const i64 block : {1, 3, 8, 600}) {
    check<TypeParam>(tuples(3, 4, block, 20), 12, ScatterReduction::none, 3);
    check<TypeParam>(tuples(3, 4, block, 20), 12, ScatterReduction::add, 3, 1);
  }
}

template <class T>
void check_one_hot(i64 outer, i64 depth, i64 inner) {
  const auto indices = numbers<T>(outer * inner, 1, double(-depth - 2), double(depth + 2));
  const std::vector<float> hot = {-1, 9};
  std::vector<float> expected(std::size_t(outer * depth * inner));
  cpu().one_hot({4, cpu_dtype<T>(), outer, depth, inner, indices.data(), hot.data(), expected.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(one_hot, OneHotArgs{4, gpu_dtype<T>(), outer, depth, inner, device.in<T>(indices),
                                   device.in<float>(hot), device.out<float>("y", expected.size())});
  });
  EXPECT_EQ(gpu.get<float>("y"), expected);
}
TYPED_TEST(GpuIndex, OneHot) {
  check_one_hot<TypeParam>(7, 5, 1);
  check_one_hot<TypeParam>(3, 4, 90);
}

TEST(GpuReverseSequence, IsTheCpus) {
  const std::vector<std::int64_t> lengths = {0, 9, 3};
  for (const bool time_first : {false, true})
    for (const i64 inner : {1, 4, 150}) {
      const auto x = numbers<float>(15 * inner, 1);
      std::vector<float> expected(x.size());
      cpu().reverse_sequence({4, time_first, 3, 5, inner, x.data(), lengths.data(), expected.data()});
      const Results gpu = on_device([&](Device& device) {
        device.run(reverse_sequence,
                   ReverseSequenceArgs{4, time_first, 3, 5, inner, device.in<float>(x),
                                       device.in<std::int64_t>(lengths), device.out<float>("y", x.size())});
      });
      EXPECT_EQ(gpu.get<float>("y"), expected);
    }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
