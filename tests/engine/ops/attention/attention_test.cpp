// What FusedAttention offers to a library of the device: the samples' results by one that computes them from
// its arguments alone, and which samples are not offered. (The rows themselves:
// tests/engine/every_op_test.cpp.)
#include <cmath>
#include <cstring>

#include "engine/ops/attention/query_blocks.h"
#include "tests/engine/every_op.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionGradArgs;

float load(const void* from, std::int64_t at) {
  const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(from)[at]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
void store(void* to, std::int64_t at, double v) {
  const auto rounded = static_cast<float>(v);
  std::uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  static_cast<std::uint16_t*>(to)[at] = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// One batch and head, by the definition.
struct Head {
  const AttentionArgs& a;
  std::int64_t batch, head;

  std::int64_t at(const std::int64_t (&strides)[4], std::int64_t row, std::int64_t column) const {
    return batch * strides[0] + head * strides[1] + row * strides[2] + column * strides[3];
  }
  double mask(std::int64_t row, std::int64_t key) const {
    if (a.mask == nullptr) return 0;
    const std::int64_t index[4] = {batch, head, row, key};
    std::int64_t place = 0;
    for (int d = 0; d < 4; ++d) place = place * a.mask_dims[d] + (a.mask_dims[d] == 1 ? 0 : index[d]);
    return load(a.mask, place);
  }
  float& log_sum(std::int64_t row) const { return a.log_sum_exp[(batch * a.heads + head) * a.rows + row]; }
  // Of one row of queries; -inf where it sees nothing.
  std::vector<double> scores(std::int64_t row) const {
    const std::int64_t seen = a.causal ? std::min(row + 1, a.keys) : a.keys;
    std::vector<double> s(static_cast<std::size_t>(a.keys), -INFINITY);
    for (std::int64_t key = 0; key < seen; ++key) {
      double& score = s[static_cast<std::size_t>(key)];
      score = 0;
      for (std::int64_t i = 0; i < a.d; ++i)
        score += double{load(a.q, at(a.q_strides, row, i))} * load(a.k, at(a.k_strides, key, i));
      score = score * a.scale + mask(row, key);
    }
    return s;
  }
};

double log_sum_exp(const std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - largest);
  return largest + std::log(sum);
}
// exp(scores - log_sum)
std::vector<double> shares(std::vector<double> scores, double log_sum) {
  for (double& s : scores) s = std::exp(s - log_sum);
  return scores;
}

template <class Each>
void for_heads(const AttentionArgs& a, const Each& each) {
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t h = 0; h < a.heads; ++h) each(Head{a, b, h});
}

void forward(const AttentionArgs& a) {
  for_heads(a, [&](const Head& head) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const std::vector<double> scores = head.scores(row), p = shares(scores, log_sum_exp(scores));
      if (a.log_sum_exp != nullptr) head.log_sum(row) = static_cast<float>(log_sum_exp(scores));
      for (std::int64_t i = 0; i < a.e; ++i) {
        double sum = 0;
        for (std::int64_t key = 0; key < a.keys; ++key)
          sum += p[static_cast<std::size_t>(key)] * load(a.v, head.at(a.v_strides, key, i));
        store(a.y, head.at(a.y_strides, row, i), sum);
      }
    }
  });
}

void backward(const AttentionGradArgs& g) {
  const AttentionArgs& a = g.forward;
  const auto matrix = [](std::int64_t rows, std::int64_t columns) {
    return std::vector<double>(static_cast<std::size_t>(rows * columns), 0.0);
  };
  for_heads(a, [&](const Head& head) {
    std::vector<double> dq = matrix(a.rows, a.d), dk = matrix(a.keys, a.d), dv = matrix(a.keys, a.e);
    const auto of = [](std::vector<double>& m, std::int64_t row, std::int64_t columns,
                       std::int64_t column) -> double& {
      return m[static_cast<std::size_t>(row * columns + column)];
    };
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const std::vector<double> p = shares(head.scores(row), double{head.log_sum(row)});
      std::vector<double> dp = matrix(1, a.keys);
      double mean = 0;
      for (std::int64_t i = 0; i < a.e; ++i)
        mean += double{load(g.dy, head.at(g.dy_strides, row, i))} * load(a.y, head.at(a.y_strides, row, i));
      for (std::int64_t key = 0; key < a.keys; ++key) {
        const double share = p[static_cast<std::size_t>(key)];
        double& share_grad = dp[static_cast<std::size_t>(key)];
        for (std::int64_t i = 0; i < a.e; ++i) {
          const double dy = load(g.dy, head.at(g.dy_strides, row, i));
          share_grad += dy * load(a.v, head.at(a.v_strides, key, i));
          of(dv, key, a.e, i) += share * dy;
        }
      }
      for (std::int64_t key = 0; key < a.keys; ++key) {
        const auto k = static_cast<std::size_t>(key);
        const double score_grad = a.scale * p[k] * (dp[k] - mean);
        for (std::int64_t i = 0; i < a.d; ++i) {
          of(dq, row, a.d, i) += score_grad * load(a.k, head.at(a.k_strides, key, i));
          of(dk, key, a.d, i) += score_grad * load(a.q, head.at(a.q_strides, row, i));
        }
      }
    }
    const auto put = [&](std::vector<double>& m, void* to, const std::int64_t(&strides)[4], std::int64_t rows,
                         std::int64_t columns) {
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < columns; ++i)
          store(to, head.at(strides, row, i), of(m, row, columns, i));
    };
    put(dq, g.dq, g.dq_strides, a.rows, a.d);
    put(dk, g.dk, g.dk_strides, a.keys, a.d);
    put(dv, g.dv, g.dv_strides, a.keys, a.e);
  });
}

// A device whose library takes what it is offered and that has no kernels.
struct Library {
  bool takes = true;
  int taken = 0, launches = 0;
  std::size_t workspace_bytes = 0;

  static void launch(void* self, kernels::KernelId, const void*, std::size_t) {
    ++static_cast<Library*>(self)->launches;
  }
  static bool offer(void* self, kernels::LibraryKernelId id, const void* args, std::size_t bytes) {
    Library& library = *static_cast<Library*>(self);
    if (!library.takes) return false;
    ++library.taken;
    if (id == kernels::LibraryKernelId::attention) {
      EXPECT_EQ(bytes, sizeof(AttentionArgs));
      const auto& a = *static_cast<const AttentionArgs*>(args);
      library.workspace_bytes = a.workspace_bytes;
      forward(a);
    } else {
      EXPECT_EQ(bytes, sizeof(AttentionGradArgs));
      const auto& g = *static_cast<const AttentionGradArgs*>(args);
      library.workspace_bytes = g.forward.workspace_bytes;
      backward(g);
    }
    return true;
  }
};

// Runs the sample's node on that device, its results in `outputs`.
void run_with_library(const every_op::Built& built, Library& library, std::vector<Tensor>& outputs,
                      bool dnn_library = true) {
  const Node& node = built.graph.nodes[0];
  const auto kernel =
      prepare_kernel(*node.op, node_types(built.graph, node, kernels::Target::gpu, dnn_library));
  ASSERT_OK(kernel);
  std::vector<const void*> in;
  for (const ValueId id : node.inputs) {
    const auto fed = built.feeds.find(id);
    in.push_back(fed != built.feeds.end() ? fed->second.data() : built.graph.values[id].data.data());
  }
  std::vector<void*> out;
  for (const ValueId id : node.outputs) {
    const Type& type = built.graph.type(id);
    outputs.push_back(Tensor(type.dtype, type.shape));
    out.push_back(outputs.back().mutable_data());
  }
  std::vector<std::byte> workspace(kernel->workspace_bytes + 64);
  const kernels::RandomState random{every_op::kSeed, every_op::kStep};
  const kernels::Launcher on(&Library::launch, &library, &Library::offer);
  kernel->run({in.data(), out.data(), workspace.data(), &random, on});
  EXPECT_LE(library.workspace_bytes, kernel->workspace_bytes);
}

// Of [2, 4, 5, 3] the first two heads of each image, on the first of two ranks: the probabilities that are dropped are those of all heads.
TEST(Attention, APartOfTheHeadsDropsWhatAllDo) {
  constexpr std::int64_t kHeads = 4, kOwn = 2, kRows = 5, kColumns = 3;
  const auto heads_of = [&](std::int64_t heads, double shift) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < 2 * kHeads * kRows * kColumns; ++i)
      if (i / (kRows * kColumns) % kHeads < heads) values.push_back(std::sin(static_cast<double>(i) + shift));
    return Tensor::from_f64(DType::f64, {2, heads, kRows, kColumns}, values);
  };
  const Attrs whole{{"dropout", 0.4}, {"key", std::int64_t{5}}};
  Attrs part = whole;
  part.set("parts", std::int64_t{2});
  part.set("run", kOwn * kRows * kRows);
  const auto computed = [&](const char* op, const Attrs& attrs, std::int64_t heads, int outputs) {
    std::vector<Tensor> inputs;
    for (const double shift : {1, 2, 3}) inputs.push_back(heads_of(heads, shift));
    if (outputs == 3) {
      auto forward = evaluate(op_by_name("FusedAttention"), attrs, inputs, 2, "node", 11, 1);
      EXPECT_TRUE(forward.ok()) << (forward.ok() ? "" : forward.error().message);
      if (!forward.ok()) return std::vector<Tensor>();
      inputs.insert(inputs.begin(), forward->begin(), forward->end());
      inputs.insert(inputs.begin(), heads_of(heads, 4));
    }
    auto result = evaluate(op_by_name(op), attrs, inputs, outputs, "node", 11, 1);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return result.ok() ? *result : std::vector<Tensor>();
  };
  for (const auto& [op, outputs] : {std::pair("FusedAttention", 1), std::pair("FusedAttentionGrad", 3)}) {
    const auto all = computed(op, whole, kHeads, outputs), some = computed(op, part, kOwn, outputs),
               others = computed(op, whole, kOwn, outputs);
    ASSERT_EQ(some.size(), static_cast<std::size_t>(outputs));
    for (std::size_t k = 0; k < some.size(); ++k) {
      double differs = 0;
      for (std::int64_t i = 0, at = 0; i < all[k].count(); ++i) {
        if (i / (kRows * kColumns) % kHeads >= kOwn) continue;
        EXPECT_NEAR(some[k].at(at), all[k].at(i), 1e-14) << op << " " << k;
        differs = std::max(differs, std::abs(others[k].at(at) - all[k].at(i)));
        ++at;
      }
      EXPECT_GT(differs, 1e-3) << "the second image would drop others";
    }
  }
}

TEST(AttentionMask, HidesTheFutureOnly) {
  attention::Attention a;
  a.rows = 3;
  a.keys = 4;
  a.fill = -1e30;
  a.mask = attention::Mask::add;
  constexpr double kHidden = -1e30;
  const std::vector<double> causal = {0, kHidden, kHidden, kHidden, 0, 0, kHidden, kHidden, 0, 0, 0, kHidden};
  const auto hides = [&](DType type, const std::vector<double>& values) {
    return hides_the_future_only(a, Tensor::from_f64(type, {3, 4}, values));
  };
  EXPECT_TRUE(hides(DType::f32, causal));
  for (const std::size_t at : {0u, 4u, 8u, 10u}) {  // something of the past
    std::vector<double> other = causal;
    other[at] = -1;
    EXPECT_FALSE(hides(DType::f32, other)) << at;
    other[at] = kHidden;
    EXPECT_FALSE(hides(DType::f32, other)) << at;
  }
  for (const std::size_t at : {1u, 6u, 11u}) {  // a part of the future
    std::vector<double> other = causal;
    other[at] = -10;
    EXPECT_FALSE(hides(DType::f32, other)) << at;
  }
  std::vector<double> blocked;
  for (const double v : causal) blocked.push_back(v < 0 ? 1 : 0);
  a.mask = attention::Mask::block;
  EXPECT_TRUE(hides(DType::boolean, blocked));
  a.mask = attention::Mask::keep;
  EXPECT_FALSE(hides(DType::boolean, blocked));
  a.mask = attention::Mask::block;
  a.fill = -10;  // does not hide
  EXPECT_FALSE(hides(DType::boolean, blocked));
  std::vector<double> least;
  for (const double v : causal) least.push_back(v < 0 ? -65504 : 0);
  a.mask = attention::Mask::add;
  EXPECT_FALSE(hides(DType::f32, least));
  a.dtype = a.scores = DType::f16;  // has nothing lower but minus infinity
  EXPECT_TRUE(hides(DType::f16, least));
}

class AttentionLibrary : public ::testing::TestWithParam<const char*> {
 protected:
  const OpDef& op() const { return op_by_name(GetParam()); }
  template <class Check>
  void for_each_sample(const Check& check) {
    for (const Sample& sample : op().samples()) {
      if (sample.bench) continue;  // only longer
      SCOPED_TRACE(sample.name);
      auto built = every_op::build(op(), sample, DType::bf16);
      ASSERT_OK(built);
      check(sample, *built);
    }
  }
};

TEST_P(AttentionLibrary, ComputesTheSame) {
  const std::set<std::string> ours = {"kept",
                                      "a row that sees nothing",
                                      "a row that sees nothing, safe",
                                      "known blind rows, safe",
                                      "known, not hidden",
                                      "known holes",
                                      "dropped",
                                      "causal, dropped"};
  // The library's gradient takes the sums of its slopes from y, which is rounded (2^-9 of numbers up to 1, 3 columns and more a row); those of
  // the reference are of the products themselves.
  const double of_y = std::string_view(GetParam()) == "FusedAttentionGrad" ? 1e-3 : 0;
  for_each_sample([&](const Sample& sample, const every_op::Built& built) {
    Library library;
    std::vector<Tensor> got;
    ASSERT_NO_FATAL_FAILURE(run_with_library(built, library, got));
    EXPECT_EQ(library.taken, ours.count(sample.name) == 0 ? 1 : 0);
    EXPECT_EQ(library.launches > 0, library.taken == 0);
    if (library.taken == 0) return;
    every_op::Built exact;
    GraphBuilder b(exact.graph);
    auto added = add_sample(b, op(), sample, DType::f64, "", DType::bf16);
    ASSERT_OK(added);
    auto runner = reference::Runner::create(exact.graph);
    ASSERT_OK(runner);
    auto want = runner->run(added->feeds, every_op::kSeed, every_op::kStep);
    ASSERT_OK(want);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(every_op::near(got[i], (*want)[added->outputs[i]], {4e-3, 1e-3 + of_y})) << "output " << i;
  });
}

TEST_P(AttentionLibrary, OursServesWhatItRefuses) {
  for_each_sample([&](const Sample&, const every_op::Built& built) {
    Library library;
    library.takes = false;
    std::vector<Tensor> got;
    ASSERT_NO_FATAL_FAILURE(run_with_library(built, library, got));
    EXPECT_GT(library.launches, 0);
  });
}

// Without a library nothing is offered and no workspace is left for it.
TEST_P(AttentionLibrary, IsLeftOutWhereThereIsNone) {
  for_each_sample([&](const Sample& sample, const every_op::Built& built) {
    Library library;
    std::vector<Tensor> got;
    ASSERT_NO_FATAL_FAILURE(run_with_library(built, library, got, false));
    EXPECT_EQ(library.taken, 0);
    const Node& node = built.graph.nodes[0];
    const auto with = prepare_kernel(op(), node_types(built.graph, node, kernels::Target::gpu, true)),
               without = prepare_kernel(op(), node_types(built.graph, node, kernels::Target::gpu, false));
    ASSERT_OK(with);
    ASSERT_OK(without);
    if (sample.name == "heads inside") {
      EXPECT_LT(without->workspace_bytes, with->workspace_bytes);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, AttentionLibrary, ::testing::Values("FusedAttention", "FusedAttentionGrad"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace gradloom
