// Epochs, shuffling, folders of archives, and arrays that stay in their files.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include "engine/base/npz.h"
#include "sessions/data.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using ArraysTest = SessionTest;

const std::vector<InputSpec> kOne = {{"x", {DType::f32, {2}}, 0, false}};

Tensor counting(std::int64_t first, const Shape& shape, DType dtype = DType::f32) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), static_cast<double>(first));
  return Tensor::from_f64(dtype, shape, values);
}

// A .npy file, as numpy.save writes version 1.0.
std::string npy(const Tensor& tensor, const std::string& descr) {
  std::string shape;
  for (const std::int64_t dim : tensor.shape()) shape += std::to_string(dim) + ", ";
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 10) / 64 * 64 + 64 - 10, ' ');
  header.back() = '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return text + header + std::string(static_cast<const char*>(tensor.data()), tensor.bytes());
}

// The first element of each of the batches.
std::vector<double> firsts(const BatchSource& source, std::int64_t from, std::int64_t count,
                           const std::string& name = "x") {
  std::vector<double> out;
  for (std::int64_t i = from; i < from + count; ++i) {
    const auto batch = source.batch(i);
    EXPECT_TRUE(batch.ok()) << error_of(batch);
    if (batch.ok()) out.push_back(batch->at(name).at(0));
  }
  return out;
}

TEST_F(ArraysTest, ShuffledEpochsHaveEveryBatchOnceInAnOrderOfTheirOwn) {
  ASSERT_TRUE(write_npz(file("d.npz"), {{"x", counting(0, {50, 2})}}).ok());
  const auto source = make_batches("npz:" + file("d.npz"), kOne, 3, {.shuffle = true}),
             again = make_batches("npz:" + file("d.npz"), kOne, 3, {.shuffle = true}),
             other = make_batches("npz:" + file("d.npz"), kOne, 4, {.shuffle = true}),
             plain = make_batches("npz:" + file("d.npz"), kOne, 3);
  ASSERT_TRUE(source.ok() && again.ok() && other.ok() && plain.ok());
  std::vector<double> first = firsts(**source, 0, 50), second = firsts(**source, 50, 50);
  EXPECT_EQ(firsts(**again, 60, 40), std::vector<double>(second.begin() + 10, second.end()))
      << "from any place on";
  EXPECT_NE(first, second);
  EXPECT_NE(first, firsts(**other, 0, 50));
  const std::vector<double> in_order = firsts(**plain, 0, 50);
  for (std::vector<double>* epoch : {&first, &second}) {
    EXPECT_NE(*epoch, in_order);
    std::sort(epoch->begin(), epoch->end());
    EXPECT_EQ(*epoch, in_order);
  }
  EXPECT_EQ(make_batches("synthetic", kOne, 3, {.shuffle = true}).error().code, Errc::usage);
}

TEST_F(ArraysTest, AFolderIsItsFilesOneBehindTheOther) {
  std::filesystem::create_directory(file("f"));
  EXPECT_NE(error_of(make_batches("npz:" + file("f"), kOne, 0)).find("no .npz files"), std::string::npos);
  ASSERT_TRUE(write_npz(file("f/b.npz"), {{"x", counting(100, {3, 2})}}).ok());
  ASSERT_TRUE(write_npz(file("f/a.npz"), {{"x", counting(0, {2, 2})}, {"unused", counting(0, {7})}}).ok());
  ASSERT_TRUE(write_npz(file("f/c.npz"), {{"x", counting(200, {1, 2})}}).ok());
  write_all(file("f/.hidden.npz"), "nothing");
  write_all(file("f/README"), "nothing");
  const auto source = make_batches("npz:" + file("f"), kOne, 5);
  ASSERT_TRUE(source.ok()) << error_of(source);
  EXPECT_EQ((*source)->count(), 6);
  const std::vector<double> once{0, 2, 100, 102, 104, 200};
  EXPECT_EQ(firsts(**source, 0, 6), once);
  EXPECT_EQ(firsts(**source, 6, 6), once);
  EXPECT_EQ(firsts(**source, 3, 1), std::vector<double>{102}) << "backwards too";

  const auto shuffled = make_batches("npz:" + file("f"), kOne, 5, {.shuffle = true}),
             later = make_batches("npz:" + file("f"), kOne, 5, {.shuffle = true});
  ASSERT_TRUE(shuffled.ok() && later.ok());
  std::set<std::vector<double>> orders;
  for (std::int64_t epoch = 0; epoch < 12; ++epoch) {
    std::vector<double> order = firsts(**shuffled, 6 * epoch, 6);
    if (epoch == 7) {
      EXPECT_EQ(firsts(**later, 42, 6), order);
    }
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, once);
  }
  EXPECT_GT(orders.size(), 6u);
}

TEST_F(ArraysTest, AFoldersFilesAreLookedAtFirst) {
  std::filesystem::create_directory(file("f"));
  ASSERT_TRUE(write_npz(file("f/a.npz"), {{"x", counting(0, {2, 2})}}).ok());
  ASSERT_TRUE(write_npz(file("f/b.npz"), {{"x", counting(0, {2, 3})}}).ok());
  const auto wrong = make_batches("npz:" + file("f"), kOne, 0);
  EXPECT_NE(error_of(wrong).find("b.npz"), std::string::npos) << error_of(wrong);
  EXPECT_NE(error_of(wrong).find("one more leading axis"), std::string::npos) << error_of(wrong);
  ASSERT_TRUE(write_npz(file("f/b.npz"), {{"x", counting(0, {2, 2})}}).ok());
  const auto source = make_batches("npz:" + file("f"), kOne, 0);
  ASSERT_TRUE(source.ok());
  ASSERT_TRUE(write_npz(file("f/b.npz"), {{"x", counting(0, {5, 2})}}).ok());
  const auto changed = (*source)->batch(2);
  EXPECT_NE(error_of(changed).find("has changed while it was used: 5 batches, before 2"), std::string::npos)
      << error_of(changed);
}

TEST_F(ArraysTest, NpyArraysAreBatchesOrSamples) {
  write_all(file("batches.npy"), npy(counting(0, {3, 4, 2}), "<f4"));
  write_all(file("samples.npy"), npy(counting(0, {13, 2}), "<f4"));
  write_all(file("labels.npy"), npy(counting(0, {13}, DType::i64), "<i8"));
  const std::vector<InputSpec> inputs = {{"x", {DType::f64, {4, 2}}, 0, false},
                                         {"y", {DType::i64, {4}}, 13, true}};
  const auto batches = make_batches("npy:x=" + file("batches.npy"), {inputs[0]}, 0);
  ASSERT_TRUE(batches.ok()) << error_of(batches);
  EXPECT_EQ((*batches)->count(), 3);
  EXPECT_EQ(firsts(**batches, 0, 4), (std::vector<double>{0, 8, 16, 0}));
  EXPECT_EQ((*batches)->batch(1)->at("x").type(), inputs[0].type) << "floats are converted";

  const std::string spec = "npy:y=" + file("labels.npy") + ",x=" + file("samples.npy");
  const auto samples = make_batches(spec, inputs, 0);
  ASSERT_TRUE(samples.ok()) << error_of(samples);
  EXPECT_EQ((*samples)->count(), 3) << "one sample is left over";
  EXPECT_EQ((*samples)->batch(2)->at("y").to_i64(), (std::vector<std::int64_t>{8, 9, 10, 11}));

  const auto shuffled = make_batches(spec, inputs, 1, {.shuffle = true});
  ASSERT_TRUE(shuffled.ok()) << error_of(shuffled);
  std::set<std::int64_t> seen;
  bool mixed = false;
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto batch = *(*shuffled)->batch(i);
    const std::vector<std::int64_t> labels = batch.at("y").to_i64();
    for (std::size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(batch.at("x").at(static_cast<std::int64_t>(2 * row)), 2.0 * static_cast<double>(labels[row]))
          << "samples stay with their labels";
      seen.insert(labels[row]);
    }
    mixed = mixed || labels[1] != labels[0] + 1;
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_TRUE(mixed);
  for (std::int64_t i = 3; i < 120; ++i)
    for (const std::int64_t label : (*shuffled)->batch(i)->at("y").to_i64()) seen.insert(label);
  EXPECT_EQ(seen.size(), 13u) << "each epoch leaves out another";
}

TEST_F(ArraysTest, NpyErrorsNameTheFile) {
  write_all(file("x.npy"), npy(counting(0, {13, 2}), "<f4"));
  write_all(file("y.npy"), npy(counting(0, {12}, DType::i64), "<i8"));
  const InputSpec x{"x", {DType::f32, {4, 2}}, 0, false}, y{"y", {DType::i64, {4}}, 8, true};
  const auto message = [&](const std::string& spec, const std::vector<InputSpec>& inputs, Errc code) {
    const auto source = make_batches(spec, inputs, 0);
    EXPECT_FALSE(source.ok()) << spec;
    EXPECT_EQ(source.error().code, code) << error_of(source);
    return error_of(source);
  };
  EXPECT_NE(message("npy:x", {x}, Errc::usage).find("INPUT=FILE"), std::string::npos);
  EXPECT_NE(message("npy:x=" + file("x.npy"), {x, y}, Errc::usage).find("no file for input y"),
            std::string::npos);
  EXPECT_NE(message("npy:z=" + file("x.npy"), {x}, Errc::usage).find("unknown input 'z'"), std::string::npos);
  EXPECT_NE(message("npy:x=" + file("x.npy") + ",x=" + file("x.npy"), {x}, Errc::usage).find("two files"),
            std::string::npos);
  EXPECT_NE(message("npy:x=" + file("none.npy"), {x}, Errc::io).find("none.npy"), std::string::npos);
  const std::string counts =
      message("npy:x=" + file("x.npy") + ",y=" + file("y.npy"), {x, y}, Errc::bad_input);
  EXPECT_NE(counts.find("y.npy: 12 samples"), std::string::npos) << counts;
  const std::string shape =
      message("npy:x=" + file("x.npy"), {{"x", {DType::f32, {4, 3}}, 0, false}}, Errc::bad_input);
  EXPECT_NE(shape.find("x.npy: array x is f32[13, 2], but input x (f32[4, 3]) needs"), std::string::npos)
      << shape;
  EXPECT_NE(message("npy:x=" + file("x.npy"), {{"x", {DType::f32, {40, 2}}, 0, false}}, Errc::bad_input)
                .find("no whole batch"),
            std::string::npos);
  const auto labels = make_batches("npy:y=" + file("y.npy"), {y}, 0);
  ASSERT_TRUE(labels.ok()) << error_of(labels);
  EXPECT_TRUE((*labels)->batch(1).ok());
  EXPECT_NE(error_of((*labels)->batch(2)).find("label 8 at element 8 is outside of 0..7"), std::string::npos);
  std::string cut = npy(counting(0, {13, 2}), "<f4");
  cut.pop_back();
  write_all(file("cut.npy"), cut);
  EXPECT_NE(message("npy:x=" + file("cut.npy"), {x}, Errc::bad_input).find("needs 104 bytes, but has 103"),
            std::string::npos);
  write_all(file("bad.npy"), "nothing");
  message("npy:x=" + file("bad.npy"), {x}, Errc::bad_input);
}

TEST_F(ArraysTest, FilesOfDataMoveWithTheRecipe) {
  const auto moved = [](const std::string& spec) {
    return move_data_files(spec, [](const std::string& file) { return "/there/" + file; });
  };
  EXPECT_EQ(moved("synthetic"), "synthetic");
  EXPECT_EQ(moved("npz:a.npz"), "npz:/there/a.npz");
  EXPECT_EQ(moved("tokens{bytes=2}:t.bin"), "tokens{bytes=2}:/there/t.bin");
  EXPECT_EQ(moved("npy:x=a.npy,y=b.npy"), "npy:x=/there/a.npy,y=/there/b.npy");
  for (const char* bad :
       {"npy:x", "npz:", "tokens{bytes=3}:f", "tokens{bytes=2:f", "tokens{wide=on}:f", "csv:f"})
    EXPECT_FALSE(check_data(bad).ok()) << bad;
  for (const char* good : {"synthetic", "npz:f", "npy:x=f", "tokens:f", "tokens{bytes=4}:f"})
    EXPECT_TRUE(check_data(good).ok()) << good;
}

}  // namespace
}  // namespace gradloom::test
