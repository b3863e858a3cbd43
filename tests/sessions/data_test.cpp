#include "sessions/data.h"

#include <cmath>

#include "engine/base/npz.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using DataTest = SessionTest;

const std::vector<InputSpec> kMixed = {{"x", {DType::f32, {16, 32}}, 0, false},
                                       {"ids", {DType::i64, {16, 8}}, 100, false},
                                       {"labels", {DType::i32, {16}}, 10, true}};

TEST_F(DataTest, SyntheticIsNormalUniformAndRepeatable) {
  const auto source = make_batches("synthetic", kMixed, 7), again = make_batches("synthetic", kMixed, 7),
             other = make_batches("synthetic", kMixed, 8);
  ASSERT_TRUE(source.ok() && again.ok() && other.ok());
  double sum = 0, squares = 0;
  std::int64_t n = 0, low = 1000, high = -1;
  for (std::int64_t i = 0; i < 40; ++i) {
    auto batch = *(*source)->batch(i);
    ASSERT_EQ(batch.size(), 3u);
    for (const InputSpec& input : kMixed) ASSERT_EQ(batch.at(input.name).type(), input.type);
    EXPECT_TRUE(bit_equal(batch.at("x"), (*again)->batch(i)->at("x")));
    EXPECT_FALSE(bit_equal(batch.at("x"), (*other)->batch(i)->at("x")));
    EXPECT_FALSE(bit_equal(batch.at("ids"), (*source)->batch(i + 1)->at("ids")));
    for (const double x : batch.at("x").to_f64()) sum += x, squares += x * x, ++n;
    for (const std::int64_t id : batch.at("ids").to_i64()) low = std::min(low, id), high = std::max(high, id);
    for (const std::int64_t label : batch.at("labels").to_i64()) EXPECT_TRUE(label >= 0 && label < 10);
  }
  const auto count = static_cast<double>(n);
  EXPECT_NEAR(sum / count, 0, 4 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 4 * std::sqrt(2 / count));
  EXPECT_EQ(low, 0);
  EXPECT_EQ(high, 99);
  EXPECT_EQ((*source)->count(), 0);
}

TEST_F(DataTest, NpzCyclesItsBatches) {
  std::vector<double> values(3 * 2 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const std::vector<std::int64_t> label_values = {0, 1, 2, 3, -100, 2};
  ASSERT_TRUE(write_npz(file("d.npz"), {{"x", Tensor::from_f64(DType::f32, {3, 2, 4}, values)},
                                        {"labels", Tensor::from_i64(label_values).reshaped({3, 2})}})
                  .ok());
  const std::vector<InputSpec> inputs = {{"x", {DType::f64, {2, 4}}, 0, false},
                                         {"labels", {DType::i64, {2}}, 4, true, -100}};
  const auto source = make_batches("npz:" + file("d.npz"), inputs, 0);
  ASSERT_TRUE(source.ok()) << error_of(source);
  EXPECT_EQ((*source)->count(), 3);
  const auto batch = (*source)->batch(4);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->at("x").type(), (Type{DType::f64, {2, 4}})) << "floats are converted";
  EXPECT_EQ(batch->at("x").at(0), 8) << "batch 4 of 3 is batch 1";
  EXPECT_EQ(batch->at("labels").to_i64(), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(DataTest, SmallTypes) {
  ASSERT_TRUE(write_npz(file("s.npz"), {{"i", Tensor::from_f64(DType::i8, {1, 3}, {-8, 7, 9})},
                                        {"j", Tensor::from_f64(DType::i8, {1, 3}, {-8, 7, 0})},
                                        {"x", Tensor::from_f64(DType::f32, {1, 3}, {1.0625, 500, -1})}})
                  .ok());
  const auto bad = make_batches("npz:" + file("s.npz"), {{"i", {DType::i4, {3}}, 0, false}}, 0);
  EXPECT_NE(error_of(bad).find("array i: value 9 at element 2 is no i4"), std::string::npos) << error_of(bad);
  const std::vector<InputSpec> inputs = {{"j", {DType::i4, {3}}, 0, false},
                                         {"x", {DType::f8e4m3fn, {3}}, 0, false}};
  const auto source = make_batches("npz:" + file("s.npz"), inputs, 0);
  ASSERT_TRUE(source.ok()) << error_of(source);
  EXPECT_EQ((*source)->batch(0)->at("j").to_i64(), (std::vector<std::int64_t>{-8, 7, 0}));
  EXPECT_EQ((*source)->batch(0)->at("x").to_f64(), (std::vector<double>{1, 448, -1}));
  const auto synthetic = make_batches(
      "synthetic", {{"u", {DType::u2, {100}}, 50, false}, {"x", {DType::f8e5m2, {100}}, 0, false}}, 0);
  ASSERT_TRUE(synthetic.ok()) << error_of(synthetic);
  const auto batch = (*synthetic)->batch(0);
  double sum = 0;
  for (const std::int64_t v : batch->at("u").to_i64()) EXPECT_TRUE(v >= 0 && v < 4) << v;
  for (const double v : batch->at("x").to_f64()) sum += v * v;
  EXPECT_NEAR(sum / 100, 1, 0.6);
}

// NumPy's integers are of whatever width the platform or the writer chose.
TEST_F(DataTest, IntegersOfAnotherWidth) {
  const auto read = [&](const Tensor& array, const InputSpec& input) {
    EXPECT_TRUE(write_npz(file("w.npz"), {{input.name, array}}).ok());
    return make_batches("npz:" + file("w.npz"), {input}, 0);
  };
  const auto expect_values = [&](DType from, DType to, const std::vector<double>& values) {
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    const auto source = read(Tensor::from_f64(from, {1, shape[0]}, values), {"i", {to, shape}, 0, false});
    ASSERT_TRUE(source.ok()) << error_of(source);
    const Tensor got = (*(*source)->batch(0)).at("i");
    EXPECT_EQ(got.type(), (Type{to, shape}));
    EXPECT_EQ(got.to_f64(), values);
  };
  expect_values(DType::i32, DType::i64, {-2147483648.0, 2147483647, 0});
  expect_values(DType::i64, DType::i32, {-2147483648.0, 2147483647, 0});
  expect_values(DType::u8, DType::i64, {255, 0, 7});
  expect_values(DType::u64, DType::i32, {5, 0, 7});
  expect_values(DType::boolean, DType::i64, {1, 0, 1});
  const auto refusal = [&](const Tensor& array, const InputSpec& input) {
    return error_of(read(array, input));
  };
  const std::vector<std::int64_t> values = {1, -1, std::int64_t{1} << 31};
  const Tensor wide = Tensor::from_i64(values).reshaped({1, 3}), high = wide.cast(DType::u64);
  const auto expect_refusal = [&](const Tensor& array, DType to, const std::string& text) {
    const std::string error = refusal(array, {"i", {to, {3}}, 0, false});
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect_refusal(wide, DType::i32, "array i: value 2147483648 at element 2 is no i32");
  expect_refusal(wide, DType::u64, "array i: value -1 at element 1 is no u64");
  expect_refusal(high, DType::i64, "array i: value 18446744073709551615 at element 1 is no i64");
  expect_refusal(Tensor(DType::f32, {1, 3}), DType::i64, "needs i64");
  expect_refusal(wide, DType::boolean, "needs bool");
  const std::string label =
      refusal(Tensor::from_f64(DType::boolean, {1, 2}, {0, 1}), {"i", {DType::i64, {2}}, 1, true});
  EXPECT_NE(label.find("label 1 at element 1 is outside of 0..0"), std::string::npos) << label;
}

TEST_F(DataTest, AModelWithoutInputsTakesNoArchive) {
  ASSERT_TRUE(write_npz(file("d.npz"), {{"x", Tensor(DType::f32, {3, 2})}}).ok());
  const auto source = make_batches("npz:" + file("d.npz"), {}, 0);
  ASSERT_FALSE(source.ok());
  EXPECT_NE(error_of(source).find("the model has no inputs"), std::string::npos) << error_of(source);
}

TEST_F(DataTest, NpzErrorsNameArrayAndInput) {
  const auto message = [&](const std::map<std::string, Tensor>& arrays, const InputSpec& input) {
    EXPECT_TRUE(write_npz(file("e.npz"), arrays).ok());
    const auto source = make_batches("npz:" + file("e.npz"), {input}, 0);
    EXPECT_FALSE(source.ok());
    EXPECT_EQ(source.ok() ? Errc::bug : source.error().code, Errc::bad_input);
    return error_of(source);
  };
  const InputSpec labels{"labels", {DType::i64, {2}}, 4, true};
  const std::string dtype = message({{"labels", Tensor(DType::f32, {3, 2})}}, labels);
  EXPECT_NE(dtype.find("array labels is f32[3, 2], but input labels (i64[2]) needs i64"), std::string::npos)
      << dtype;
  const std::string shape = message({{"labels", Tensor(DType::i64, {2})}}, labels);
  EXPECT_NE(shape.find("one more leading axis"), std::string::npos) << shape;
  const std::string missing = message({{"label", Tensor(DType::i64, {3, 2})}}, labels);
  EXPECT_NE(missing.find("no array for input labels (i64[2]); it has label"), std::string::npos) << missing;
  const std::string range = message({{"labels", Tensor::from_i64({0, 1, 4, 0}).reshaped({2, 2})}}, labels);
  EXPECT_NE(range.find("label 4 at element 2 is outside of 0..3; the loss ignores no label"),
            std::string::npos)
      << range;
  const std::string empty = message({{"labels", Tensor(DType::i64, {0, 2})}}, labels);
  EXPECT_NE(empty.find("no batches"), std::string::npos) << empty;
  EXPECT_FALSE(make_batches("npz:" + file("none.npz"), {labels}, 0).ok());
  write_all(file("bad.npz"), "PK nothing");
  EXPECT_FALSE(make_batches("npz:" + file("bad.npz"), {labels}, 0).ok());
}

// Labels may be what the loss ignores; indices may count from the end.
TEST_F(DataTest, NegativeNumbers) {
  const auto status = [&](std::int64_t value, bool label, std::optional<std::int64_t> ignored) {
    EXPECT_TRUE(write_npz(file("n.npz"), {{"i", Tensor::from_i64({0, value}).reshaped({1, 2})}}).ok());
    const auto source =
        make_batches("npz:" + file("n.npz"), {{"i", {DType::i64, {2}}, 4, label, ignored}}, 0);
    return source.ok() ? std::string("fine") : error_of(source);
  };
  EXPECT_EQ(status(-1, false, {}), "fine");
  EXPECT_EQ(status(-4, false, {}), "fine");
  EXPECT_NE(status(-5, false, {}).find("value -5 at element 1 is outside of -4..3"), std::string::npos);
  EXPECT_NE(status(-1, true, {}).find("label -1 at element 1 is outside of 0..3; the loss ignores no label"),
            std::string::npos);
  EXPECT_EQ(status(-1, true, -1), "fine");
  EXPECT_NE(status(-100, true, -1).find("the loss ignores only -1"), std::string::npos);
  EXPECT_EQ(status(255, true, 255), "fine");
}

TEST_F(DataTest, TokensAreWindowsAndTheirFollowers) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7 + i / 256);
  write_all(file("t.txt"), text);
  // In this order the unmarked labels come first: the name tells.
  const std::vector<InputSpec> inputs = {{"labels", {DType::i64, {4, 16}}, 256, false},
                                         {"tokens", {DType::i32, {4, 16}}, 256, false}};
  const auto source = make_batches("tokens:" + file("t.txt"), inputs, 3),
             again = make_batches("tokens:" + file("t.txt"), inputs, 3);
  ASSERT_TRUE(source.ok()) << error_of(source);
  std::set<std::int64_t> starts;
  for (std::int64_t b = 0; b < 50; ++b) {
    const auto batch = *(*source)->batch(b);
    EXPECT_TRUE(bit_equal(batch.at("tokens"), (*again)->batch(b)->at("tokens")));
    ASSERT_EQ(batch.at("tokens").type(), inputs[1].type);
    const std::vector<std::int64_t> tokens = batch.at("tokens").to_i64(),
                                    labels = batch.at("labels").to_i64();
    for (std::size_t row = 0; row < 4; ++row) {
      std::string window, following;
      for (std::size_t j = 0; j < 16; ++j) {
        window += static_cast<char>(tokens[row * 16 + j]);
        following += static_cast<char>(labels[row * 16 + j]);
      }
      const std::size_t at = text.find(window + following.back());
      ASSERT_NE(at, std::string::npos) << "a window of the file";
      EXPECT_EQ(text.substr(at + 1, 16), following);
      starts.insert(static_cast<std::int64_t>(at));
    }
  }
  EXPECT_GT(starts.size(), 100u) << "windows differ";
}

TEST_F(DataTest, TokensErrors) {
  write_all(file("short.txt"), "0123456789");
  const InputSpec tokens{"tokens", {DType::i64, {2, 10}}, 256, false},
      labels{"labels", {DType::i64, {2, 10}}, 256, true};
  const std::string spec = "tokens:" + file("short.txt");
  EXPECT_NE(error_of(make_batches(spec, {tokens, labels}, 0)).find("need 11"), std::string::npos);
  write_all(file("short.txt"), "0123456789a");
  EXPECT_TRUE(make_batches(spec, {tokens, labels}, 0).ok()) << "exactly one window";
  EXPECT_NE(error_of(make_batches(spec, {tokens, {"x", {DType::f32, {2}}, 0, false}}, 0))
                .find("integer inputs only"),
            std::string::npos);
  EXPECT_NE(error_of(make_batches(spec, {tokens, {"labels", {DType::i64, {2}}, 2, true}}, 0))
                .find("one element per token"),
            std::string::npos);
  EXPECT_NE(error_of(make_batches(spec, {{"tokens", {DType::i64, {2, 10}}, 90, false}}, 0))
                .find("byte 97 at 10 is not below 90"),
            std::string::npos);
  EXPECT_NE(error_of(make_batches(spec, {tokens, labels, {"more", {DType::i64, {2}}, 2, false}}, 0))
                .find("3 integer inputs"),
            std::string::npos);
  EXPECT_EQ(make_batches("tokens:" + file("none"), {tokens}, 0).error().code, Errc::io);
  EXPECT_EQ(make_batches("tokens:", {tokens}, 0).error().code, Errc::usage);
  EXPECT_EQ(make_batches("csv:x", {tokens}, 0).error().code, Errc::usage);
  EXPECT_EQ(make_batches("synthetic", {{"x", {DType::f32, {-1, 4}}, 0, false}}, 0).error().code, Errc::usage);
}

TEST_F(DataTest, RepeatedInputsAreIntegersThatEveryBatchHas) {
  ASSERT_TRUE(write_npz(file("r.npz"), {{"same", Tensor::from_f64(DType::i64, {3, 2}, {1, 2, 1, 2, 1, 2})},
                                        {"other", Tensor::from_f64(DType::i64, {3, 2}, {1, 2, 1, 2, 1, 3})},
                                        {"unasked", Tensor::from_f64(DType::i64, {3, 1}, {1, 1, 1})},
                                        {"real", Tensor::from_f64(DType::f32, {3, 1}, {1, 1, 1})},
                                        {"scalar", Tensor::from_f64(DType::i64, {}, {1})},
                                        {"none", Tensor::from_f64(DType::i64, {0, 2}, {})},
                                        {"flags", Tensor::from_f64(DType::boolean, {3}, {1, 1, 1})}})
                  .ok());
  const std::set<std::string> names{"same", "other", "real", "scalar", "none", "flags", "missing"};
  const auto found = repeated_inputs("npz:" + file("r.npz"), names);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_TRUE(bit_equal(found->at("same"), Tensor::from_i64({1, 2})));
  EXPECT_EQ(found->at("flags").type(), (Type{DType::boolean, {}}));
  EXPECT_TRUE(repeated_inputs("synthetic", names)->empty());
  EXPECT_EQ(repeated_inputs("npz:" + file("missing.npz"), names).error().code, Errc::io);
}

}  // namespace
}  // namespace gradloom::test
