// Steps of recurrent networks and their gradients on the GPU executor against the CPU
// kernels, for every kind of cell.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr i64 kBatch = 5, kHidden = 70, kSteps = 3;

RecurrentCell cell_of(RecurrentKind kind, bool reverse) {
  RecurrentCell cell{};
  cell.kind = kind;
  cell.reverse = reverse;
  cell.clip = 1.5;
  cell.activations[0] = {RecurrentFunction::sigmoid, 0, 0};
  cell.activations[1] = {RecurrentFunction::tanh, 0, 0};
  cell.activations[2] = {RecurrentFunction::softsign, 0, 0};
  cell.steps = kSteps;
  cell.batch = kBatch;
  cell.hidden = kHidden;
  cell.gates = kind == RecurrentKind::rnn ? 1 : kind == RecurrentKind::lstm ? 4 : 3;
  cell.slots = kind == RecurrentKind::rnn ? 1 : 4;
  cell.x_time = kBatch * cell.gates * kHidden;
  cell.x_batch = cell.gates * kHidden;
  cell.y_time = kBatch * kHidden;
  cell.y_batch = kHidden;
  return cell;
}

template <class T>
void check(RecurrentKind kind, bool reverse) {
  SCOPED_TRACE(testing::Message() << "kind " << int(kind) << (reverse ? " reverse" : ""));
  using H = Host<T>;
  RecurrentCell cell = cell_of(kind, reverse);
  const i64 state = kBatch * kHidden, rows = kBatch * cell.gates * kHidden;
  const std::vector<std::int32_t> lengths{3, 1, 2, 0, 3};
  const auto input = numbers<T>(kSteps * rows, 1), product = numbers<T>(rows, 2),
             bias = numbers<T>(2 * cell.gates * kHidden, 3);
  const auto peepholes = numbers<T>(3 * kHidden, 4), h = numbers<T>(state, 5), c = numbers<T>(state, 6);
  const auto dy = numbers<T>(kSteps * state, 7), kept = numbers<T>(cell.slots * state, 8),
             c_next = numbers<T>(state, 9);
  const auto dreset = numbers<T>(state, 10), dh = numbers<T>(state, 11), dc = numbers<T>(state, 12);
  const bool lstm = kind == RecurrentKind::lstm;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    // Rows of other positions than this step's stay what they are: they start as zeros.
    std::vector<H> host_kept(kept.size()), h_next(h.size()), host_c(c.size()), y(dy.size(), H(0));
    std::vector<H> host_dh = dh, host_dc = dc, dinput(input.size(), H(0)), dproduct(product.size());
    RecurrentCell host = cell;
    host.dtype = cpu_dtype<T>();
    host.lengths = lengths.data();
    RecurrentStepArgs a{host,
                        step,
                        0,
                        input.data(),
                        product.data(),
                        bias.data(),
                        lstm ? peepholes.data() : nullptr,
                        h.data(),
                        c.data(),
                        host_kept.data(),
                        h_next.data(),
                        host_c.data(),
                        y.data()};
    RecurrentStepGradArgs g{host,
                            step,
                            0,
                            dy.data(),
                            lstm ? peepholes.data() : nullptr,
                            kept.data(),
                            h.data(),
                            c.data(),
                            c_next.data(),
                            dreset.data(),
                            host_dh.data(),
                            host_dc.data(),
                            dinput.data(),
                            dproduct.data()};
    for (const int part : {0, 1}) {
      if (part == 1 && kind != RecurrentKind::gru) break;
      a.part = g.part = part;
      cpu().recurrent_step(a);
      cpu().recurrent_step_grad(g);
    }
    const Results gpu = on_device([&](Device& device) {
      RecurrentCell there = cell;
      there.dtype = gpu_dtype<T>();
      there.lengths = device.in<std::int32_t>(lengths);
      RecurrentStepArgs b{there,
                          step,
                          0,
                          device.in<T>(input),
                          device.in<T>(product),
                          device.in<T>(bias),
                          lstm ? device.in<T>(peepholes) : nullptr,
                          device.in<T>(h),
                          lstm ? device.in<T>(c) : nullptr,
                          device.inout<T>("kept", std::vector<H>(kept.size(), H(0))),
                          device.inout<T>("h", std::vector<H>(h.size(), H(0))),
                          lstm ? device.inout<T>("c", std::vector<H>(c.size(), H(0))) : nullptr,
                          device.inout<T>("y", std::vector<H>(y.size(), H(0)))};
      RecurrentStepGradArgs d{there,
                              step,
                              0,
                              device.in<T>(dy),
                              lstm ? device.in<T>(peepholes) : nullptr,
                              device.in<T>(kept),
                              device.in<T>(h),
                              lstm ? device.in<T>(c) : nullptr,
                              lstm ? device.in<T>(c_next) : nullptr,
                              device.in<T>(dreset),
                              device.inout<T>("dh", dh),
                              lstm ? device.inout<T>("dc", dc) : nullptr,
                              device.inout<T>("dinput", std::vector<H>(dinput.size(), H(0))),
                              device.inout<T>("dproduct", std::vector<H>(dproduct.size(), H(0)))};
      for (const int part : {0, 1}) {
        if (part == 1 && kind != RecurrentKind::gru) break;
        b.part = d.part = part;
        device.run(recurrent_step, b);
        device.run(recurrent_step_grad, d);
      }
    });
    const Tolerance close = kHalf<T> ? Tolerance{10 * kUnit<T>, 5 * kUnit<T>}
                                     : tolerance<T>({2e-5, 1e-5});  // kept values are rounded too
    expect_close(gpu.get<T>("h"), widen(h_next), close, "h");
    expect_close(gpu.get<T>("kept"), widen(host_kept), close, "kept");
    expect_close(gpu.get<T>("y"), widen(y), close, "y");
    expect_close(gpu.get<T>("dh"), widen(host_dh), close, "dh");
    expect_close(gpu.get<T>("dinput"), widen(dinput), close, "dinput");
    expect_close(gpu.get<T>("dproduct"), widen(dproduct), close, "dproduct");
    if (!lstm) continue;
    expect_close(gpu.get<T>("c"), widen(host_c), close, "c");
    expect_close(gpu.get<T>("dc"), widen(host_dc), close, "dc");
  }
}

template <class T>
class RecurrentOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(RecurrentOnGpu, Types);

TYPED_TEST(RecurrentOnGpu, Cells) {
  for (const RecurrentKind kind :
       {RecurrentKind::rnn, RecurrentKind::gru, RecurrentKind::gru_linear, RecurrentKind::lstm}) {
    for (const bool reverse : {false, true}) check<TypeParam>(kind, reverse);
  }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
