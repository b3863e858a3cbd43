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
using Numbers = decltype(numbers<T>(0, 1));

template <class T>
struct Operands {
  using H = Host<T>;
  Operands(RecurrentKind which, bool reverse) : kind(which), cell(cell_of(which, reverse)) {}

  RecurrentKind kind;
  RecurrentCell cell;
  bool lstm = kind == RecurrentKind::lstm;
  int parts = kind == RecurrentKind::gru ? 2 : 1;
  i64 state = kBatch * kHidden, rows = kBatch * cell.gates * kHidden;
  std::vector<std::int32_t> lengths{3, 1, 2, 0, 3};
  Numbers<T> input = numbers<T>(kSteps * rows, 1), product = numbers<T>(rows, 2),
             bias = numbers<T>(2 * cell.gates * kHidden, 3), peepholes = numbers<T>(3 * kHidden, 4),
             h = numbers<T>(state, 5), c = numbers<T>(state, 6), dy = numbers<T>(kSteps * state, 7),
             kept = numbers<T>(cell.slots * state, 8), c_next = numbers<T>(state, 9),
             dreset = numbers<T>(state, 10), dh = numbers<T>(state, 11), dc = numbers<T>(state, 12);
};

// What one step of the CPU's kernels makes of them. Rows of other positions than this step's stay
// what they are: they start as zeros.
template <class T>
struct Expected {
  using H = Host<T>;
  Expected(const Operands<T>& o, std::int64_t step)
      : kept(o.kept.size()),
        h(o.h.size()),
        c(o.c.size()),
        y(o.dy.size(), H(0)),
        dh(o.dh),
        dc(o.dc),
        dinput(o.input.size(), H(0)),
        dproduct(o.product.size()) {
    RecurrentCell host = o.cell;
    host.dtype = cpu_dtype<T>();
    host.lengths = o.lengths.data();
    const H* const peepholes = o.lstm ? o.peepholes.data() : nullptr;
    RecurrentStepArgs a{host,          step,      0,          o.input.data(), o.product.data(),
                        o.bias.data(), peepholes, o.h.data(), o.c.data(),     kept.data(),
                        h.data(),      c.data(),  y.data()};
    RecurrentStepGradArgs g{host,
                            step,
                            0,
                            o.dy.data(),
                            peepholes,
                            o.kept.data(),
                            o.h.data(),
                            o.c.data(),
                            o.c_next.data(),
                            o.dreset.data(),
                            dh.data(),
                            dc.data(),
                            dinput.data(),
                            dproduct.data()};
    for (int part = 0; part < o.parts; ++part) {
      a.part = g.part = part;
      cpu().recurrent_step(a);
      cpu().recurrent_step_grad(g);
    }
  }
  std::vector<H> kept, h, c, y, dh, dc, dinput, dproduct;
};

template <class T>
void launch(Device& device, const Operands<T>& o, const Expected<T>& sizes, std::int64_t step) {
  using H = Host<T>;
  RecurrentCell there = o.cell;
  there.dtype = gpu_dtype<T>();
  there.lengths = device.in<std::int32_t>(o.lengths);
  const auto zeros = [&](const char* name, const std::vector<H>& like) {
    return device.inout<T>(name, std::vector<H>(like.size(), H(0)));
  };
  const auto of_lstm = [&](const auto& values) { return o.lstm ? device.in<T>(values) : nullptr; };
  RecurrentStepArgs b{there,
                      step,
                      0,
                      device.in<T>(o.input),
                      device.in<T>(o.product),
                      device.in<T>(o.bias),
                      of_lstm(o.peepholes),
                      device.in<T>(o.h),
                      of_lstm(o.c),
                      zeros("kept", sizes.kept),
                      zeros("h", sizes.h),
                      o.lstm ? zeros("c", sizes.c) : nullptr,
                      zeros("y", sizes.y)};
  RecurrentStepGradArgs d{there,
                          step,
                          0,
                          device.in<T>(o.dy),
                          of_lstm(o.peepholes),
                          device.in<T>(o.kept),
                          device.in<T>(o.h),
                          of_lstm(o.c),
                          of_lstm(o.c_next),
                          device.in<T>(o.dreset),
                          device.inout<T>("dh", o.dh),
                          o.lstm ? device.inout<T>("dc", o.dc) : nullptr,
                          zeros("dinput", sizes.dinput),
                          zeros("dproduct", sizes.dproduct)};
  for (int part = 0; part < o.parts; ++part) {
    b.part = d.part = part;
    device.run(recurrent_step, b);
    device.run(recurrent_step_grad, d);
  }
}

template <class T>
void check(RecurrentKind kind, bool reverse) {
  SCOPED_TRACE(testing::Message() << "kind " << int(kind) << (reverse ? " reverse" : ""));
  const Operands<T> o(kind, reverse);
  const Tolerance close = kHalf<T> ? Tolerance{10 * kUnit<T>, 5 * kUnit<T>}
                                   : tolerance<T>({2e-5, 1e-5});  // kept values are rounded too
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const Expected<T> host(o, step);
    const Results gpu = on_device([&](Device& device) { launch(device, o, host, step); });
    expect_close(gpu.get<T>("h"), widen(host.h), close, "h");
    expect_close(gpu.get<T>("kept"), widen(host.kept), close, "kept");
    expect_close(gpu.get<T>("y"), widen(host.y), close, "y");
    expect_close(gpu.get<T>("dh"), widen(host.dh), close, "dh");
    expect_close(gpu.get<T>("dinput"), widen(host.dinput), close, "dinput");
    expect_close(gpu.get<T>("dproduct"), widen(host.dproduct), close, "dproduct");
    if (!o.lstm) continue;
    expect_close(gpu.get<T>("c"), widen(host.c), close, "c");
    expect_close(gpu.get<T>("dc"), widen(host.dc), close, "dc");
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
