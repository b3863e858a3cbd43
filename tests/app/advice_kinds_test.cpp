// Each kind of finding has a job, run or loop that shows it and one that does not: one table, held against the rules of advice.
#include <algorithm>
#include <set>

#include "app/advice/subject.h"
#include "engine/base/npz.h"
#include "tests/app/advice_networks.h"

namespace gradloom {
namespace {

using namespace advice_jobs;

using All = std::vector<Result<Advice>>;
All predicted(const Recipe& recipe, const TestMachine& machine = {}) {
  All all;
  all.push_back(machine.advise(recipe, false));
  return all;
}
All timed(const Recipe& recipe, const TestMachine& machine = {}) {
  All all;
  all.push_back(machine.advise(recipe, true));
  return all;
}
// Both ways: from the times of the job's own kernels, and with changes that are timed.
All both(const Recipe& recipe, const TestMachine& machine = {}) {
  All all = predicted(recipe, machine);
  all.push_back(machine.advise(recipe, true));
  return all;
}

struct Kind {
  const char* rule;
  const char* what;   // of what the rule finds; letters alone
  const char* shown;  // part of the finding's title, change or remedy
  std::function<All(AdviceKinds&)> with, without;
};

TestMachine with_fixed(double ns) {
  TestMachine machine;
  machine.fixed_ns = ns;
  return machine;
}
TestMachine with_facts(int cores, std::int64_t memory_bytes, bool fast_bf16 = false) {
  TestMachine machine;
  machine.facts = {cores, memory_bytes, fast_bf16};
  return machine;
}
TestMachine slow_at(const std::string& op, double times) {
  TestMachine machine;
  machine.slower = [=](const KernelInfo& k) { return k.op.rfind(op, 0) == 0 ? times : 1.0; };
  return machine;
}
// So long do casts of a type take that the processor lacks, and so short products of one that it has.
TestMachine at_bf16(bool fast, double times) {
  TestMachine machine = with_facts(1, std::int64_t{64} << 30, fast);
  machine.flops_per_ns = 2;
  machine.slower = [=](const KernelInfo& k) { return k.types.rfind("bf16", 0) == 0 ? times : 1.0; };
  return machine;
}

std::int64_t peak_of(const Recipe& recipe) {
  const auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok());
  return prepared.ok() ? (*prepared)->compiled.plan.peak_bytes() : 0;
}

// ---- Jobs ----

constexpr const char* kAttention =
    "g (float[4, 2, 256, 32] q, float[4, 2, 32, 256] k, float[4, 2, 256, 32] v) => (float loss) { "
    "qw = MatMul(q, w) s = MatMul(qw, k) sm = Add(s, mask) p = Softmax<axis=-1>(sm) y = MatMul(p, v) "
    "z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }";
Recipe attention(AdviceKinds& t) {
  return t.job_of(kAttention, {{"w", {32, 32}}, {"mask", {1, 2, 256, 256}}});
}
Recipe attention_of_fixed_mask(AdviceKinds& t) {
  Recipe recipe = attention(t);
  recipe.freeze = {"mask"};
  return recipe;
}
Recipe attention_of_asked_mask(AdviceKinds& t) {
  Recipe recipe = attention(t);
  recipe.train = {"mask"};
  return recipe;
}

Recipe small_layers(AdviceKinds& t, const std::string& passes) {
  return AdviceKinds::with_passes(
      t.job_of("g (float[8, 64] x) => (float loss) { a = MatMul(x, w0) b = Relu(a) c = MatMul(b, w1) "
               "d = Relu(c) y = MatMul(d, w2) z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }",
               {{"w0", {64, 64}}, {"w1", {64, 64}}, {"w2", {64, 64}}}),
      passes);
}
Recipe softmax_of_products(AdviceKinds& t) {
  return t.job_of(
      "g (float[2048, 64] x) => (float loss) { h = MatMul(x, w0) s = Softmax<axis=-1>(h) z = Mul(s, s) "
      "loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {64, 64}}});
}

Recipe between_products(AdviceKinds& t, const std::string& between) {
  return t.job_of("g (float[8192, 16] x) => (float loss) { h = MatMul(x, w0) " + between +
                      " y = MatMul(b, w1) z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }",
                  {{"w0", {16, 16}}, {"w1", {16, 16}}});
}
Recipe between_softmaxes(AdviceKinds& t, const std::string& between) {
  return t.job_of("g (float[64, 128, 96] x) => (float loss) { h = MatMul(x, w0) a = Softmax<axis=-1>(h) " +
                      between + " z = Mul(b, b) loss = ReduceMean<keepdims=0>(z) }",
                  {{"w0", {96, 128}}});
}

Recipe lstm(bool pieces) {
  Recipe recipe = AdviceKinds::known_job("mlp");
  recipe.model = GRADLOOM_SOURCE_DIR "/tests/modules/lstm-bidirectional/model.onnx";
  recipe.loss.clear();
  recipe.dims.clear();
  recipe.pieces = pieces;
  return recipe;
}

Recipe of_classes(AdviceKinds& t, std::int64_t classes) {
  return t.job_of(
      "g (float[256, 256] x) => (float loss) { h = MatMul(x, w0) r = Relu(h) y = MatMul(r, w1) z = Mul(y, y) "
      "loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {256, 256}}, {"w1", {256, classes}}});
}
TestMachine slow_at_1003() {
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) {
    const bool odd = k.types.find("1003") != std::string::npos || k.flops > 1.3e8;
    return k.op != "Relu" && k.flops > 1e7 && odd ? 3.0 : 1.0;
  };
  return machine;
}

// A layer of a transformer over texts of up to 32 tokens, of which the loss reads the first.
constexpr const char* kPadded =
    "g (int64[8, 32] ids, int64[8, 32] mask) => (float loss) { x = Gather<axis=0>(table, ids) q = MatMul(x, wq) "
    "k = MatMul(x, wk) v = MatMul(x, wv) kt = Transpose<perm=[0, 2, 1]>(k) s = MatMul(q, kt) "
    "m = Reshape(mask, keys) keep = Cast<to=9>(m) sm = Where(keep, s, low) p = Softmax<axis=-1>(sm) "
    "y = MatMul(p, v) o = MatMul(y, wo) r = Add(x, o) f = MatMul(r, w1) g1 = Relu(f) h = MatMul(g1, w2) "
    "first = Gather<axis=1>(h, zero) pooled = MatMul(first, wp) z = Mul(pooled, pooled) "
    "loss = ReduceMean<keepdims=0>(z) }";
Recipe of_tokens(AdviceKinds& t, std::int64_t tokens) {
  Recipe recipe = t.job_of(kPadded, {{"table", {100, 64}},
                                     {"wq", {64, 64}},
                                     {"wk", {64, 64}},
                                     {"wv", {64, 64}},
                                     {"wo", {64, 64}},
                                     {"w1", {64, 1024}},
                                     {"w2", {1024, 64}},
                                     {"wp", {64, 16}}});
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(test::read_bytes(recipe.model)));
  test::add_ints(model, "keys", {3}, {8, 1, 32});
  test::add_ints(model, "zero", {}, {0});
  test::add_floats(model, "low", {}, {-1e30f});
  test::write_bytes(recipe.model, model.SerializeAsString());
  recipe.freeze = {"low"};
  Tensor ids(DType::i64, {2, 8, 32}), mask(DType::i64, {2, 8, 32});
  for (std::int64_t i = 0; i < mask.count(); ++i)
    mask.mutable_as<std::int64_t>()[i] = i % 32 < tokens ? 1 : 0;
  recipe.data = "npz:" + t.file("data" + std::to_string(tokens) + ".npz");
  EXPECT_TRUE(write_npz(recipe.data.substr(4), {{"ids", ids}, {"mask", mask}}).ok());
  return recipe;
}
Recipe of_made_up_tokens(AdviceKinds& t) {
  Recipe recipe = of_tokens(t, 6);
  recipe.data = "synthetic";
  return recipe;
}

Recipe bert(const std::function<void(Recipe&)>& change = {}, std::int64_t batch = 64) {
  Recipe recipe = AdviceKinds::known_job("bert-tiny", batch);
  if (change) change(recipe);
  return recipe;
}
void wide(Recipe& recipe) { set_precision(recipe, "f64"); }
void half(Recipe& recipe) { set_precision(recipe, "bf16"); }

Recipe on_ranks(std::int64_t ranks, const std::string& passes) {
  return AdviceKinds::with_passes(bert([&](Recipe& r) { r.ranks = ranks; }), passes);
}
TestMachine quick() {
  TestMachine machine;
  machine.flops_per_ns = machine.bytes_per_ns = 400;
  return machine;
}

std::vector<Kind> kinds_of_networks() {
  using K = AdviceKinds;
  return {
      {"wide", "Softmax", "in f64", [](K& t) { return both(softmax_in(t, true)); },
       [](K& t) { return both(softmax_in(t, false)); }},
      {"one_hot", "Table", "nn.Embedding", [](K& t) { return both(rows_of_table(t, true)); },
       [](K& t) { return both(rows_of_table(t, false)); }},
      {"one_hot", "NotOfARecurrence", "nn.Embedding", [](K& t) { return both(rows_of_table(t, true)); },
       [](K& t) { return both(recurrence_of_hot_rows(t)); }},
      {"one_hot", "NotOfAConvolution", "nn.Embedding", [](K& t) { return both(rows_of_table(t, true)); },
       [](K& t) { return both(convolution_of_hot_rows(t)); }},
      {"one_hot", "Loss", "F.cross_entropy",
       [](K& t) { return both(picked_by_hot_rows(t, true), slow_at("OneHot", 4)); },
       [](K& t) { return both(picked_by_hot_rows(t, false), slow_at("OneHot", 4)); }},
      {"product_order", "Left", "(x @ a) @ b",
       [](K& t) { return both(three_matrices(t, "m = MatMul(a, b) y = MatMul(x, m)")); },
       [](K& t) { return both(three_matrices(t, "m = MatMul(x, a) y = MatMul(m, b)")); }},
      {"repeated", "Places", "64 times", [](K& t) { return both(rows_for_places(t, true)); },
       [](K& t) { return both(rows_for_places(t, false)); }},
      {"unrolled", "OneWeight", "with one weight",
       [](K& t) { return both(many_products(t, true), with_fixed(4000)); },
       [](K& t) { return both(small_layers(t, "default"), with_fixed(4000)); }},
      {"unrolled", "OneOperand", "of one operand",
       [](K& t) { return both(many_products(t, false), with_fixed(4000)); },
       [](K& t) { return both(small_layers(t, "default"), with_fixed(4000)); }},
      {"frozen_norms", "Training", ".eval()", [](K& t) { return both(norm_before_product(t, true)); },
       [](K& t) { return both(norm_before_product(t, false)); }},
      {"frozen_norms", "NotWithoutScale", ".eval()", [](K& t) { return both(norm_before_product(t, true)); },
       [](K& t) { return both(norm_without_scale(t)); }},
      {"pairs", "Distances", "all pairs", [](K& t) { return both(distances(t, true)); },
       [](K& t) { return both(distances(t, false)); }},
      {"left_alone", "Form", "write it as softmax",
       [](K& t) { return both(attention_masked_late(t), slow_at("Softmax", 20)); },
       [](K& t) { return both(attention_of_fixed_mask(t), slow_at("Softmax", 20)); }},
      {"left_alone", "NotANormInPieces", "write it as softmax",
       [](K& t) { return both(attention_masked_late(t), slow_at("Softmax", 20)); },
       [](K& t) { return both(norm_in_pieces(t)); }},
      {"left_alone", "NotAGate", "write it as softmax",
       [](K& t) { return both(attention_masked_late(t), slow_at("Softmax", 20)); },
       [](K& t) { return both(gated(t)); }},
  };
}

std::vector<Kind> kinds_of_passes() {
  using K = AdviceKinds;
  return {
      {"passes_off", "All", "passes=default",
       [](K&) { return both(K::with_passes(K::known_job("gpt-char", 8), "none")); },
       [](K&) { return both(K::known_job("gpt-char", 8)); }},
      // Where every kernel is small, only steps tell what a launch takes.
      {"passes_off", "One", "fuse-optimizer is off",
       [](K& t) { return timed(small_layers(t, "default,-fuse-optimizer"), with_fixed(4000)); },
       [](K& t) { return both(small_layers(t, "default"), with_fixed(4000)); }},
      {"passes_on", "Costs", "passes=default,-fuse-gelu",
       [](K&) { return timed(bert(), slow_at("Gelu", 40)); }, [](K&) { return both(bert()); }},
      {"kept_out", "Except", "fuse-attention is switched off at places (*)",
       [](K&) {
         return both(K::with_passes(bert(), "default,fuse-attention{min_keys=1,except=*}"),
                     slow_at("Softmax", 20));
       },
       [](K&) {
         return both(K::with_passes(bert(), "default,fuse-attention{min_keys=1}"), slow_at("Softmax", 20));
       }},
      {"kept_out", "Only", "fuse-attention is left on for few places (/blocks.0/attn/Softmax)",
       [](K&) {
         return both(K::with_passes(K::known_job("gpt-char", 8),
                                    "default,fuse-attention{min_keys=1,only=/blocks.0/attn/Softmax}"),
                     slow_at("Softmax", 20));
       },
       [](K&) {
         return both(K::with_passes(K::known_job("gpt-char", 8), "default,fuse-attention{min_keys=1,only=*}"),
                     slow_at("Softmax", 20));
       }},
      {"left_alone", "Option", "fuse-attention{min_keys=1}",
       [](K&) { return both(bert(), slow_at("Softmax", 20)); },
       [](K&) {
         return both(K::with_passes(bert(), "default,fuse-attention{min_keys=1}"), slow_at("Softmax", 20));
       }},
      {"left_alone", "TrainedMask", "freeze=mask",
       [](K& t) { return both(attention(t), slow_at("Softmax", 20)); },
       [](K& t) { return both(attention_of_fixed_mask(t), slow_at("Softmax", 20)); }},
      {"left_alone", "MaskThatIsAskedFor",
       "freeze=mask;train=", [](K& t) { return both(attention_of_asked_mask(t), slow_at("Softmax", 20)); },
       [](K& t) { return both(attention_of_fixed_mask(t), slow_at("Softmax", 20)); }},
      {"moves", "CastAndBack", "Cast of f32 to itself",
       [](K& t) { return both(between_products(t, "a = Cast<to=10>(h) b = Cast<to=1>(a)")); },
       [](K& t) { return both(between_products(t, "b = Relu(h)")); }},
      {"moves", "Transpose", "Transpose",
       [](K& t) {
         return both(between_softmaxes(t, "t = Transpose<perm=[0, 2, 1]>(a) b = Softmax<axis=-1>(t)"),
                     slow_at("Transpose", 4));
       },
       [](K& t) { return both(between_softmaxes(t, "b = Softmax<axis=-1>(a)"), slow_at("Transpose", 4)); }},
      {"pieces", "Copied", "pieces=on", [](K&) { return both(lstm(false), with_fixed(4000)); },
       [](K&) { return both(lstm(true), with_fixed(4000)); }},
  };
}

std::vector<Kind> kinds_of_settings() {
  using K = AdviceKinds;
  constexpr std::int64_t kMuch = std::int64_t{64} << 30;
  const auto budget = [](Recipe& r) { r.memory_budget = std::to_string(peak_of(bert()) * 6 / 10); };
  return {
      {"batch", "SmallKernels", "dim=batch=", [](K&) { return both(bert({}, 1), with_fixed(4000)); },
       [](K&) { return both(bert(), with_fixed(1)); }},
      {"batch", "Memory", "dim=batch=", [](K&) { return both(bert({}, 1), with_fixed(4000)); },
       [](K&) {
         TestMachine small = with_facts(1, peak_of(bert({}, 1)));
         small.fixed_ns = 4000;
         return both(bert({}, 1), small);
       }},
      {"odd_sizes", "Vocabulary", "size 1003 of w1",
       [](K& t) { return both(of_classes(t, 1003), slow_at_1003()); },
       [](K& t) { return both(of_classes(t, 1008), slow_at_1003()); }},
      {"padding", "Tokens", "81.2 % of the positions are padding",
       [](K& t) { return both(of_tokens(t, 6), slow_at("PackedRows", 0.2)); },
       [](K& t) { return both(of_tokens(t, 32), slow_at("PackedRows", 0.2)); }},
      {"padding", "MadeUpData", "81.2 % of the positions are padding",
       [](K& t) { return both(of_tokens(t, 6), slow_at("PackedRows", 0.2)); },
       [](K& t) { return both(of_made_up_tokens(t), slow_at("PackedRows", 0.2)); }},
      {"recompute", "Needless",
       "recompute=", [](K&) { return both(bert([](Recipe& r) { r.recompute = {"*"}; })); },
       [](K&) { return both(bert()); }},
      {"recompute", "Budget", "memory-budget=", [budget](K&) { return both(bert(budget)); },
       [budget](K&) { return both(bert(budget), with_facts(1, peak_of(bert()))); }},
      {"precision", "TwiceTheWidth", "precision=f32", [](K&) { return both(bert(wide)); },
       [](K&) { return both(bert()); }},
      {"precision", "FastBf16", "precision=bf16", [](K&) { return both(bert(), at_bf16(true, 0.3)); },
       [](K&) { return both(bert(half), at_bf16(true, 0.3)); }},
      {"precision", "SlowBf16", "precision=f32", [](K&) { return both(bert(half), at_bf16(false, 4)); },
       [](K&) { return both(bert(), at_bf16(false, 4)); }},
      {"threads", "TooFew", "threads=8", [](K&) { return both(bert(), with_facts(8, kMuch)); },
       [](K&) { return both(bert([](Recipe& r) { r.threads = 8; }), with_facts(8, kMuch)); }},
      {"threads", "TooMany", "threads=2",
       [](K&) {
         TestMachine machine = with_facts(2, kMuch);
         machine.flops_per_ns = 0.1;
         return predicted(bert([](Recipe& r) { r.threads = 16; }), machine);
       },
       [](K&) {
         TestMachine machine = with_facts(2, kMuch);
         machine.flops_per_ns = 0.1;
         return predicted(bert([](Recipe& r) { r.threads = 2; }), machine);
       }},
      {"ranks", "SmallExchanges", "data-parallel",
       [](K&) { return both(on_ranks(8, "default,data-parallel{bucket_mb=0,overlap=false}"), quick()); },
       [](K&) { return both(on_ranks(1, "default"), quick()); }},
      {"efficiency", "Softmax", "Softmax",
       [](K& t) { return both(softmax_of_products(t), slow_at("Softmax", 25)); },
       [](K& t) { return both(softmax_of_products(t)); }},
      // Of what another finding takes away it has nothing to say.
      {"efficiency", "Unexplained", "Softmax",
       [](K& t) { return both(softmax_of_products(t), slow_at("Softmax", 25)); },
       [](K& t) {
         return both(between_softmaxes(t, "t = Transpose<perm=[0, 2, 1]>(a) b = Softmax<axis=-1>(t)"),
                     slow_at("Transpose", 25));
       }},
  };
}

// ---- Runs and loops ----

All of_run(const TestMachine& machine, const Recipe& recipe, const RunRecord& run,
           std::shared_ptr<const TraceDocument> trace = nullptr) {
  AdviceOptions options;
  options.machine = machine.facts;
  options.trace = std::move(trace);
  All all;
  all.push_back(advise(recipe, &run, options, {}, nullptr));
  return all;
}

All of_first_step(std::int64_t first_step_ns) {
  const TestMachine machine;
  const Recipe recipe = AdviceKinds::known_job("mlp");
  RunRecord run = run_of(recipe, machine, first_step_ns);
  if (first_step_ns == 0 && !run.steps.empty()) run.steps.front().step_ns = run.summary.median_step_ns;
  return of_run(machine, recipe, run);
}

// Of each timed step these parts are spent before its first kernel, and between each kernel and the next.
All of_waits(const Recipe& recipe, double host, double launches) {
  const TestMachine machine;
  RunRecord run = run_of(recipe, machine, 0);
  const auto kernels_ns = static_cast<double>(run.summary.median_step_ns);
  const double each = kernels_ns / static_cast<double>(run.kernels.size());
  auto trace =
      trace_of(run, static_cast<std::int64_t>(host * kernels_ns), static_cast<std::int64_t>(launches * each));
  return of_run(machine, recipe, run, std::move(trace));
}
Recipe fed_from_file(AdviceKinds& t) {
  Recipe recipe = of_classes(t, 256);
  recipe.data = "npz:" + t.file("data.npz");
  EXPECT_TRUE(write_npz(recipe.data.substr(4), {{"x", Tensor(DType::f32, {2, 256, 256})}}).ok());
  return recipe;
}

Recipe fed_with_made_up(AdviceKinds& t) {
  Recipe recipe = of_classes(t, 256);
  recipe.data = "synthetic";
  return recipe;
}

std::vector<Kind> kinds_of_runs() {
  using K = AdviceKinds;
  return {
      {"first_step", "Long", "the first of 10 steps takes", [](K&) { return of_first_step(4'000'000'000); },
       [](K&) { return of_first_step(0); }},
      {"waits", "Data", "data=synthetic", [](K& t) { return of_waits(fed_from_file(t), 1, 0); },
       [](K& t) { return of_waits(fed_from_file(t), 0.01, 0); }},
      {"waits", "Host", "fewer, larger steps", [](K& t) { return of_waits(fed_with_made_up(t), 1, 0); },
       [](K& t) { return of_waits(fed_with_made_up(t), 0.01, 0); }},
      {"waits", "Launches", "fewer kernels (passes) or longer ones",
       [](K& t) { return of_waits(fed_with_made_up(t), 0, 1); },
       [](K& t) { return of_waits(fed_with_made_up(t), 0, 0); }},
  };
}

// A loop that spends so much of its step in the engine and in something else.
std::function<All(AdviceKinds&)> of_loop(const std::string& kind, double ns) {
  return [=](AdviceKinds&) {
    All all;
    all.emplace_back(advise_loop(loop_of({{"engine", "", 1e6, 1}, {kind, "part", ns, 1}}), "s.db", {}));
    return all;
  };
}

std::vector<Kind> kinds_of_loops() {
  constexpr const char* kRemedies[][2] = {
      {"data", "num_workers"}, {"optimizer", "TrainStep"}, {"compile", "plans="}, {"outside", "fallback"},
      {"module", "wrap"},      {"backward", "wrap"},       {"step", "TrainStep"}, {"record", "profile"}};
  std::vector<Kind> kinds;
  static std::vector<std::string> rules;  // that the table points to
  rules.reserve(std::size(kRemedies));
  for (const auto& [kind, remedy] : kRemedies) {
    rules.push_back(std::string("loop_") + kind);
    kinds.push_back({rules.back().c_str(), "Long", remedy, of_loop(kind, 9e6), of_loop(kind, 1e3)});
  }
  return kinds;
}

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kAll = [] {
    std::vector<Kind> all;
    for (const auto& kinds :
         {kinds_of_passes(), kinds_of_networks(), kinds_of_settings(), kinds_of_runs(), kinds_of_loops()})
      all.insert(all.end(), kinds.begin(), kinds.end());
    return all;
  }();
  return kAll;
}

TEST(AdviceKindsTable, EveryRuleHasAJobWithAndOneWithout) {
  std::set<std::string> in_table, rules;
  for (const Kind& kind : all_kinds()) {
    EXPECT_TRUE(kind.with && kind.without) << kind.rule << " " << kind.what;
    in_table.insert(kind.rule);
  }
  for (const AdviceRule& rule : advice_rules()) rules.insert(rule.name);
  for (const std::string& rule : loop_rule_names()) rules.insert(rule);
  EXPECT_EQ(in_table, rules);
  EXPECT_GE(rules.size(), 20u);
}

class AdviceKind : public AdviceKinds, public testing::WithParamInterface<Kind> {};

TEST_P(AdviceKind, ComesFirstWhereItIs) {
  const Kind& kind = GetParam();
  for (const auto& advice : kind.with(*this)) {
    ASSERT_TRUE(advice.ok()) << advice.error().message;
    ASSERT_FALSE(advice->findings.empty()) << told(*advice);
    // What a run pays once stands behind all that each step gains.
    const bool once = std::string(kind.rule) == "first_step";
    const Finding& first = once ? advice->findings.back() : advice->findings.front();
    EXPECT_EQ(first.rule, kind.rule) << told(*advice);
    EXPECT_EQ(first.once, once);
    EXPECT_NE((first.title + " " + first.change + " " + first.remedy).find(kind.shown), std::string::npos)
        << told(*advice);
    EXPECT_LE(first.gain.low_ns, first.gain.ns);
    EXPECT_GE(first.gain.high_ns, first.gain.ns);
    EXPECT_LT(first.gain.high_ns, advice->step_ns) << "no step is left";
    EXPECT_NE(first.command, "");
    if (first.remedy.find("gradloom verify ") != std::string::npos)
      EXPECT_EQ(first.remedy.find("--steps"), std::string::npos) << "a proof makes steps of its own";
    EXPECT_FALSE(first.numbers.empty());
  }
}

TEST_P(AdviceKind, IsNotFoundWhereItIsNot) {
  const Kind& kind = GetParam();
  for (const auto& advice : kind.without(*this)) {
    ASSERT_TRUE(advice.ok()) << advice.error().message;
    for (const Finding& finding : advice->findings) EXPECT_NE(finding.rule, kind.rule) << told(*advice);
  }
}

// Other pieces are the same training: what gradients are rounded to stays.
TEST_F(AdviceKinds, PiecesOfExchangesAreRoundedAsTheyWere) {
  const Recipe recipe = on_ranks(8, "default,data-parallel{bucket_mb=0,overlap=false,dtype=bf16}");
  const All all = predicted(recipe, quick());
  ASSERT_TRUE(all[0].ok()) << all[0].error().message;
  const auto& findings = all[0]->findings;
  const auto of_ranks = std::find_if(findings.begin(), findings.end(),
                                     [](const Finding& finding) { return finding.rule == "ranks"; });
  ASSERT_NE(of_ranks, findings.end()) << told(*all[0]);
  EXPECT_NE(of_ranks->change.find("dtype=bf16"), std::string::npos) << of_ranks->change;
}

INSTANTIATE_TEST_SUITE_P(All, AdviceKind, testing::ValuesIn(all_kinds()), [](const auto& kind) {
  return std::string(kind.param.rule) + "_" + kind.param.what;
});

}  // namespace
}  // namespace gradloom
