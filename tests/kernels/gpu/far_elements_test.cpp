// Elements beyond the 2^31st, in address space of which only the pages that are touched have memory. Of kernels that go through all of a
// tensor only the last blocks run, which are those of the elements behind all others.
#include "tests/kernels/gpu/sparse_memory.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr i64 kFar = (i64(1) << 30) + 64;  // of three rows so far apart the last begins behind 2^31 elements

#define REQUIRE_SPARSE(memory) \
  if ((memory).data() == nullptr) GTEST_SKIP() << "the system gives no address space without memory"

TEST(GpuFarElements, AreGathered) {
  const i64 rows = 3 * (i64(1) << 30), inner = 2;
  const SparseMemory<std::uint16_t> table(rows * inner);
  REQUIRE_SPARSE(table);
  const std::vector<std::int64_t> indices{rows - 1,           0, (i64(1) << 30) - 1, i64(1) << 30,
                                          (i64(1) << 31) + 5, -3};
  std::vector<std::uint16_t> expected;
  for (std::size_t i = 0; i < indices.size(); ++i)
    for (i64 column = 0; column < inner; ++column) {
      const i64 row = indices[i] < 0 ? indices[i] + rows : indices[i];
      expected.push_back(std::uint16_t(100 + 10 * i + std::size_t(column)));
      table.data()[row * inner + column] = expected.back();
    }
  const Results gpu = on_device([&](Device& device) {
    device.run(gather, GatherArgs{2, DType::i64, 1, rows, inner, i64(indices.size()), table.data(),
                                  device.in<std::int64_t>(indices),
                                  device.out<std::uint16_t>("out", expected.size())});
  });
  EXPECT_EQ(gpu.get<std::uint16_t>("out"), expected);
}

// From rows that are far apart, in their order and turned, and back to such rows.
TEST(GpuFarElements, AreCopied) {
  constexpr i64 kRows = 4, kColumns = 40;
  const SparseMemory<float> from(kRows * kFar), to(kRows * kFar);
  REQUIRE_SPARSE(from);
  REQUIRE_SPARSE(to);
  for (i64 row = 0; row < kRows; ++row)
    for (i64 column = 0; column < kColumns; ++column)
      from.data()[row * kFar + column] = float(row * 100 + column);
  const Results gpu = on_device([&](Device& device) {
    const auto copy = [&](std::vector<i64> dims, std::vector<i64> in, std::vector<i64> out,
                          const float* source, float* target) {
      StridedCopyArgs args{};
      args.element_bytes = sizeof(float);
      args.rank = 2;
      for (std::size_t d = 0; d < 2; ++d) {
        args.dims[d] = dims[d];
        args.in_strides[d] = in[d];
        args.out_strides[d] = out[d];
      }
      args.in = source;
      args.out = target;
      device.run(strided_copy, args);
    };
    float* const turned = device.out<float>("turned", kRows * kColumns);
    copy({kColumns, kRows}, {1, kFar}, {kRows, 1}, from.data(), turned);
    copy({kRows, kColumns}, {1, kRows}, {kFar, 1}, turned, to.data());
    copy({kRows, kColumns}, {kFar, 1}, {kColumns, 1}, to.data(),
         device.out<float>("again", kRows * kColumns));
  });
  const auto turned = gpu.get<float>("turned"), again = gpu.get<float>("again");
  for (i64 row = 0; row < kRows; ++row)
    for (i64 column = 0; column < kColumns; ++column) {
      ASSERT_EQ(turned[std::size_t(column * kRows + row)], float(row * 100 + column));
      ASSERT_EQ(again[std::size_t(row * kColumns + column)], float(row * 100 + column));
    }
}

// c[b] = a[b] right[b], each matrix with rows that are far apart, and the matrices of a batch behind one another.
template <class T>
void check_product() {
  constexpr i64 kM = 3, kN = 5, kK = 4, kBatch = 2, kMatrix = 4 * kFar;
  const SparseMemory<T> a(kBatch * kMatrix), right(kBatch * kMatrix), c(kBatch * kMatrix);
  REQUIRE_SPARSE(a);
  REQUIRE_SPARSE(right);
  REQUIRE_SPARSE(c);
  const auto x = numbers<T>(kBatch * kM * kK, 1), y = numbers<T>(kBatch * kK * kN, 2);
  for (i64 b = 0; b < kBatch; ++b)
    for (i64 k = 0; k < kK; ++k) {
      for (i64 i = 0; i < kM; ++i)
        a.data()[b * kMatrix + i * kFar + k] = to_device<T>(x[std::size_t((b * kM + i) * kK + k)]);
      for (i64 j = 0; j < kN; ++j)
        right.data()[b * kMatrix + k * kFar + j] = to_device<T>(y[std::size_t((b * kK + k) * kN + j)]);
    }
  GemmArgs args{};
  args.dtype = gpu_dtype<T>();
  args.batch_rank = 1;
  args.batch_dims[0] = kBatch;
  args.a_batch[0] = args.b_batch[0] = args.c_batch[0] = kMatrix;
  args.m = kM, args.n = kN, args.k = kK;
  args.a_row = args.b_row = args.c_row = kFar;
  args.a_col = args.b_col = args.c_col = 1;
  args.alpha = 1;
  args.a = a.data();
  args.b = right.data();
  args.c = c.data();
  on_device([&](Device& device) { device.run(gemm, args); });
  std::vector<double> expected;
  std::vector<Host<T>> found;
  for (i64 b = 0; b < kBatch; ++b)
    for (i64 i = 0; i < kM; ++i)
      for (i64 j = 0; j < kN; ++j) {
        double sum = 0;
        for (i64 k = 0; k < kK; ++k)
          sum +=
              double(x[std::size_t((b * kM + i) * kK + k)]) * double(y[std::size_t((b * kK + k) * kN + j)]);
        expected.push_back(sum);
        found.push_back(to_host(c.data()[b * kMatrix + i * kFar + j]));
      }
  expect_close(found, expected, tolerance<T>({1e-6, 1e-6}), "c");
}

TEST(GpuFarElements, AreMultiplied) { check_product<float>(); }
TEST(GpuFarElements, OfHalfTypesAreMultiplied) { check_product<f16>(); }

// ---- rows, of which the last ones lie beyond --------------------------------------------------------------------------------------

constexpr i64 kColumns = 4096, kRows = (i64(1) << 31) / kColumns + 3, kLast = 2;
constexpr std::size_t kRowCount = kRows, kColumnCount = kColumns;

// The last rows of a tensor of zeros.
struct FarRows {
  SparseMemory<float> memory{kRows * kColumns};
  float* last() const { return memory.data() + (kRows - kLast) * kColumns; }
  void put(const std::vector<float>& values) const { std::copy(values.begin(), values.end(), last()); }
  std::vector<float> get() const { return {last(), last() + kLast * kColumns}; }
};

void run_last_blocks(const std::function<void(Device&)>& run, unsigned long long blocks = kLast) {
  Device device({.last_blocks = blocks});
  run(device);
  if (device.fault()) {
    ADD_FAILURE() << device.fault()->text;
  }
  device.finish();
}

TEST(GpuFarElements, AreNormalizedBySoftmax) {
  const FarRows x, y, dx;
  REQUIRE_SPARSE(x.memory);
  REQUIRE_SPARSE(y.memory);
  REQUIRE_SPARSE(dx.memory);
  const auto values_x = values<float>(kLast * kColumns, 1), dy = values<float>(kLast * kColumns, 2);
  std::vector<float> expected(values_x.size()), gradient = expected;
  SoftmaxArgs cpu_args{DType::f32, false, kLast, kColumns, 1, values_x.data(), expected.data()};
  cpu().softmax(cpu_args);
  cpu().softmax_grad({DType::f32, false, kLast, kColumns, 1, dy.data(), expected.data(), gradient.data()});
  x.put(values_x);
  run_last_blocks([&](Device& device) {
    device.run(softmax, SoftmaxArgs{DType::f32, false, kRows, kColumns, 1, x.memory.data(), y.memory.data()});
  });
  expect_close(y.get(), widen(expected), {1e-5, 1e-7}, "y");
  x.put(dy);
  run_last_blocks([&](Device& device) {
    device.run(softmax_grad, SoftmaxGradArgs{DType::f32, false, kRows, kColumns, 1, x.memory.data(),
                                             y.memory.data(), dx.memory.data()});
  });
  expect_close(dx.get(), widen(gradient), {1e-4, 1e-7}, "dx");
}

TEST(GpuFarElements, AreNormalizedByLayers) {
  const FarRows x, y, dy;
  REQUIRE_SPARSE(x.memory);
  REQUIRE_SPARSE(y.memory);
  REQUIRE_SPARSE(dy.memory);
  const auto values_x = values<float>(kLast * kColumns, 1), values_dy = values<float>(kLast * kColumns, 2),
             scale = values<float>(kColumns, 3), bias = values<float>(kColumns, 4);
  std::vector<float> expected(values_x.size()), gradient = expected, mean(kLast), inv_std(kLast),
                                                unused(kColumnCount);
  cpu().layer_norm({DType::f32, kLast, kColumns, 1e-5, values_x.data(), scale.data(), bias.data(),
                    expected.data(), mean.data(), inv_std.data()});
  LayerNormGradArgs of_cpu{DType::f32,      kLast,         kColumns,     values_dy.data(),
                           values_x.data(), scale.data(),  mean.data(),  inv_std.data(),
                           gradient.data(), unused.data(), unused.data()};
  std::vector<double> space(workspace_bytes(Target::cpu, of_cpu) / sizeof(double) + 1);
  of_cpu.workspace = space.data();
  cpu().layer_norm_grad(of_cpu);
  x.put(values_x);
  std::vector<float> means(kRowCount), deviations = means;
  run_last_blocks([&](Device& device) {
    device.run(layer_norm,
               LayerNormArgs{DType::f32, kRows, kColumns, 1e-5, x.memory.data(), device.in<float>(scale),
                             device.in<float>(bias), y.memory.data(), means.data(), deviations.data()});
  });
  expect_close(y.get(), widen(expected), {2e-5, 1e-5}, "y");
  dy.put(values_dy);
  // The last part of the rows begins before these.
  run_last_blocks(
      [&](Device& device) {
        LayerNormGradArgs args{DType::f32,
                               kRows,
                               kColumns,
                               dy.memory.data(),
                               x.memory.data(),
                               device.in<float>(scale),
                               means.data(),
                               deviations.data(),
                               y.memory.data(),
                               device.out<float>("dscale", kColumnCount),
                               device.out<float>("dbias", kColumnCount)};
        args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
        device.run(layer_norm_grad, args);
      },
      1);
  expect_close(y.get(), widen(gradient), {5e-5, 1e-5}, "dx");
}

TEST(GpuFarElements, AreAddedUp) {
  const FarRows x;
  REQUIRE_SPARSE(x.memory);
  const auto values_x = values<float>(kLast * kColumns, 1);
  x.put(values_x);
  std::vector<double> expected(kLast);
  for (std::size_t i = 0; i < values_x.size(); ++i) expected[i / kColumnCount] += double(values_x[i]);
  std::vector<float> sums(kRowCount);
  run_last_blocks([&](Device& device) {
    device.run(reduce, ReduceArgs{DType::f32, Reduction::sum, kRows, kColumns, 1, x.memory.data(),
                                  sums.data(), nullptr});
  });
  expect_close(std::vector<float>(sums.end() - kLast, sums.end()), expected, {1e-5, 1e-4}, "sums");
}

// Loss and gradient by two kernels, and by one in place.
TEST(GpuFarElements, HaveLosses) {
  const FarRows x, dx;
  REQUIRE_SPARSE(x.memory);
  REQUIRE_SPARSE(dx.memory);
  const auto values_x = values<float>(kLast * kColumns, 1);
  const std::vector<i64> label_values{5, kColumns - 1};
  const float dloss = 0.75f, one = 1;
  const std::vector<float> each(kLast, dloss);
  std::vector<float> expected(values_x.size()), loss(kLast), lse(kLast), total(1);
  std::vector<double> space(2 * kLast);
  cpu().softmax_cross_entropy({DType::f32, DType::i64, LossReduction::none, kLast, kColumns, 1, false, 0,
                               values_x.data(), label_values.data(), nullptr, loss.data(), lse.data(),
                               total.data(), space.data()});
  cpu().softmax_cross_entropy_grad({DType::f32, DType::i64, LossReduction::none, kLast, kColumns, 1, false, 0,
                                    each.data(), values_x.data(), label_values.data(), nullptr, lse.data(),
                                    &one, expected.data()});
  std::vector<i64> labels(kRowCount, 0);
  std::copy(label_values.begin(), label_values.end(), labels.end() - kLast);
  std::vector<float> losses(kRowCount), sums = losses, up(kRowCount, dloss);
  for (const bool whole : {false, true}) {
    x.put(values_x);
    run_last_blocks([&](Device& device) {
      SoftmaxCrossEntropyArgs args{};
      args.dtype = args.losses = DType::f32;
      args.label_dtype = DType::i64;
      args.outer = kRows;
      args.n = kColumns;
      args.inner = 1;
      args.logits = x.memory.data();
      args.labels = labels.data();
      args.loss = losses.data();
      args.log_sum_exp = sums.data();
      args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
      if (whole) {
        args.dloss = &dloss;
        args.dlogits = x.memory.data();
      }
      device.run(softmax_cross_entropy, args);
      if (whole) return;
      device.run(softmax_cross_entropy_grad,
                 SoftmaxCrossEntropyGradArgs{DType::f32, DType::i64, LossReduction::none, kRows, kColumns, 1,
                                             false, 0, up.data(), x.memory.data(), labels.data(), nullptr,
                                             sums.data(), nullptr, dx.memory.data()});
    });
    expect_close(std::vector<float>(losses.end() - kLast, losses.end()), widen(loss), {1e-5, 1e-5}, "loss");
    expect_close((whole ? x : dx).get(), widen(expected), {1e-4, 1e-7}, "dlogits");
  }
}

// w <- w - lr g of the last elements of one tensor.
TEST(GpuFarElements, AreUpdated) {
  constexpr std::int64_t kCount = (i64(1) << 31) + 100;
  const SparseMemory<float> parameter(kCount), gradient(kCount);
  REQUIRE_SPARSE(parameter);
  REQUIRE_SPARSE(gradient);
  float* const w = parameter.data() + kCount - 100;
  for (i64 i = 0; i < 100; ++i) {
    w[i] = float(i);
    gradient.data()[kCount - 100 + i] = float(2 * i + 1);
  }
  const double lr = 0.5;
  const std::int64_t step = 1;
  const void* const grads[] = {gradient.data()};
  const void* const params[] = {parameter.data()};
  void* const out[] = {parameter.data()};
  OptimizerArgs args{};
  args.dtype = DType::f32;
  args.kind = OptimizerKind::sgd;
  args.count = 1;
  args.sizes = &kCount;
  args.lr_factor = 1;
  args.lr = &lr;
  args.step = &step;
  args.grad = grads;
  args.param = params;
  args.param_out = out;
  run_last_blocks([&](Device& device) { device.run(optimizer, args); }, 1);
  for (i64 i = 0; i < 100; ++i) EXPECT_FLOAT_EQ(w[i], float(i) - 0.5f * float(2 * i + 1)) << i;
}

// Heads that are far apart, and their gradients.
TEST(GpuFarElements, Attend) {
  constexpr i64 kHeads = 3, kQueries = 5, kKeys = 7, kD = 8;
  constexpr i64 kBehind = 1024;  // gradients, behind the operands in the same memory
  const SparseMemory<f16> q(kHeads * kFar), k(kHeads * kFar), v(kHeads * kFar), y(kHeads * kFar);
  for (const auto* memory : {&q, &k, &v, &y}) REQUIRE_SPARSE(*memory);
  const auto run = [&](bool far) {
    FlashAttentionArgs a{};
    a.dtype = DType::f16;
    a.batch_rank = 1;
    a.batch_dims[0] = kHeads;
    a.q_batch[0] = a.y_batch[0] = far ? kFar : kQueries * kD;
    a.k_batch[0] = a.v_batch[0] = far ? kFar : kKeys * kD;
    a.rows = kQueries;
    a.keys = a.reach = kKeys;
    a.d = a.e = kD;
    a.q_row = a.k_row = a.v_row = a.y_row = kD;
    a.q_col = a.k_col = a.v_col = a.y_col = 1;
    a.scale = 0.5;
    const auto fill = [&](f16* to, i64 rows, i64 step, std::uint64_t seed) {
      const auto x = numbers<f16>(kHeads * rows * kD, seed, -1, 1);
      for (i64 h = 0; h < kHeads; ++h)
        for (i64 i = 0; i < rows * kD; ++i)
          to[h * step + i] = to_device<f16>(x[std::size_t(h * rows * kD + i)]);
    };
    fill(q.data(), kQueries, a.q_batch[0], 1);
    fill(k.data(), kKeys, a.k_batch[0], 2);
    fill(v.data(), kKeys, a.v_batch[0], 3);
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    a.y = y.data();
    std::vector<std::uint16_t> found;
    const auto take = [&](const f16* from, i64 rows, i64 step) {
      for (i64 h = 0; h < kHeads; ++h)
        for (i64 i = 0; i < rows * kD; ++i) found.push_back(from[h * step + i].bits);
    };
    on_device([&](Device& device) {
      a.log_sum_exp = device.out<float>("lse", std::size_t(kHeads * kQueries));
      device.run(flash_attention, a);
      FlashAttentionGradArgs g{};
      g.forward = a;
      g.dy_batch[0] = g.dq_batch[0] = a.q_batch[0];
      g.dk_batch[0] = g.dv_batch[0] = a.k_batch[0];
      g.dy_row = g.dq_row = g.dk_row = g.dv_row = kD;
      g.dy_col = g.dq_col = g.dk_col = g.dv_col = 1;
      g.dy = q.data();
      g.dq = q.data() + kBehind;
      g.dk = k.data() + kBehind;
      g.dv = v.data() + kBehind;
      g.workspace = device.workspace(workspace_bytes(Target::gpu, g));
      device.run(flash_attention_grad, g);
    });
    take(y.data(), kQueries, a.y_batch[0]);
    take(q.data() + kBehind, kQueries, a.q_batch[0]);
    take(k.data() + kBehind, kKeys, a.k_batch[0]);
    take(v.data() + kBehind, kKeys, a.v_batch[0]);
    return found;
  };
  const auto near = run(false), far = run(true);
  EXPECT_EQ(near, far);
  EXPECT_GT(std::count_if(near.begin(), near.end(), [](std::uint16_t bits) { return bits != 0; }), 300);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
