#include "viz/model/selection_sums.h"

#include <gtest/gtest.h>

#include "viz/model/axis.h"

namespace gradloom {
namespace {

TEST(SelectionSums, OfKernelsTimeShareAndBytesAdd) {
  KernelLine a, b, untimed;
  a.time_ns = 1.5e6, a.share = 0.15, a.bytes = 1 << 20;
  b.time_ns = 0.5e6, b.share = 0.05, b.bytes = 3 << 20, b.count = 4;
  EXPECT_EQ(kernels_sum_text({&a, &b}), "5 kernels: 2.00 ms per step, 20.0 %, 4.00 MiB moved");
  untimed.bytes = 1 << 20;
  EXPECT_EQ(kernels_sum_text({&untimed}), "1 kernel: 1.00 MiB moved");
  EXPECT_EQ(kernels_sum_text({&untimed, &b}), "5 kernels: 500 us per step, 5.0 %, 4.00 MiB moved");
  const KernelLine nothing;
  EXPECT_EQ(kernels_sum_text({&nothing}), "1 kernel: not timed");
}

TEST(SelectionSums, OfBuffersBytesAdd) {
  MemoryBlock a, b;
  a.bytes = 1 << 20;
  b.bytes = 3 << 20;
  EXPECT_EQ(buffers_sum_text({&a, &b}, 16 << 20), "2 buffers: 4.00 MiB, 25.0 % of 16.0 MiB");
}

TEST(SelectionSums, OfComparedRowsBothSidesAdd) {
  ComparedRow a, b;
  a.a_ns = 2e6, a.b_ns = 1e6;
  b.a_ns = 1e6, b.b_ns = 1.5e6;
  EXPECT_EQ(compared_sum_text({&a, &b}),
            "2 rows: 3.00 ms in A, 2.50 ms in B, " + format_change(-0.5e6, Unit::kNs));
}

}  // namespace
}  // namespace gradloom
