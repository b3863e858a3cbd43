// Speed of the CPU kernels at the shapes of the example models: a small GPT (512 tokens, width 128 / 512,
// vocabulary 256), an MLP (batch 256, width 2048, input 784) and a LeNet. GB/s counts every operand once;
// GFLOP/s counts multiply and add.
//   kernels_bench --benchmark_filter=softmax   (argument 1 of every row: threads; GRADLOOM_ISA=v2|v3|v4
//   lowers the level)
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/prepared/convolution.h"
#include "kernels/prepared/matmul.h"

namespace {

using namespace gradloom;
using namespace gradloom::kernels;
using Floats = std::vector<float>;

Floats ramp(std::int64_t n, float scale = 1.0f) {
  Floats v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = scale * (float(i * 37 % 1001) / 500.0f - 1.0f);
  return v;
}

void report(benchmark::State& state, double bytes, double flops = 0) {
  const double runs = double(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * runs / 1e9, benchmark::Counter::kIsRate);
  if (flops > 0)
    state.counters["GFLOP/s"] = benchmark::Counter(flops * runs / 1e9, benchmark::Counter::kIsRate);
}

void threads_of(benchmark::State& state) { set_threads(int(state.range(0))); }

// ---- elementwise ------------------------------------------------------------------------------------------

EwProgram program_over(std::int64_t rows, std::int64_t cols, int dense_inputs) {
  EwProgram program;
  program.rank = 2;
  program.dims = {rows, cols};
  for (int i = 0; i < dense_inputs; ++i) program.inputs.push_back({DType::f32, {cols, 1}});
  return program;
}

void run_program(benchmark::State& state, EwProgram program, std::int64_t n) {
  threads_of(state);
  ew_collapse_dims(program);
  std::vector<Floats> data;
  std::vector<const void*> inputs;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) data.push_back(ramp(n));
  for (const Floats& d : data) inputs.push_back(d.data());
  Floats out(static_cast<std::size_t>(n));
  void* outputs[] = {out.data()};
  const RandomState random{1, 2};
  for (auto _ : state) cpu().elementwise({&program, inputs.data(), outputs, &random});
  report(state, double(n) * 4 * double(inputs.size() + 1));
}

void unary(benchmark::State& state, EwOp op) {
  const std::int64_t rows = 512, cols = state.range(1);
  EwProgram program = program_over(rows, cols, 1);
  program.code = {{op, DType::f32, DType::f32, {0, -1, -1}, 0}};
  program.outputs = {{1, DType::f32}};
  run_program(state, program, rows * cols);
}
void binary(benchmark::State& state, EwOp op) {
  const std::int64_t rows = 512, cols = state.range(1);
  EwProgram program = program_over(rows, cols, 2);
  program.code = {{op, DType::f32, DType::f32, {0, 1, -1}, 0}};
  program.outputs = {{2, DType::f32}};
  run_program(state, program, rows * cols);
}
void bias_gelu(benchmark::State& state) {
  const std::int64_t rows = 512, cols = state.range(1);
  EwProgram program = program_over(rows, cols, 1);
  program.inputs.push_back({DType::f32, {0, 1}});
  program.code = {{EwOp::Add, DType::f32, DType::f32, {0, 1, -1}, 0},
                  {EwOp::Gelu, DType::f32, DType::f32, {2, -1, -1}, 0}};
  program.outputs = {{3, DType::f32}};
  run_program(state, program, rows * cols);
}
void bias_add(benchmark::State& state) {
  const std::int64_t rows = 512, cols = state.range(1);
  EwProgram program = program_over(rows, cols, 1);
  program.inputs.push_back({DType::f32, {0, 1}});
  program.code = {{EwOp::Add, DType::f32, DType::f32, {0, 1, -1}, 0}};
  program.outputs = {{2, DType::f32}};
  run_program(state, program, rows * cols);
}
void scale_by_constant(benchmark::State& state) {
  const std::int64_t rows = 512, cols = state.range(1);
  EwProgram program = program_over(rows, cols, 1);
  program.constants = {{DType::f32, 0.125}};
  program.code = {{EwOp::Mul, DType::f32, DType::f32, {0, 1, -1}, 0}};
  program.outputs = {{2, DType::f32}};
  run_program(state, program, rows * cols);
}
void dropout(benchmark::State& state) {
  const std::int64_t rows = 512, cols = state.range(1);
  EwProgram program = program_over(rows, cols, 1);
  program.constants = {{DType::f32, 0.1}, {DType::boolean, 1}};
  program.code = {{EwOp::Dropout, DType::f32, DType::f32, {0, 1, 2}, 7}};
  program.outputs = {{3, DType::f32}};
  run_program(state, program, rows * cols);
}

// ---- movement, reductions, rows ---------------------------------------------------------------------------

void transpose(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, cols = state.range(1);
  const Floats x = ramp(rows * cols);
  Floats y(x.size());
  const StridedCopyArgs args{4, 2, {cols, rows}, {1, cols}, {rows, 1}, x.data(), y.data()};
  for (auto _ : state) cpu().strided_copy(args);
  report(state, double(x.size()) * 8);
}
void heads_transpose(benchmark::State& state) {  // [8, 64, 4, cols / 4] -> [8, 4, 64, cols / 4]
  threads_of(state);
  const std::int64_t cols = state.range(1), d = cols / 4;
  const Floats x = ramp(512 * cols);
  Floats y(x.size());
  const StridedCopyArgs args{
      4, 4, {8, 4, 64, d}, {64 * cols, d, cols, 1}, {64 * cols, 64 * d, d, 1}, x.data(), y.data()};
  for (auto _ : state) cpu().strided_copy(args);
  report(state, double(x.size()) * 8);
}
void reduce_rows(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, cols = state.range(1);
  const Floats x = ramp(rows * cols);
  Floats y(rows), workspace(1 << 20);
  const ReduceArgs args{DType::f32, Reduction::sum, rows, cols, 1, x.data(), y.data(), workspace.data()};
  for (auto _ : state) cpu().reduce(args);
  report(state, double(x.size()) * 4);
}
void reduce_columns(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, cols = state.range(1);
  const Floats x = ramp(rows * cols);
  Floats y(cols), workspace(1 << 22);
  const ReduceArgs args{DType::f32, Reduction::sum, 1, rows, cols, x.data(), y.data(), workspace.data()};
  for (auto _ : state) cpu().reduce(args);
  report(state, double(x.size()) * 4);
}
void softmax_rows(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 2048, cols = state.range(1);
  const Floats x = ramp(rows * cols);
  Floats y(x.size());
  for (auto _ : state) cpu().softmax({DType::f32, false, rows, cols, 1, x.data(), y.data()});
  report(state, double(x.size()) * 8);
}
void softmax_gradient(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 2048, cols = state.range(1);
  const Floats x = ramp(rows * cols), y = ramp(rows * cols);
  Floats dx(x.size());
  for (auto _ : state) cpu().softmax_grad({DType::f32, false, rows, cols, 1, x.data(), y.data(), dx.data()});
  report(state, double(x.size()) * 12);
}
void layer_norm_forward(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, cols = state.range(1);
  const Floats x = ramp(rows * cols), scale = ramp(cols), bias = ramp(cols);
  Floats y(x.size()), mean(rows), inv_std(rows);
  for (auto _ : state) {
    cpu().layer_norm({DType::f32, rows, cols, 1e-5, x.data(), scale.data(), bias.data(), y.data(),
                      mean.data(), inv_std.data()});
  }
  report(state, double(x.size()) * 8);
}
void layer_norm_gradient(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, cols = state.range(1);
  const Floats dy = ramp(rows * cols), x = ramp(rows * cols), scale = ramp(cols), mean = ramp(rows),
               inv_std = ramp(rows);
  Floats dx(x.size()), dscale(cols), dbias(cols), workspace(std::size_t{128} * cols);
  for (auto _ : state) {
    cpu().layer_norm_grad({DType::f32, rows, cols, dy.data(), x.data(), scale.data(), mean.data(),
                           inv_std.data(), dx.data(), dscale.data(), dbias.data(), workspace.data()});
  }
  report(state, double(x.size()) * 12);
}
void cross_entropy_forward(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, n = state.range(1);
  const Floats x = ramp(rows * n);
  std::vector<std::int64_t> labels(rows, 3);
  Floats loss(1), lse(rows), total(1);
  std::vector<double> workspace(2 * rows);
  for (auto _ : state) {
    cpu().softmax_cross_entropy({DType::f32, DType::i64, LossReduction::mean, rows, n, 1, false, 0, x.data(),
                                 labels.data(), nullptr, loss.data(), lse.data(), total.data(),
                                 workspace.data()});
  }
  report(state, double(x.size()) * 4);
}
void cross_entropy_gradient(benchmark::State& state) {
  threads_of(state);
  const std::int64_t rows = 512, n = state.range(1);
  const Floats x = ramp(rows * n), lse(rows, 3.0f), total(1, 512.0f), dloss(1, 1.0f);
  std::vector<std::int64_t> labels(rows, 3);
  Floats dx(x.size());
  for (auto _ : state) {
    cpu().softmax_cross_entropy_grad({DType::f32, DType::i64, LossReduction::mean, rows, n, 1, false, 0,
                                      dloss.data(), x.data(), labels.data(), nullptr, lse.data(),
                                      total.data(), dx.data()});
  }
  report(state, double(x.size()) * 8);
}
void embedding(benchmark::State& state) {
  threads_of(state);
  const std::int64_t vocabulary = 256, cols = state.range(1), count = 512;
  const Floats table = ramp(vocabulary * cols);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * 31 % vocabulary);
  Floats out(std::size_t(count * cols));
  for (auto _ : state)
    cpu().gather({4, DType::i64, 1, vocabulary, cols, count, table.data(), indices.data(), out.data()});
  report(state, double(out.size()) * 8);
}
void embedding_gradient(benchmark::State& state) {
  threads_of(state);
  const std::int64_t vocabulary = 256, cols = state.range(1), count = 512;
  const Floats dy = ramp(count * cols);
  std::vector<std::int64_t> indices, workspace(std::size_t(vocabulary + 1 + count));
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * i * 31 % vocabulary);
  Floats out(std::size_t(vocabulary * cols));
  for (auto _ : state) {
    cpu().gather_grad({DType::f32, DType::i64, 1, vocabulary, cols, count, dy.data(), indices.data(),
                       out.data(), workspace.data()});
  }
  report(state, double(dy.size() + out.size()) * 4);
}
void batch_norm_forward(benchmark::State& state) {
  threads_of(state);
  const std::int64_t n = 32, c = 16, spatial = state.range(1);
  const Floats x = ramp(n * c * spatial), one(c, 1.0f);
  Floats y(x.size()), a(c), b(c), d(c), e(c);
  for (auto _ : state) {
    cpu().batch_norm({DType::f32, true, n, c, spatial, 1e-5, 0.9, x.data(), one.data(), one.data(),
                      one.data(), one.data(), y.data(), a.data(), b.data(), d.data(), e.data()});
  }
  report(state, double(x.size()) * 8);
}
void max_pool_forward(benchmark::State& state) {
  threads_of(state);
  const std::int64_t planes = 512, side = state.range(1);
  const Floats x = ramp(planes * side * side);
  Floats y(x.size() / 4);
  std::vector<std::int64_t> argmax(y.size());
  const PoolShape shape{planes,    {1, side, side}, {1, side / 2, side / 2}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0},
                        {0, 0, 0}, {1, 1, 1}};
  for (auto _ : state) cpu().max_pool({DType::f32, shape, x.data(), y.data(), argmax.data()});
  report(state, double(x.size()) * 4 + double(y.size()) * 12);
}
void optimizer_step(benchmark::State& state, OptimizerKind kind) {
  threads_of(state);
  // A GPT of 4 layers: 2 matrices of 4 cols x cols and 4 of cols x cols each, and vectors between them.
  const std::int64_t cols = state.range(1);
  std::vector<std::int64_t> sizes;
  for (int layer = 0; layer < 4; ++layer) {
    for (const std::int64_t size :
         {3 * cols * cols, cols * cols, 4 * cols * cols, 4 * cols * cols, cols, cols, cols, 4 * cols}) {
      sizes.push_back(size);
    }
  }
  std::vector<Floats> data;
  std::vector<void*> pointers[4];
  std::int64_t total = 0;
  for (auto& group : pointers) {
    for (const std::int64_t size : sizes) {
      data.push_back(Floats(std::size_t(size), 0.01f));
      group.push_back(data.back().data());
    }
  }
  for (const std::int64_t size : sizes) total += size;
  const double lr = 1e-3;
  const std::int64_t step = 5;
  std::vector<double> workspace(1 << 16);
  const OptimizerArgs args{DType::f32,
                           kind,
                           std::int64_t(sizes.size()),
                           sizes.data(),
                           0.9,
                           0.999,
                           1e-8,
                           0.01,
                           0.9,
                           0.0,
                           false,
                           false,
                           &lr,
                           &step,
                           nullptr,
                           pointers[0].data(),
                           pointers[1].data(),
                           pointers[2].data(),
                           pointers[3].data(),
                           pointers[1].data(),
                           pointers[2].data(),
                           pointers[3].data(),
                           workspace.data()};
  for (auto _ : state) cpu().optimizer(args);
  report(state, double(total) * (kind == OptimizerKind::sgd ? 20 : 28));
}
void norm_of_gradients(benchmark::State& state) {
  threads_of(state);
  const std::int64_t size = 512 * state.range(1);
  const Floats x = ramp(size);
  const void* tensors[] = {x.data()};
  float out = 0;
  std::vector<double> workspace(1 << 12);
  for (auto _ : state) cpu().global_norm({DType::f32, 1, &size, tensors, &out, workspace.data()});
  report(state, double(size) * 4);
}

// ---- products ---------------------------------------------------------------------------------------------

void matmul(benchmark::State& state, DType type, bool relu) {
  threads_of(state);
  MatMulDesc d;
  d.dtype = type;
  d.m = state.range(1);
  d.n = state.range(2);
  d.k = state.range(3);
  d.a_strides = {d.k, 1};
  d.b_strides = {d.n, 1};
  d.c_strides = {d.n, 1};
  d.bias = relu;
  d.activation = relu ? Activation::relu : Activation::none;
  const auto product = MatMul::create(d);
  const auto elements = [&](std::int64_t n) { return std::vector<double>(std::size_t(n), 0.5); };
  const auto a = elements(d.m * d.k), b = elements(d.k * d.n), bias = elements(d.n);
  auto c = elements(d.m * d.n);
  std::vector<double> workspace(product->workspace_bytes() / 8 + 8);
  for (auto _ : state) product->run(a.data(), b.data(), bias.data(), c.data(), workspace.data());
  report(state, double(d.m * d.k + d.k * d.n + d.m * d.n) * double(dtype_bytes(type)),
         2.0 * double(d.m * d.n * d.k));
}
void attention_scores(benchmark::State& state) {
  threads_of(state);
  const std::int64_t b = 8, h = 4, t = 64, d = 32;
  MatMulDesc desc;
  desc.batch = {b, h};
  desc.m = t;
  desc.n = t;
  desc.k = d;
  desc.a_strides = {t * h * d, d, h * d, 1};
  desc.b_strides = {t * h * d, d, 1, h * d};
  desc.c_strides = {h * t * t, t * t, t, 1};
  desc.alpha = 0.17;
  const auto product = MatMul::create(desc);
  const Floats q = ramp(b * h * t * d), k = ramp(b * h * t * d);
  Floats c(std::size_t(b * h * t * t));
  std::vector<double> workspace(product->workspace_bytes() / 8 + 8);
  for (auto _ : state) product->run(q.data(), k.data(), nullptr, c.data(), workspace.data());
  state.SetLabel(product->implementation());
  report(state, double(q.size() * 2 + c.size()) * 4, 2.0 * double(b * h * t * t * d));
}
void convolution(benchmark::State& state, ConvolutionKind kind) {
  threads_of(state);
  ConvolutionDesc d{};
  d.n = 64;
  d.c = state.range(1);
  d.h = d.w = state.range(2);
  d.k = state.range(3);
  d.r = d.s = 3;
  d.oh = d.h;
  d.ow = d.w;
  d.pad_top = d.pad_left = d.pad_bottom = d.pad_right = 1;
  const auto conv = Convolution::create(d, kind);
  const Floats x = ramp(d.n * d.c * d.h * d.w), w = ramp(d.k * d.c * 9), y = ramp(d.n * d.k * d.oh * d.ow);
  Floats out(std::max(x.size(), y.size()));
  std::vector<double> workspace(conv->workspace_bytes() / 8 + 8);
  const float* const a = kind == ConvolutionKind::forward ? x.data() : y.data();
  const float* const b = kind == ConvolutionKind::backward_weights ? x.data() : w.data();
  for (auto _ : state) conv->run(a, b, nullptr, out.data(), workspace.data());
  state.SetLabel(conv->implementation());
  report(state, double(x.size() + y.size()) * 4, 2.0 * double(d.n * d.k * d.oh * d.ow * d.c * 9));
}

void widths(benchmark::internal::Benchmark* b) {
  for (const int threads : {1, 2}) {
    for (const int cols : {128, 512}) b->Args({threads, cols});
  }
}
void products(benchmark::internal::Benchmark* b) {
  for (const int threads : {1, 2}) {
    b->Args({threads, 512, 384, 128});
    b->Args({threads, 512, 512, 128});
    b->Args({threads, 512, 128, 512});
    b->Args({threads, 128, 512, 512});
    b->Args({threads, 512, 256, 128});
    b->Args({threads, 256, 2048, 784});
    b->Args({threads, 256, 10, 2048});
  }
}

BENCHMARK_CAPTURE(unary, relu, EwOp::Relu)->Apply(widths);
BENCHMARK_CAPTURE(unary, exp, EwOp::Exp)->Apply(widths);
BENCHMARK_CAPTURE(unary, log, EwOp::Log)->Apply(widths);
BENCHMARK_CAPTURE(unary, tanh, EwOp::Tanh)->Apply(widths);
BENCHMARK_CAPTURE(unary, erf, EwOp::Erf)->Apply(widths);
BENCHMARK_CAPTURE(unary, gelu, EwOp::Gelu)->Apply(widths);
BENCHMARK_CAPTURE(unary, gelu_tanh, EwOp::GeluTanh)->Apply(widths);
BENCHMARK_CAPTURE(unary, sigmoid, EwOp::Sigmoid)->Apply(widths);
BENCHMARK_CAPTURE(binary, add, EwOp::Add)->Apply(widths);
BENCHMARK_CAPTURE(binary, gelu_grad, EwOp::GeluGrad)->Apply(widths);
BENCHMARK_CAPTURE(binary, gelu_tanh_grad, EwOp::GeluTanhGrad)->Apply(widths);
BENCHMARK(bias_add)->Apply(widths);
BENCHMARK(bias_gelu)->Apply(widths);
BENCHMARK(scale_by_constant)->Apply(widths);
BENCHMARK(dropout)->Apply(widths);
BENCHMARK(transpose)->Apply(widths);
BENCHMARK(heads_transpose)->Apply(widths);
BENCHMARK(reduce_rows)->Apply(widths);
BENCHMARK(reduce_columns)->Apply(widths);
BENCHMARK(softmax_rows)->Apply(widths);
BENCHMARK(softmax_gradient)->Apply(widths);
BENCHMARK(layer_norm_forward)->Apply(widths);
BENCHMARK(layer_norm_gradient)->Apply(widths);
BENCHMARK(cross_entropy_forward)->Apply(widths);
BENCHMARK(cross_entropy_gradient)->Apply(widths);
BENCHMARK(embedding)->Apply(widths);
BENCHMARK(embedding_gradient)->Apply(widths);
BENCHMARK(batch_norm_forward)->Args({1, 196})->Args({2, 196});
BENCHMARK(max_pool_forward)->Args({1, 28})->Args({2, 28});
BENCHMARK_CAPTURE(optimizer_step, sgd, OptimizerKind::sgd)->Apply(widths);
BENCHMARK_CAPTURE(optimizer_step, adamw, OptimizerKind::adamw)->Apply(widths);
BENCHMARK_CAPTURE(optimizer_step, lamb, OptimizerKind::lamb)->Apply(widths);
BENCHMARK(norm_of_gradients)->Apply(widths);
BENCHMARK_CAPTURE(matmul, f32, DType::f32, false)->Apply(products);
BENCHMARK_CAPTURE(matmul, f32_bias_relu, DType::f32, true)->Apply(products);
BENCHMARK_CAPTURE(matmul, f64, DType::f64, false)->Apply(products);
BENCHMARK(attention_scores)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(convolution, forward, ConvolutionKind::forward)
    ->Args({1, 16, 14, 32})
    ->Args({2, 16, 14, 32})
    ->Args({2, 1, 28, 8});
BENCHMARK_CAPTURE(convolution, data, ConvolutionKind::backward_data)
    ->Args({1, 16, 14, 32})
    ->Args({2, 16, 14, 32});
BENCHMARK_CAPTURE(convolution, weights, ConvolutionKind::backward_weights)
    ->Args({1, 16, 14, 32})
    ->Args({2, 16, 14, 32})
    ->Args({2, 1, 28, 8});

}  // namespace

BENCHMARK_MAIN();
