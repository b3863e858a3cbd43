// Counts of n-grams of integers (those of strings are out of scope): for every n, distance between neighbours
// and element k of the n-grams one comparison of a slice with the pool; an n-gram is found where all agree.
//   TfIdfVectorizer   x [C] or [B, C] -> [outputs] or [B, outputs]; TF: the counts, IDF: 1 where found, times
//                     the weight, TFIDF: the counts times the weight
// Source: ONNX TfIdfVectorizer-9.
#include <algorithm>

#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMostOutputs = 1 << 20, kMostSkips = 1000;

// The n-grams of one length, one after the other in the pool.
struct Level {
  std::int64_t n;      // elements of each
  Ints grams;          // count * n
  std::int64_t first;  // the number of the first one among all of the pool
  std::int64_t count() const { return static_cast<std::int64_t>(grams.size()) / n; }
};

Result<std::vector<Level>> levels_of(const Ints& pool, const Ints& starts) {
  std::vector<Level> levels;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i) + 1, size = static_cast<std::int64_t>(pool.size());
    const std::int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : size;
    if (begin < 0 || end < begin || end > size || (end - begin) % n != 0)
      return infer_error("ngram_counts does not cut the pool into n-grams");
    levels.push_back({n, Ints(pool.begin() + begin, pool.begin() + end), first});
    first += levels.back().count();
  }
  return levels;
}

// How often each n-gram of the level is in x, neighbours `step` apart: [.., count].
Result<ValueId> counted(Expander& e, ValueId x, const Level& level, std::int64_t step) {
  const auto axis = static_cast<std::int64_t>(e.rank(x)) - 1;
  const std::int64_t places = e.shape(x).back() - (level.n - 1) * step;
  ValueId found = kNone;
  for (std::int64_t k = 0; k < level.n; ++k) {
    Ints elements;
    for (std::int64_t g = 0; g < level.count(); ++g)
      elements.push_back(level.grams[static_cast<std::size_t>(g * level.n + k)]);
    const ValueId here = TRY(e.slice(x, k * step, k * step + places, axis));
    const ValueId column = TRY(e.op("Unsqueeze", {here, e.ints({axis + 1})}));
    const ValueId equal = TRY(e.op("Equal", {column, e.ints(elements)}));
    found = found == kNone ? equal : TRY(e.op("And", {found, equal}));
  }
  return e.op("ReduceSum", {TRY(e.cast(found, DType::f32)), e.ints({axis})}, {{"keepdims", std::int64_t{0}}});
}

// The weights of the level's n-grams at the outputs they count for: [count, outputs].
Tensor weights_of(const Level& level, const Ints& indices, const std::vector<double>& weights,
                  std::int64_t outputs) {
  std::vector<double> matrix(static_cast<std::size_t>(level.count() * outputs), 0);
  for (std::int64_t g = 0; g < level.count(); ++g) {
    const auto gram = static_cast<std::size_t>(level.first + g);
    matrix[static_cast<std::size_t>(g * outputs + indices[gram])] = weights.empty() ? 1 : weights[gram];
  }
  return Tensor::from_f64(DType::f32, {level.count(), outputs}, matrix);
}

Status tf_idf(Expander& e) {
  if (e.attrs.has("pool_strings")) return e.unsupported("n-grams of strings");
  const std::string mode = e.attrs.text("mode");
  const Ints indices = e.attrs.integers("ngram_indexes");
  const auto levels = TRY(levels_of(e.attrs.integers("pool_int64s"), e.attrs.integers("ngram_counts")));
  const auto grams =
      static_cast<std::size_t>(levels.empty() ? 0 : levels.back().first + levels.back().count());
  const auto weights = mode == "TF" ? std::vector<double>() : e.attrs.reals("weights");
  if (indices.size() != grams || (!weights.empty() && weights.size() != grams))
    return infer_error("ngram_indexes or weights do not fit " + std::to_string(grams) + " n-grams");
  const auto most = std::max_element(indices.begin(), indices.end());
  if (grams == 0 || *most >= kMostOutputs)
    return infer_error("ngram_indexes must be from 0 to " + std::to_string(kMostOutputs - 1));
  const std::int64_t outputs = *most + 1, shortest = e.attrs.integer("min_gram_length"),
                     longest = e.attrs.integer("max_gram_length"), skips = e.attrs.integer("max_skip_count");
  if (shortest < 1 || longest < shortest || skips < 0) return infer_error("its lengths do not make n-grams");
  if (skips > kMostSkips) return e.unsupported("more than " + std::to_string(kMostSkips) + " skips");
  const ValueId x = TRY(e.cast(e.in(0), DType::i64));
  if (e.rank(x) < 1 || e.rank(x) > 2) return infer_error("the input has rank " + std::to_string(e.rank(x)));
  const std::int64_t length = e.shape(x).back();
  if (length < 0) return e.unsupported("the length of its input is not known");

  ValueId y = kNone;
  for (const Level& level : levels) {
    if (level.n < shortest || level.n > longest || level.count() == 0) continue;
    ValueId counts = kNone;
    // One element has no neighbours, so no distances either.
    for (std::int64_t step = 1; step <= (level.n == 1 ? 1 : skips + 1); ++step) {
      if ((level.n - 1) * step >= length) break;
      const ValueId more = TRY(counted(e, x, level, step));
      counts = counts == kNone ? more : TRY(e.op("Add", {counts, more}));
    }
    if (counts == kNone) continue;
    const DType type = e.dtype(counts);  // f64 where floats are read as such
    if (mode == "IDF") counts = TRY(e.op("Min", {counts, e.scalar(type, 1)}));
    const Tensor matrix = weights_of(level, indices, weights, outputs).cast(type);
    const ValueId placed = TRY(e.op("MatMul", {counts, e.constant(matrix)}));
    y = y == kNone ? placed : TRY(e.op("Add", {y, placed}));
  }
  if (y == kNone) return e.unsupported("an input that is shorter than every n-gram");
  e.outputs[0] = y;
  return {};
}

}  // namespace

std::span<const Expansion> text_expansions() {
  static const Expansion kTable[] = {{"TfIdfVectorizer", "", 9, kNewest, 1, 1, 1, tf_idf, {}}};
  return kTable;
}

}  // namespace gradloom
