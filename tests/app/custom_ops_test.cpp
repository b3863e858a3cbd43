// Operators from libraries of the user's own, through the program: the example of app/embed/example and libraries
// that are wrong in one way each.
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <functional>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

constexpr int kRows = 4, kInner = 3, kColumns = 2;
constexpr double kScale = 1.7;

// A library whose parts are defined from outside.
constexpr const char* kSource = R"(
#include <gradloom_op.h>
#include <string.h>
#ifndef MADE_FOR
#define MADE_FOR GRADLOOM_OP_VERSION
#endif
#ifndef DOMAIN_NAME
#define DOMAIN_NAME "my.domain"
#endif
static void forward(const gradloom_op_call* call) {
  const gradloom_op_tensor* y = &call->outputs[0];
  int64_t count = 1;
  for (int d = 0; d < y->rank; ++d) count *= y->dims[d];
  memcpy(y->data, call->inputs[0].data, (size_t)count * (y->dtype == GRADLOOM_OP_F64 ? 8 : 4));
}
static const char* shape(gradloom_op_call* call) {
  gradloom_op_tensor* y = &call->outputs[0];
#ifdef SAYS
  return SAYS;
#endif
#ifndef FORGETS
  *y = call->inputs[0];
#endif
#ifdef DIM
  y->dims[0] = DIM;
#endif
#ifdef RANK
  y->rank = RANK;
#endif
#ifdef DTYPE
  y->dtype = DTYPE;
#endif
  return 0;
}
#ifndef NO_ENTRY
int gradloom_register_ops(gradloom_op_registry* registry) {
  gradloom_op op = {MADE_FOR, DOMAIN_NAME, "ScaledTanh", "a copy", 1, 1, 1, 1, GRADLOOM_OP_TAKES(GRADLOOM_OP_F32)};
  op.shape = shape;
#ifndef NO_FORWARD
  op.forward = forward;
#endif
#ifdef BACKWARD
  op.backward = forward;
#endif
#ifdef TWICE
  registry->add(registry, &op);
#endif
  registry->add(registry, &op);
  return 0;
}
#endif
)";

// y = scale x + bias, squares = sums of x^2 along rows: what the example has not: an input that may be omitted, two
// outputs, a shape function, a list as attribute, workspace, inputs that backward reads.
constexpr const char* kTwoResults = R"(
#include <gradloom_op.h>
static double scale_of(const gradloom_op_call* call) {
  int64_t scales[2] = {0, 0};
  return call->attribute_ints(call->node, "scales", scales, 2) == 3 ? (double)scales[1] : 1e30;
}
static const char* shape(gradloom_op_call* call) {
  const gradloom_op_tensor* x = &call->inputs[0];
  if (x->rank != 2) return "x must have two dims";
  call->outputs[0] = *x;
  call->outputs[1].dtype = x->dtype;
  call->outputs[1].rank = 1;
  call->outputs[1].dims[0] = x->dims[0];
  return 0;
}
static size_t workspace(const gradloom_op_call* call) { return 8 * (size_t)call->inputs[0].dims[0]; }
static void forward(const gradloom_op_call* call) {
  const gradloom_op_tensor* x = &call->inputs[0];
  const double *in = x->data, *bias = call->inputs[1].data;
  double *y = call->outputs[0].data, *squares = call->outputs[1].data, *sums = call->workspace;
  for (int64_t r = 0; r < x->dims[0]; ++r) {
    sums[r] = 0;
    for (int64_t c = 0; c < x->dims[1]; ++c) {
      const double value = in[r * x->dims[1] + c];
      sums[r] += value * value;
      y[r * x->dims[1] + c] = scale_of(call) * value + (bias ? bias[c] : 0);
    }
    if (squares) squares[r] = sums[r];
  }
}
static void backward(const gradloom_op_call* call) {
  const gradloom_op_tensor* x = &call->inputs[0];
  const double *in = x->data, *dy = call->inputs[4].data, *dsquares = call->inputs[5].data;
  double *dx = call->outputs[0].data, *dbias = call->outputs[1].data;
  for (int64_t c = 0; c < x->dims[1]; ++c) {
    if (dbias) dbias[c] = 0;
    for (int64_t r = 0; r < x->dims[0]; ++r) {
      const int64_t i = r * x->dims[1] + c;
      if (dbias && dy) dbias[c] += dy[i];
      if (dx) dx[i] = (dy ? scale_of(call) * dy[i] : 0) + (dsquares ? 2 * in[i] * dsquares[r] : 0);
    }
  }
}
int gradloom_register_ops(gradloom_op_registry* registry) {
  const gradloom_op op = {.made_for = GRADLOOM_OP_VERSION, .domain = "my.domain", .name = "TwoResults",
    .version = 2, .min_inputs = 1, .max_inputs = 2, .outputs = 2, .dtypes = GRADLOOM_OP_TAKES(GRADLOOM_OP_F64),
    .shape = shape, .workspace = workspace, .forward = forward, .backward = backward, .backward_reads_inputs = 1};
  return registry->add(registry, &op);
}
)";

class CustomOps : public Commands {
 protected:
  void SetUp() override {
    compile(GRADLOOM_SOURCE_DIR "/app/embed/example/scaled_tanh.c", "tanh.so");
    write_model();
  }
  void compile(const std::string& source, const std::string& library, const std::string& flags = "") const {
    const std::string command = "cc -std=c11 -O2 -shared -fPIC -I'" GRADLOOM_SOURCE_DIR
                                "/engine/ops/custom' " +
                                flags + " '" + source + "' -o '" + path(library) + "' -lm";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  void compile_odd(const std::string& flags, const std::string& library = "odd.so") const {
    std::ofstream(path("odd.c")) << kSource;
    compile(path("odd.c"), library, flags);
  }

  // mean((scale tanh(x w) - t)^2)
  void write_model() const {
    onnx::ModelProto model;
    const std::string text =
        "<ir_version: 8, opset_import: [\"\" : 13, \"my.domain\" : 1]> g (float[N,3] x, float[N,2] t) => (float loss) "
        "{ h = MatMul(x, w) y = my.domain.ScaledTanh<scale = 1.7>(h) d = Sub(y, t) s = Mul(d, d) "
        "loss = ReduceMean<keepdims = 0>(s) }";
    const auto status = onnx::OnnxParser(text.c_str()).Parse(model);
    ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
    for (auto& node : *model.mutable_graph()->mutable_node()) node.set_name(node.output(0));
    auto* const loss = model.mutable_graph()->mutable_output(0);
    loss->mutable_type()->mutable_tensor_type()->mutable_shape();
    *model.mutable_graph()->add_initializer() = tensor("w", {kInner, kColumns}, weights());
    std::ofstream(path("model.onnx"), std::ios::binary) << model.SerializeAsString();
  }
  static onnx::TensorProto tensor(const std::string& name, const std::vector<int>& dims,
                                  const std::vector<double>& values) {
    onnx::TensorProto made;
    made.set_name(name);
    made.set_data_type(onnx::TensorProto::FLOAT);
    for (const int dim : dims) made.add_dims(dim);
    for (const double value : values) made.add_float_data(static_cast<float>(value));
    return made;
  }
  // Numbers that f32 holds exactly.
  static std::vector<double> numbers(int count, int step) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back((i * step % 13 - 6) / 8.0);
    return values;
  }
  static std::vector<double> weights() { return numbers(kInner * kColumns, 5); }
  static std::vector<double> x() { return numbers(kRows * kInner, 7); }
  static std::vector<double> t() { return numbers(kRows * kColumns, 3); }
  static double loss(const std::vector<double>& x, const std::vector<double>& w,
                     const std::vector<double>& t) {
    double sum = 0;
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) {
        double h = 0;
        for (int k = 0; k < kInner; ++k)
          h += x[static_cast<std::size_t>(r * kInner + k)] * w[static_cast<std::size_t>(k * kColumns + c)];
        const double d = static_cast<double>(static_cast<float>(kScale)) * std::tanh(h) -
                         t[static_cast<std::size_t>(r * kColumns + c)];
        sum += d * d;
      }
    return sum / (kRows * kColumns);
  }
  static std::vector<double> differences(std::vector<double> at,
                                         const std::function<double(const std::vector<double>&)>& f) {
    constexpr double kStep = 1e-5;
    std::vector<double> gradient;
    for (double& value : at) {
      const double middle = value;
      value = middle + kStep;
      const double up = f(at);
      value = middle - kStep;
      gradient.push_back((up - f(at)) / (2 * kStep));
      value = middle;
    }
    return gradient;
  }
  std::vector<std::string> words(const std::string& command, const std::vector<std::string>& more) const {
    std::vector<std::string> args{command, path("model.onnx"), "--dim", "N=4", "--loss", "loss"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  std::vector<double> losses(const std::vector<std::string>& more) const {
    std::vector<std::string> args = words("train", {"--json", "--steps", "5", "--ops", path("tanh.so")});
    args.insert(args.end(), more.begin(), more.end());
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<double> found;
    for (const json& line : o.lines())
      if (line.contains("loss")) found.push_back(line["loss"]);
    EXPECT_EQ(found.size(), 5u);
    return found;
  }
};

void write(const std::string& path, onnx::TensorProto tensor, const std::vector<double>& exact) {
  tensor.set_data_type(onnx::TensorProto::DOUBLE);
  tensor.clear_float_data();
  for (const double value : exact) tensor.add_double_data(value);
  std::ofstream(path, std::ios::binary) << tensor.SerializeAsString();
}

// Loss and gradients against central differences of the formula in f64, by `check`.
TEST_F(CustomOps, GradientsAreThoseOfTheFormula) {
  const std::string data = path("case/test_data_set_0/");
  fs::create_directories(data);
  fs::copy(path("model.onnx"), path("case/model.onnx"));
  const auto save = [&](const std::string& name, const onnx::TensorProto& tensor) {
    std::ofstream(data + name, std::ios::binary) << tensor.SerializeAsString();
  };
  save("input_0.pb", tensor("x", {kRows, kInner}, x()));
  save("input_1.pb", tensor("t", {kRows, kColumns}, t()));
  write(data + "output_0.pb", tensor("loss", {}, {}), {loss(x(), weights(), t())});
  write(data + "grad_0.pb", tensor("w", {kInner, kColumns}, {}),
        differences(weights(), [](const auto& w) { return loss(x(), w, t()); }));
  write(data + "grad_1.pb", tensor("x", {kRows, kInner}, {}),
        differences(x(), [](const auto& at) { return loss(at, weights(), t()); }));
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"check", path("case"), "--ops", path("tanh.so")};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  };
  for (const char* const passes : {"none", "default"}) {
    const Outcome exact =
        check({"--precision", "f64", "--rtol", "1e-8", "--atol", "1e-9", "--passes", passes});
    EXPECT_EQ(exact.code, 0) << exact.out << exact.err;
    EXPECT_NE(exact.out.find("1 passed, 0 failed, 0 unsupported"), std::string::npos) << exact.out;
    EXPECT_EQ(check({"--rtol", "1e-5", "--passes", passes}).code, 0);
  }
  write(data + "grad_0.pb", tensor("w", {kInner, kColumns}, {}),
        differences(weights(), [](const auto& w) { return 1.001 * loss(x(), w, t()); }));
  EXPECT_EQ(check({"--precision", "f64", "--rtol", "1e-8", "--atol", "1e-9"}).code, 1);
}

// mean(y^2) + mean(squares) by x and bias, with both results, each alone, and without bias.
TEST_F(CustomOps, SeveralInputsAndResultsHaveTheirGradients) {
  std::ofstream(path("two.c")) << kTwoResults;
  compile(path("two.c"), "two.so");
  const std::vector<double> bias{0.5, -0.25, 1};
  struct Form {
    bool biased, y, squares;
  };
  for (const Form form : {Form{true, true, true}, {true, true, false}, {false, false, true}}) {
    const std::string folder = path("two" + std::to_string(form.biased) + std::to_string(form.squares));
    const std::string data = folder + "/test_data_set_0/";
    fs::create_directories(data);
    const auto value = [&](const std::vector<double>& xs, const std::vector<double>& biases) {
      double first = 0, second = 0;
      for (std::size_t i = 0; i < xs.size(); ++i) {
        const double y = -3 * xs[i] + (form.biased ? biases[i % 3] : 0);
        first += y * y / static_cast<double>(xs.size());
        second += xs[i] * xs[i] / kRows;
      }
      return (form.y ? first : 0) + (form.squares ? second : 0);
    };
    onnx::ModelProto model;
    const std::string text =
        std::string(
            "<ir_version: 8, opset_import: [\"\" : 13, \"my.domain\" : 3]> g (float[4,3] x) => (float loss) {") +
        (form.squares ? "y, squares" : "y") + " = my.domain.TwoResults<scales = [7, -3, 7]>(" +
        (form.biased ? "x, b" : "x") + ") " +
        (form.y ? "yy = Mul(y, y) first = ReduceMean<keepdims = 0>(yy) " : "") +
        (form.squares ? "second = ReduceMean<keepdims = 0>(squares) " : "") +
        (form.y && form.squares ? "loss = Add(first, second) }"
         : form.y               ? "loss = Identity(first) }"
                                : "loss = Identity(second) }");
    const auto status = onnx::OnnxParser(text.c_str()).Parse(model);
    ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
    model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    if (form.biased) *model.mutable_graph()->add_initializer() = tensor("b", {kInner}, bias);
    std::ofstream(folder + "/model.onnx", std::ios::binary) << model.SerializeAsString();
    write(data + "input_0.pb", tensor("x", {kRows, kInner}, {}), x());
    write(data + "output_0.pb", tensor("loss", {}, {}), {value(x(), bias)});
    write(data + "grad_0.pb", tensor("x", {kRows, kInner}, {}),
          differences(x(), [&](const auto& at) { return value(at, bias); }));
    if (form.biased)
      write(data + "grad_1.pb", tensor("b", {kInner}, {}),
            differences(bias, [&](const auto& at) { return value(x(), at); }));
    for (const char* const passes : {"none", "default"}) {
      const Outcome o = run({"check", folder, "--ops", path("two.so"), "--precision", "f64", "--rtol", "1e-8",
                             "--atol", "1e-9", "--passes", passes});
      EXPECT_NE(o.out.find("1 passed, 0 failed, 0 unsupported"), std::string::npos) << text << o.out << o.err;
    }
  }
}

TEST_F(CustomOps, TrainsWithTheSameBitsForAnyThreadsAndPasses) {
  const std::vector<double> plain = losses({"--passes", "none", "--threads", "1"});
  EXPECT_EQ(losses({"--passes", "none", "--threads", "2"}), plain);
  const std::vector<double> optimized = losses({});
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(optimized[i], plain[i], 1e-6 * plain[i]);
  const std::vector<double> low = losses({"--precision", "bf16"});
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(low[i], plain[i], 2e-2 * plain[i]);
  const Outcome proof = run(words("verify", {"--ops", path("tanh.so")}));
  EXPECT_EQ(proof.code, 0) << proof.out << proof.err;
}

TEST_F(CustomOps, AreInPlanSessionTableAndInspection) {
  const Outcome plan = run(words("plan", {"--json", "--ops", path("tanh.so")}));
  EXPECT_EQ(plan.code, 0) << plan.err;
  for (const char* const kernel : {"\"my.domain::ScaledTanh\"", "\"my.domain::ScaledTanh backward\""})
    EXPECT_NE(plan.out.find(kernel), std::string::npos) << plan.out;
  losses({"--session", path("s.db"), "--profile", "all"});
  const Outcome show = run({"show", path("s.db"), "--json"});
  EXPECT_NE(show.out.find("my.domain::ScaledTanh backward"), std::string::npos) << show.out;
  const Outcome table = run({"ops", "--ops", path("tanh.so")});
  EXPECT_NE(table.out.find("ScaledTanh"), std::string::npos) << table.out;
  EXPECT_EQ(run({"ops"}).out.find("ScaledTanh"), std::string::npos);
  EXPECT_EQ(run({"inspect", path("model.onnx"), "--ops", path("tanh.so")}).code, 0);
}

// A recipe tells which library it needs, but only a command line loads one.
TEST_F(CustomOps, RecipesDoNotLoadCode) {
  losses({"--session", path("s.db")});
  ASSERT_EQ(run({"export", path("s.db"), "-o", path("r.json")}).code, 0);
  const json recipe = json::parse(read_file(path("r.json")));
  ASSERT_EQ(recipe["ops"].size(), 1u);
  EXPECT_EQ(recipe["ops"][0].get<std::string>().rfind("tanh.so#", 0), 0u) << recipe["ops"];
  expect_error({"train", "--recipe", path("r.json")}, 2, "--ops " + path("tanh.so"));
  expect_error({"plan", "--recipe", path("r.json")}, 2, "only where the command line names it");
  EXPECT_EQ(run({"plan", "--recipe", path("r.json"), "--ops", path("tanh.so")}).code, 0);
  fs::create_directory(path("other"));
  compile_odd("", "other/tanh.so");
  expect_error({"plan", "--recipe", path("r.json"), "--ops", path("other/tanh.so")}, 3,
               "is not the library of the recipe");
  expect_error(words("plan", {"--ops", path("tanh.so") + "#" + std::string(32, '0')}), 3,
               "its contents hash to");
}

TEST_F(CustomOps, WithoutTheLibraryTheErrorTellsHow) {
  expect_error(words("plan", {}), 3, "my.domain.ScaledTanh (1 node: y)");
  expect_error(words("plan", {}), 3, "--ops LIB.so");
}

TEST_F(CustomOps, WrongLibrariesAreOneLine) {
  expect_error(words("plan", {"--ops", path("none.so")}), 5, "none.so");
  std::ofstream(path("text.so")) << "no library";
  expect_error(words("plan", {"--ops", path("text.so")}), 3, "cannot be loaded");
  const struct {
    const char *flags, *says;
  } cases[] = {
      {"-DNO_ENTRY", "exports no gradloom_register_ops"},
      {"-DMADE_FOR=999", "made for version 999 of gradloom_op.h"},
      {"-DTWICE", "my.domain::ScaledTanh: there is one of this name already"},
      {"-DNO_FORWARD", "no forward kernel"},
      {"-DDOMAIN_NAME='\"ai.onnx\"'", "the domain must be"},
      {"-DDOMAIN_NAME=0", "the domain must be"},
      {"-DSAYS='\"only on Tuesdays\"'", "my.domain::ScaledTanh: only on Tuesdays"},
      {"-DDIM=-77", "its shape function gave output 0 the dim -77"},
      {"-DRANK=99", "its shape function gave output 0 the rank 99"},
      {"-DDTYPE=99", "its shape function gave output 0 the unknown type 99"},
      {"-DFORGETS", "its shape function gave output 0"},
  };
  for (const auto& wrong : cases) {
    SCOPED_TRACE(wrong.flags);
    compile_odd(wrong.flags);
    expect_error(words("plan", {"--ops", path("odd.so")}), 3, wrong.says);
  }
  compile_odd("-DDIM=4611686018427387904");
  expect_error(words("plan", {"--ops", path("odd.so")}), 4, "my.domain::ScaledTanh: output 0: shape");
}

TEST_F(CustomOps, WithoutBackwardThereIsNoTraining) {
  compile_odd("");
  expect_error(words("plan", {"--ops", path("odd.so")}), 3, "have no gradient: ScaledTanh (y)");
}

TEST_F(CustomOps, TypesThatALibraryDoesNotTakeHaveNoKernel) {
  compile_odd("-DBACKWARD");
  EXPECT_EQ(run(words("plan", {"--ops", path("odd.so"), "--precision", "bf16"})).code, 0);
  expect_error(words("plan", {"--ops", path("odd.so"), "--precision", "f64"}), 6,
               "my.domain::ScaledTanh has no kernel for f64, its library has it for f32");
}

}  // namespace
}  // namespace gradloom
