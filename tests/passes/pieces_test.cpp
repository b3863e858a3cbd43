// Parts of tensors read and written where they lie: the same bits as with copies, for the networks in tests/models and
// tests/modules and for random graphs full of slices, splits and joins, trained, forward and backward apart, in an arena of
// NaN and of large numbers; and never a larger arena.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/onnx/import.h"
#include "engine/run/module_executor.h"
#include "passes/compile.h"
#include "passes/planners.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using test::random_tensor;

// Loss, gradients, updated states: whatever the plan leaves behind.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

std::string first_difference(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return "other results exist";
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!bit_equal(a[i].second, b[i].second)) return a[i].first;
  return {};
}

Tensor contents(const Value& value, std::mt19937& random) {
  if (value.data.defined()) return value.data.loaded().value();
  return random_tensor(value.type, random);
}

// One step with the arena full of this byte.
Result<NamedTensors> run_step(const Graph& graph, const Plan& plan, std::uint8_t byte) {
  const auto device = make_cpu_device();
  const auto executor = TRY(Executor::create(graph, plan, *device));
  std::mt19937 random(5);
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.producer != kNone || plan.buffer_of[id] < 0 || value.role == Role::constant) continue;
    const Tensor data = contents(value, random);
    const bool fed = value.role == Role::input || value.role == Role::hyper;
    TRY(fed ? executor->feed(id, data) : executor->write(id, data));
  }
  executor->poison(byte);
  TRY(executor->run_forward(17, 0));
  NamedTensors results;
  for (const ValueId id : graph.outputs) results.emplace_back(graph.values[id].name, TRY(executor->read(id)));
  for (const Update& u : graph.updates)
    results.emplace_back(graph.values[u.state].name, TRY(executor->read(u.state)));
  return results;
}

// Forward, then backward in the same arena, in memory of the caller's.
Result<NamedTensors> run_parts(const Graph& graph, const Plan& plan) {
  const auto device = make_cpu_device();
  std::vector<ValueId> sources;
  std::vector<Tensor> owned, given;
  std::mt19937 random(5);
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.producer != kNone || value.role == Role::constant) continue;
    sources.push_back(id);
    owned.push_back(contents(value, random));
  }
  const auto executor = TRY(ModuleExecutor::create(graph, plan, *device, sources));
  std::vector<std::byte> arena(static_cast<std::size_t>(plan.arena_bytes + kAlignmentBytes), std::byte{0xff});
  ModuleMemory memory;
  const auto begin = reinterpret_cast<std::uintptr_t>(arena.data());
  memory.arena = arena.data() + (kAlignmentBytes - begin % kAlignmentBytes) % kAlignmentBytes;
  memory.random = {17, 0};
  for (Tensor& t : owned) memory.sources.push_back(static_cast<std::byte*>(t.mutable_data()));
  for (const ValueId id : graph.outputs) {
    given.emplace_back(graph.type(id).dtype, graph.type(id).shape);
    memory.results.push_back(static_cast<std::byte*>(given.back().mutable_data()));
  }
  TRY(executor->forward(memory));
  TRY(executor->backward(memory));
  NamedTensors results;
  for (std::size_t i = 0; i < given.size(); ++i)
    results.emplace_back(graph.values[graph.outputs[i]].name, given[i]);
  for (std::size_t i = 0; i < sources.size(); ++i)
    results.emplace_back(graph.values[sources[i]].name, owned[i]);  // updated in place
  return results;
}

PlanOptions plan_options(const char* planner, bool in_place, bool pieces) {
  const PlannerDef* def = known_planner(planner).value();
  PlanOptions options{def->plan, def->name, in_place};
  options.pieces = pieces;
  return options;
}

// ---- networks ---------------------------------------------------------------------------------------------

std::vector<std::string> folders() {
  std::vector<std::string> paths;
  for (const char* group : {"models", "modules"}) {
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(std::string(GRADLOOM_SOURCE_DIR "/tests/") + group, code))
      if (fs::exists(entry.path() / "model.onnx") &&
          entry.path().filename().string().rfind("graph-self-loops", 0) !=
              0)  // sized by the batch's contents
        paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class PiecesOfNetworks : public ::testing::TestWithParam<std::string> {
 protected:
  static Result<Graph> load(DType dtype) {
    ImportOptions bind;
    bind.float_type = dtype;
    if (GetParam().find("/models/") != std::string::npos) bind.dims = {{"batch", 2}};
    auto model = TRY(import_onnx(GetParam() + "/model.onnx", bind));
    for (const std::string& dim : model.unbound_dims) bind.dims[dim] = 6;
    return TRY(import_onnx(GetParam() + "/model.onnx", bind)).graph;
  }
};

TEST_P(PiecesOfNetworks, GiveTheSameBitsAsCopies) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const char* passes : {"default", "none", "default,mixed-precision"}) {
      if (dtype != DType::f32 && std::string(passes) == "default,mixed-precision") continue;
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", passes " + passes);
      const auto model = load(dtype);
      ASSERT_OK(model);
      CompileOptions options;
      options.gradients_only = true;
      options.pipeline = *parse_pipeline(passes);
      const auto on = compile(*model, options);
      options.pieces = false;
      const auto off = compile(*model, options);
      ASSERT_OK(on);
      ASSERT_OK(off);
      ASSERT_OK(check_plan(on->train.graph, on->plan));
      EXPECT_LE(on->plan.arena_bytes, off->plan.arena_bytes);
      const auto a = run_step(on->train.graph, on->plan, 0xff),
                 b = run_step(off->train.graph, off->plan, 0x7f);
      ASSERT_OK(a);
      ASSERT_OK(b);
      EXPECT_EQ(first_difference(*a, *b), "");
    }
}

TEST_P(PiecesOfNetworks, GiveTheSameBitsForwardAndBackwardApart) {
  const auto model = load(DType::f32);
  ASSERT_OK(model);
  CompileOptions options;
  options.pipeline = *parse_pipeline("default");
  const auto on = compile_module(*model, options, {});
  options.pieces = false;
  const auto off = compile_module(*model, options, {});
  ASSERT_OK(on);
  ASSERT_OK(off);
  ASSERT_OK(check_plan(on->graph, on->plan));
  EXPECT_LE(on->plan.arena_bytes, off->plan.arena_bytes);
  const auto a = run_parts(on->graph, on->plan), b = run_parts(off->graph, off->plan);
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_EQ(first_difference(*a, *b), "");
}

INSTANTIATE_TEST_SUITE_P(All, PiecesOfNetworks, ::testing::ValuesIn(folders()), [](const auto& test) {
  std::string name = fs::path(test.param).filename().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// ---- random graphs ----------------------------------------------------------------------------------------

// Every row has 64 bytes, so that parts along the first axis begin where they may.
class PartsMaker {
 public:
  explicit PartsMaker(unsigned seed) : random_(seed) {}

  Graph make(bool updates) {
    Graph graph;
    GraphBuilder b(graph);
    for (const std::int64_t n : {1, 4, 6})
      pool_.push_back(b.input("in" + std::to_string(n), {DType::f32, {n, 16}}));
    weight_ = b.input("weight", {DType::f32, {16, 16}}, Role::state);
    pool_.push_back(weight_);
    const ValueId acc = b.input("acc", {DType::f32, {6, 16}}, Role::state);
    pool_.push_back(acc);
    for (int i = 0; i < 24; ++i) add_node(b);
    const ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper);
    const auto updated = [&](ValueId state, std::int64_t n) {
      const ValueId next = b.op("Accumulate", {state, of_rows(b, n), micro}, {{"count", std::int64_t{2}}});
      graph.updates.push_back({state, next});
      std::erase(pool_, state);  // what is made from the next contents cannot read those before
      if (state == weight_) weight_ = next;
      pool_.push_back(next);
    };
    if (updates) {
      updated(weight_, 16);
      updated(acc, 6);
    }
    for (int i = 0; i < 10; ++i) add_node(b);
    for (int i = 0; i < 3; ++i) graph.outputs.push_back(pool_[pool_.size() - 1 - below(8)]);
    return graph;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  ValueId pick() { return pool_[pool_.size() - 1 - std::min(below(pool_.size()), below(pool_.size()))]; }
  static std::int64_t rows(GraphBuilder& b, ValueId v) { return b.graph().type(v).shape[0]; }

  // Some value with so many rows.
  ValueId of_rows(GraphBuilder& b, std::int64_t n) {
    for (int i = 0; i < 20; ++i)
      if (const ValueId v = pick(); rows(b, v) == n) return v;
    ValueId v = pick();
    while (rows(b, v) < n) v = b.op("Concat", {v, b.op("Neg", {v})}, {{"axis", std::int64_t{0}}});
    return slice(b, v, 0, n);
  }
  static ValueId slice(GraphBuilder& b, ValueId v, std::int64_t begin, std::int64_t end) {
    return b.op("Slice", {v, b.i64s({begin}), b.i64s({end}), b.i64s({0})});
  }

  void add_node(GraphBuilder& b) {
    const ValueId v = pick();
    const std::int64_t n = rows(b, v);
    switch (below(16)) {
      case 0:
      case 1: {
        const auto begin = static_cast<std::int64_t>(below(static_cast<std::size_t>(n)));
        const auto count = static_cast<std::int64_t>(below(static_cast<std::size_t>(n - begin))) + 1;
        return pool_.push_back(slice(b, v, begin, begin + count));
      }
      case 2:
      case 3: {
        if (n < 2) return;
        const auto first = static_cast<std::int64_t>(below(static_cast<std::size_t>(n - 1))) + 1;
        for (const ValueId part : b.ops(op_by_name("Split"), {v, b.i64s({first, n - first})}, {}, 2))
          pool_.push_back(part);
        return;
      }
      case 4:
      case 5:
      case 6: {
        std::vector<ValueId> parts;
        for (std::size_t i = below(3) + 2; i > 0; --i)
          parts.push_back(below(3) == 0 ? pick() : b.op("Tanh", {pick()}));
        if (rows(b, parts[0]) + rows(b, parts[1]) > 40) return;
        return pool_.push_back(b.op("Concat", parts, {{"axis", std::int64_t{0}}}));
      }
      case 7: return pool_.push_back(b.op("MatMul", {v, weight_}));
      case 8: {
        if (b.graph().values[v].role == Role::state)
          return;  // views of them would have to be read before their update
        const ValueId flat = b.op("Reshape", {v, b.i64s({1, n * 16})});
        return pool_.push_back(
            b.op("Reshape", {below(2) == 0 ? flat : b.op("Sin", {flat}), b.i64s({-1, 16})}));
      }
      case 9: return pool_.push_back(b.op("Add", {v, of_rows(b, below(2) == 0 ? n : 1)}));
      case 11:
      case 12: return columns(b, v);
      case 13:
      case 14: return joined_columns(b, v);
      case 10: return pool_.push_back(b.op("Softmax", {v}, {{"axis", std::int64_t{-1}}}));
      default: return pool_.push_back(b.op(below(2) == 0 ? "Sin" : "Relu", {v}));
    }
  }

  std::vector<ValueId> split(GraphBuilder& b, ValueId v, std::int64_t axis) {
    const auto first = static_cast<std::int64_t>(below(15)) + 1;
    return b.ops(op_by_name("Split"), {v, b.i64s({first, 16 - first})}, {{"axis", axis}}, 2);
  }

  // Columns of v times rows of the weight, and what else reads rows or does not.
  void columns(GraphBuilder& b, ValueId v) {
    const std::vector<ValueId> parts = split(b, v, 1);
    const std::int64_t k = b.graph().type(parts[0]).shape[1];
    const ValueId turned = b.op("Transpose", {parts[0]}, {{"perm", std::vector<std::int64_t>{1, 0}}});
    pool_.push_back(b.op("FusedMatMul", {turned, slice(b, weight_, 0, k)},
                         {{"perm_a", std::vector<std::int64_t>{1, 0}}}));
    pool_.push_back(b.op("Concat", {b.op("Neg", {parts[1]}), parts[0]}, {{"axis", std::int64_t{1}}}));
    const ValueId wide = b.op("Reshape", {parts[1], b.i64s({1, rows(b, v), 16 - k})});
    const ValueId read = b.op(below(4) == 0 ? "Softmax" : "Sin", {wide});
    const ValueId flat = b.op("Reshape", {read, b.i64s({rows(b, v), 16 - k})});
    pool_.push_back(b.op("MatMul", {flat, slice(b, weight_, k, 16)}));
  }

  // v times columns of the weight, side by side.
  void joined_columns(GraphBuilder& b, ValueId v) {
    std::vector<ValueId> made;
    for (const ValueId part : split(b, weight_, 1))
      made.push_back(b.op("MatMul", {below(3) == 0 ? b.op("Cos", {v}) : v, part}));
    if (below(3) == 0)
      pool_.push_back(
          b.op("MatMul", {b.op("Tanh", {made[0]}), slice(b, weight_, 0, b.graph().type(made[0]).shape[1])}));
    pool_.push_back(b.op("Concat", made, {{"axis", std::int64_t{1}}}));
  }

  std::mt19937 random_;
  ValueId weight_ = kNone;
  std::vector<ValueId> pool_;
};

Result<NamedTensors> planned_and_run(const Graph& graph, const PlanOptions& options, std::uint8_t byte,
                                     int* taken = nullptr, int* in_rows = nullptr) {
  const Plan plan = TRY(make_plan(graph, options));
  TRY(check_plan(graph, plan));
  if (taken != nullptr)
    for (const PieceChoice& choice : plan.choices) *taken += choice.taken ? 1 : 0;
  if (in_rows != nullptr)
    for (const auto& [value, part] : plan.pieces) *in_rows += part.dense() ? 0 : 1;
  return options.forward_outputs ? run_parts(graph, plan) : run_step(graph, plan, byte);
}

TEST(PiecesOfRandomGraphs, GiveTheSameBitsAsCopies) {
  const char* wanted = getenv("GRADLOOM_TEST_GRAPHS");
  const unsigned graphs = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : 400;
  int taken = 0, in_rows = 0;
  for (unsigned seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = PartsMaker(seed).make(true), stateless = PartsMaker(seed).make(false);
    ASSERT_OK(verify(graph));
    const auto expected = planned_and_run(graph, plan_options("none", false, false), 0xff);
    ASSERT_OK(expected);
    for (const char* planner : {"none", "reuse", "best-fit"})
      for (const bool in_place : {true, false}) {
        const auto got = planned_and_run(graph, plan_options(planner, in_place, true), in_place ? 0xff : 0x7f,
                                         &taken, &in_rows);
        ASSERT_OK(got);
        ASSERT_EQ(first_difference(*got, *expected), "") << planner << "\n" << dump(graph);
      }
    PlanOptions parts = plan_options("best-fit", true, true);
    parts.forward_outputs = seed % 3;
    const auto in_parts = planned_and_run(stateless, parts, 0xff, &taken);
    ASSERT_OK(in_parts);
    parts.pieces = false;
    const auto copied = planned_and_run(stateless, parts, 0xff);
    ASSERT_OK(copied);
    ASSERT_EQ(first_difference(*in_parts, *copied), "") << dump(stateless);
  }
  EXPECT_GT(taken, static_cast<int>(graphs) * 7);
  EXPECT_GT(in_rows, static_cast<int>(graphs));
}

}  // namespace
}  // namespace gradloom
