// Strided copy, fill and gather on the executor: the same elements as on the CPU, in every element size.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

using Dims = std::vector<i64>;

// Starts are where the first element is; sizes are of the whole buffers.
// What the copy does not write must stay.
struct Copy {
  Dims dims, in_strides, out_strides;
  i64 in_size, out_size, in_start = 0, out_start = 0;
  std::size_t offset = 0;  // of both buffers from a 256-byte boundary, in elements
};

template <class T>
void check_copy(const Copy& c) {
  std::vector<T> in(std::size_t(c.in_size)), out(std::size_t(c.out_size), T(99));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = T(i * 7 + 3);
  StridedCopyArgs args{};
  args.element_bytes = sizeof(T);
  args.rank = int(c.dims.size());
  for (std::size_t d = 0; d < c.dims.size(); ++d) {
    args.dims[d] = c.dims[d];
    args.in_strides[d] = c.in_strides[d];
    args.out_strides[d] = c.out_strides[d];
  }
  const Results gpu = on_device([&](Device& device) {
    StridedCopyArgs call = args;
    call.in = device.in<T>(in, c.offset) + c.in_start;
    call.out = device.inout<T>("out", out, c.offset) + c.out_start;
    device.run(strided_copy, call);
  });
  args.in = in.data() + c.in_start;
  args.out = out.data() + c.out_start;
  cpu().strided_copy(args);
  EXPECT_EQ(gpu.get<T>("out"), out) << "rank " << args.rank << ", first dim "
                                    << (args.rank > 0 ? args.dims[0] : 0) << ", bytes " << sizeof(T);
}

template <class T>
class GpuMovement : public testing::Test {};
using Sizes = testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(GpuMovement, Sizes);

TYPED_TEST(GpuMovement, CopiesRunsThatAreContiguousOnBothSides) {
  check_copy<TypeParam>({{}, {}, {}, 1, 1});
  check_copy<TypeParam>({{1}, {1}, {1}, 1, 1});
  check_copy<TypeParam>({{0}, {1}, {1}, 0, 0});
  check_copy<TypeParam>({{5, 0, 3}, {0, 3, 1}, {0, 3, 1}, 0, 0});
  check_copy<TypeParam>({{10007}, {1}, {1}, 10007, 10007});
  check_copy<TypeParam>({{4096}, {1}, {1}, 4096, 4096});
  check_copy<TypeParam>({{4095}, {1}, {1}, 4096, 4096, 1, 0});      // sides not aligned alike
  check_copy<TypeParam>({{512}, {1}, {1}, 512, 512, 0, 0, 1});      // no 16-byte boundary at all
  check_copy<TypeParam>({{50, 32}, {32, 1}, {64, 1}, 1600, 3200});  // piece of a concat
  check_copy<TypeParam>({{50, 30}, {30, 1}, {67, 1}, 1500, 3350});
  check_copy<TypeParam>(
      {{4, 16, 4, 32}, {2048, 32, 512, 1}, {2048, 128, 32, 1}, 8192, 8192});  // heads to columns
  check_copy<TypeParam>({{97, 64}, {0, 1}, {64, 1}, 64, 97 * 64});            // expand rows
}

TYPED_TEST(GpuMovement, Transposes) {
  check_copy<TypeParam>({{37, 41}, {1, 37}, {41, 1}, 37 * 41, 37 * 41});
  check_copy<TypeParam>({{192, 64}, {1, 192}, {64, 1}, 192 * 64, 192 * 64});
  check_copy<TypeParam>({{64, 16}, {1, 64}, {16, 1}, 1024, 1024});
  check_copy<TypeParam>({{64, 15}, {1, 64}, {15, 1}, 960, 960});  // too short for tiles
  check_copy<TypeParam>({{3, 33, 65}, {33 * 65, 1, 33}, {33 * 65, 65, 1}, 3 * 33 * 65, 3 * 33 * 65});
  check_copy<TypeParam>({{5, 20, 3, 70}, {1, 5, 7000, 100}, {4200, 210, 70, 1}, 21000, 21000});
  check_copy<TypeParam>({{17, 2, 33}, {1, 561, 17}, {33, 561, 1}, 1122, 1122});
  check_copy<TypeParam>({{40, 40}, {1, 50}, {60, 1}, 2000, 2400, 3, 5});  // of a piece into a piece
}

TYPED_TEST(GpuMovement, CopiesAnyStrides) {
  check_copy<TypeParam>({{1009}, {-1}, {1}, 1009, 1009, 1008});  // reversed
  check_copy<TypeParam>({{20, 30}, {-30, -1}, {30, 1}, 600, 600, 599});
  check_copy<TypeParam>({{30, 20}, {-1, 30}, {20, 1}, 600, 600, 29});
  check_copy<TypeParam>({{7, 13}, {1, 0}, {13, 1}, 7, 91});         // expand columns
  check_copy<TypeParam>({{50, 30}, {60, 2}, {30, 1}, 3000, 1500});  // slice with steps
  check_copy<TypeParam>({{300, 3}, {3, 1}, {1, 300}, 900, 900});    // columns out
  check_copy<TypeParam>({{12, 12}, {1000, 7}, {12, 1}, 12000, 144});
  check_copy<TypeParam>({{2, 3, 5, 7, 2, 3}, {630, 210, 42, 6, 3, 1}, {1, 2, 6, 30, 210, 420}, 1260, 1260});
  check_copy<TypeParam>(
      {{2, 2, 3, 2, 3, 2, 2, 3}, {1, 2, 4, 12, 24, 72, 144, 288}, {432, 216, 72, 36, 12, 6, 3, 1}, 864, 864});
  check_copy<TypeParam>({{3, 1, 5, 1}, {5, 77, 1, 99}, {5, 5, 1, 1}, 15, 15});
}

TYPED_TEST(GpuMovement, Fills) {
  const TypeParam value = TypeParam(0xA1B2C3D4E5F60718ull);
  for (const i64 n : {0, 1, 3, 17, 4096, 10007}) {
    for (const std::size_t offset : {0, 1}) {
      const Results gpu = on_device([&](Device& device) {
        device.run(fill, FillArgs{sizeof(TypeParam), n, &value,
                                  device.out<TypeParam>("out", std::size_t(n), offset)});
      });
      EXPECT_EQ(gpu.get<TypeParam>("out"), std::vector<TypeParam>(std::size_t(n), value)) << n;
    }
  }
}

template <class T, class Index>
void check_gather(i64 outer, i64 axis, i64 inner, i64 count, std::size_t offset = 0) {
  std::vector<T> data(std::size_t(outer * axis * inner));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = T(i * 31 + 1);
  Random random(3);
  std::vector<Index> indices;
  for (i64 k = 0; k < count; ++k) indices.push_back(Index(random.below(2 * axis) - axis));
  if (count > 3) {  // out of range: zeros
    indices[2] = Index(axis);
    indices[3] = Index(-axis - 1);
  }
  std::vector<T> out(std::size_t(outer * count * inner), T(9));
  constexpr DType kIndex = sizeof(Index) == 8 ? DType::i64 : DType::i32;
  cpu().gather({sizeof(T), kIndex, outer, axis, inner, count, data.data(), indices.data(), out.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(gather, GatherArgs{sizeof(T), kIndex, outer, axis, inner, count, device.in<T>(data, offset),
                                  device.in<Index>(indices), device.out<T>("out", out.size(), offset)});
  });
  EXPECT_EQ(gpu.get<T>("out"), out);
}

TYPED_TEST(GpuMovement, Gathers) {
  check_gather<TypeParam, std::int64_t>(1, 50, 128, 40);
  check_gather<TypeParam, std::int32_t>(1, 50, 128, 40, 1);
  check_gather<TypeParam, std::int32_t>(3, 17, 5, 29);
  check_gather<TypeParam, std::int64_t>(2, 19, 1, 1000);
  check_gather<TypeParam, std::int32_t>(1, 1, 7, 9);
  check_gather<TypeParam, std::int32_t>(1, 5, 1, 0);
  check_gather<TypeParam, std::int64_t>(0, 5, 4, 3);
  check_gather<TypeParam, std::int64_t>(3, 5, 0, 3);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
