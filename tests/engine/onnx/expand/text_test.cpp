// N-grams as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

// The n-grams 2, 3, 5, 4 and [5, 6], [7, 8], [6, 7] of ONNX's description, at outputs of another order.
TEST(ExpandText, CountsNGrams) {
  const auto counts = [](const std::string& shape, const std::string& attributes, const Array& x,
                         DType type = DType::f32) {
    ImportOptions options;
    options.float_type = type;
    const Graph graph =
        test::imported_or_fail(
            model_from_text(
                "g (int32[" + shape +
                    "] x) => (float y) { y = TfIdfVectorizer<ngram_counts = [0, 4],"
                    " ngram_indexes = [6, 1, 2, 3, 4, 5, 0], pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7], " +
                    attributes + ">(x) }",
                17),
            options)
            .graph;
    const auto runner = reference::Runner::create(graph);
    EXPECT_TRUE(runner.ok());
    Shape dims = graph.value(graph.inputs[0]).type.shape;
    const auto values = runner->run({{graph.inputs[0], Tensor::from_f64(DType::i32, dims, x)}});
    EXPECT_TRUE(values.ok());
    return values->at(graph.outputs[0]).to_f64();
  };
  const Array x = {1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8};
  const std::string pairs = ", min_gram_length = 2, max_gram_length = 2",
                    both = ", min_gram_length = 1, max_gram_length = 2";
  EXPECT_EQ(counts("12", "mode = \"TF\", max_skip_count = 0" + pairs, x), (Array{1, 0, 0, 0, 1, 1, 0}));
  // Up to 2 between: 7 . 8 no, 6 . . 7 no, 5 . 6 no; 7 8, 6 7, 5 6 and, two further, 7 (5) .. none.
  EXPECT_EQ(counts("2, 6", "mode = \"TF\", max_skip_count = 5" + both, x),
            (Array{0, 3, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(
      counts("12", "mode = \"IDF\", max_skip_count = 0, weights = [1., 2., 3., 4., 5., 6., 7.]" + both, x),
      (Array{7, 2, 3, 0, 5, 6, 0}));
  EXPECT_EQ(
      counts("12", "mode = \"TFIDF\", max_skip_count = 0, weights = [1., 2., 3., 4., 5., 6., 7.]" + both, x),
      (Array{7, 6, 3, 0, 5, 6, 0}));
  EXPECT_EQ(counts("12", "mode = \"IDF\", max_skip_count = 0, weights = [1., 2., 3., 4., 5., 6., 7.]" + both,
                   x, DType::f64),
            (Array{7, 2, 3, 0, 5, 6, 0}));
}

TEST(ExpandText, WhatDoesNotFitIsTheReason) {
  const auto refused = [](const std::string& attributes, const std::string& reason) {
    expect_refused(
        import_model(model_from_text(
            "g (int64[4] x) => (float y) { y = TfIdfVectorizer<min_gram_length = 2, max_skip_count = 0, " +
            attributes + ">(x) }")),
        Errc::bad_input, {reason});
  };
  const std::string pairs = "max_gram_length = 2, ngram_counts = [0, 0], pool_int64s = [5, 6, 7, 8], ";
  refused(pairs + "mode = \"TF\", ngram_indexes = [0]", "do not fit 2 n-grams");
  refused(pairs + "mode = \"TF\", ngram_indexes = [0, -1]",
          "attribute 'ngram_indexes' is -1, it must be at least 0");
  refused(pairs + "mode = \"IF\", ngram_indexes = [0, 1]",
          "attribute 'mode' is 'IF', it must be TF, IDF or TFIDF");
  refused(
      "max_gram_length = 3, ngram_counts = [0, 0, 4], pool_int64s = [5, 6, 7, 8, 9], mode = \"TF\","
      " ngram_indexes = [0, 1]",
      "does not cut the pool");
  refused(
      "max_gram_length = 5, ngram_counts = [0, 0, 0, 0, 0], pool_int64s = [5, 6, 7, 8, 9], mode = \"TF\","
      " ngram_indexes = [0]",
      "shorter than every n-gram");
}

}  // namespace
}  // namespace gradloom::expand_test
