// What reading a run costs, counted in steps of SQLite's machine, what becomes of rows
// that do not fit together, and which time of a step a kernel has.
#include <sqlite3.h>

#include <functional>

#include "sessions/sqlite.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

// Steps of SQLite's machine that the statements of all databases opened meanwhile take.
class StepCount {
 public:
  StepCount() {
    steps_ = 0;
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(watch));
  }
  StepCount(const StepCount&) = delete;
  StepCount& operator=(const StepCount&) = delete;
  ~StepCount() { sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(watch)); }
  static std::int64_t steps() { return steps_; }

 private:
  static int watch(sqlite3* db, char**, const void*) {
    return sqlite3_trace_v2(
        db, SQLITE_TRACE_PROFILE,
        [](unsigned, void*, void* statement, void*) {
          steps_ += sqlite3_stmt_status(static_cast<sqlite3_stmt*>(statement), SQLITE_STMTSTATUS_VM_STEP, 1);
          return 0;
        },
        nullptr);
  }
  static inline std::int64_t steps_ = 0;
};

// A run of `count` kernels, each of a node of its own with an ONNX node of its own,
// and so many passes' matches.
void write_wide_run(Store& store, int count, std::int64_t timed_steps) {
  static const OpDef relu{.name = "Relu"};
  TinyStep t;
  PassReport report;
  report.name = "fuse";
  for (int i = 0; i < count; ++i) {
    const std::string name = "n" + std::to_string(i);
    t.graph.sources.push_back({"/" + name, "Relu", "", "s"});
    Value value;
    value.name = name + ":0";
    value.type = {DType::f32, {4}};
    value.has_type = true;
    value.producer = static_cast<NodeId>(i);
    t.graph.values.push_back(value);
    Node node;
    node.op = &relu;
    node.name = name;
    node.outputs = {static_cast<ValueId>(i)};
    node.origin = {{static_cast<std::uint32_t>(i)}, Phase::forward};
    t.graph.nodes.push_back(node);
    PlanStep step;
    step.node = static_cast<NodeId>(i);
    step.kernel = "relu";
    t.plan.steps.push_back(step);
    t.plan.buffers.push_back({Place::arena, 0, 128, i, i});
    t.plan.buffer_of.push_back(i);
    report.log.push_back({"rule", name, true, "", {}, {}, {}, {}});
  }
  t.reports = {report};
  auto run = store.begin_run(tiny_start("wide"));
  ASSERT_TRUE(run.ok()) << error_of(run);
  ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
  for (std::int64_t step = 1; step <= timed_steps; ++step)
    ASSERT_TRUE((*run)->add_step({step, 1, 1000, 0.1, -1, true}, tiny_samples(t, step)).ok());
  ASSERT_TRUE((*run)->finish({}).ok());
}

// As anybody's SQLite reads a view.
std::int64_t rows_of(const std::string& path, const std::string& view) {
  auto database = Database::open(path, SQLITE_OPEN_READONLY);
  EXPECT_TRUE(database.ok()) << error_of(database);
  auto row = database->prepare("SELECT * FROM " + view);
  EXPECT_TRUE(row.ok()) << error_of(row);
  std::int64_t rows = 0;
  while (*row->row()) ++rows;
  return rows;
}

using ReadKernels = SessionTest;

TEST_F(ReadKernels, WorkIsProportionalToTheRows) {
  using Path = const std::string&;
  const std::pair<const char*, std::function<bool(Store&, Path)>> readings[] = {
      {"list_runs", [](Store& store, Path) { return store.list_runs().ok(); }},
      {"load_run", [](Store& store, Path) { return store.load_run(1).ok(); }},
      {"load_trace", [](Store& store, Path) { return store.load_trace(1).ok(); }},
      {"v_kernels", [](Store&, Path path) { return rows_of(path, "v_kernels") > 0; }},
      {"v_nodes", [](Store&, Path path) { return rows_of(path, "v_nodes") > 0; }}};
  for (const auto& [what, reading] : readings) {
    std::int64_t steps[2] = {};
    for (const int twice : {0, 1}) {
      const std::string path = file(std::string(what) + std::to_string(twice));
      const int kernels = 3000 << twice;
      {
        auto store = Store::open(path, StoreMode::write);
        ASSERT_TRUE(store.ok()) << error_of(store);
        write_wide_run(**store, kernels, 4);
      }
      const StepCount count;
      auto store = Store::open(path, StoreMode::read);
      ASSERT_TRUE(store.ok()) << error_of(store);
      ASSERT_TRUE(reading(**store, path)) << what;
      steps[twice] = count.steps();
      EXPECT_GT(steps[twice], kernels) << "the count counts";
    }
    std::printf("%s: %.0f steps per kernel\n", what, static_cast<double>(steps[1]) / 6000);
    EXPECT_LT(static_cast<double>(steps[1]), 2.2 * static_cast<double>(steps[0])) << what;
    EXPECT_LT(steps[1] / 6000, 1000) << what;
  }
}

TEST_F(ReadKernels, ALongTraceEndsWhereItIsFull) {
  const std::string path = file("s.db");
  auto store = Store::open(path, StoreMode::write);
  ASSERT_TRUE(store.ok()) << error_of(store);
  write_tiny_run(**store, "gpu", 20, false, {{"gpu.name", "test"}});  // timed: 2 5 8 11 14 17 20
  const auto whole = (*store)->load_trace(1);
  ASSERT_TRUE(whole.ok()) << error_of(whole);
  EXPECT_EQ(whole->steps.size(), 7u);
  EXPECT_EQ(whole->steps_left_out, 0);
  const auto part = (*store)->load_trace(1, 12);  // 5 kernels a step
  ASSERT_TRUE(part.ok()) << error_of(part);
  EXPECT_EQ(part->steps.size(), 2u);
  EXPECT_EQ(part->rows.size(), 10u);
  EXPECT_EQ(part->steps_left_out, 5);
  EXPECT_EQ(part->activities.size(), 8u);
  const auto none = (*store)->load_trace(1, 3);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::limit) << none.error().message;
}

// A buffer has the name of its whole, whatever part of it was made first.
TEST_F(ReadKernels, PartsFollowTheWholeOfTheirBuffer) {
  TinyStep t = tiny_step(false);
  t.plan.buffer_of[0] = t.plan.buffer_of[1];
  t.plan.pieces[0] = {64, 1, 64, 0};
  const std::string path = file("parts");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    auto run = (*store)->begin_run(tiny_start("parts"));
    ASSERT_TRUE(run.ok()) << error_of(run);
    ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
    ASSERT_TRUE((*run)->finish({}).ok());
  }
  auto store = Store::open(path, StoreMode::read);
  ASSERT_TRUE(store.ok()) << error_of(store);
  const auto record = (*store)->load_run(1);
  ASSERT_TRUE(record.ok()) << error_of(record);
  const std::vector<std::string> both = {t.graph.values[1].name, t.graph.values[0].name};
  EXPECT_EQ(record->buffers.front().values, both);
}

// What another process did in one of five steps is no kernel's time; a kernel of two micro-batches takes both, and one that ran
// in two steps of five takes its part.
TEST_F(ReadKernels, AKernelsTimeOfAStepIsAMedian) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok()) << error_of(store);
  const TinyStep t = tiny_step(false);
  auto run = (*store)->begin_run(tiny_start());
  ASSERT_TRUE(run.ok()) << error_of(run);
  ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
  for (std::int64_t step = 1; step <= 3; ++step)
    ASSERT_TRUE((*run)->add_step({step, 1.0, 60'000'000, 0.1}).ok());
  for (std::int64_t step = 4; step <= 8; ++step) {
    const std::int64_t at = step * 100'000'000, odd = step % 2;
    std::vector<KernelSample> samples{
        {0, 0, at, step == 6 ? 50'000'000 : 1000 + step}, {1, 0, at, 300}, {1, 1, at, 500 + step}};
    if (odd == 1) samples.push_back({2, 0, at, 2000});
    ASSERT_TRUE((*run)->add_step({step, 1.0, 60'000'000, 0.1, -1, true}, samples).ok());
  }
  ASSERT_TRUE((*run)->finish({}).ok());
  const auto record = (*store)->load_run((*run)->id());
  ASSERT_TRUE(record.ok()) << error_of(record);
  const std::vector<KernelRow>& kernels = record->kernels;
  EXPECT_EQ(kernels[0].step_ns, 1007) << "of 1004, 1005, 50000000, 1007, 1008";
  EXPECT_EQ(kernels[0].total_ns, 50'004'024);
  EXPECT_EQ(kernels[1].step_ns, 806);
  EXPECT_EQ(kernels[1].launches(), 2);
  EXPECT_EQ(kernels[1].step_flops(), 2 * kernels[1].info.flops);
  EXPECT_DOUBLE_EQ(kernels[2].step_bytes(), 0.4 * 384) << "256 read and 128 written in two of five";
  EXPECT_EQ(kernels[2].step_ns, 800) << "2000 in two of five";
  EXPECT_EQ(kernels[2].launches(), 1);
  EXPECT_EQ(kernels[3].step_ns, 0);
  EXPECT_DOUBLE_EQ(kernels[0].share, 1007. / (1007 + 806 + 800));
}

// Two threads: kernel 0 is computed by both in one of two executions, kernel 1 by one alone; a run that tells nothing has none.
TEST_F(ReadKernels, ThreadsOfAKernelAreRead) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok()) << error_of(store);
  const TinyStep t = tiny_step(false);
  auto run = (*store)->begin_run(tiny_start());
  ASSERT_TRUE(run.ok()) << error_of(run);
  ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
  const std::vector<kernels::ThreadTime> both{{0, 4000, 5000, 900}, {1, 4100, 4700, 500}},
      one{{0, 6000, 7000, 1000}};
  ASSERT_TRUE(
      (*run)
          ->add_step({4, 1.0, 60'000, 0.1, -1, true}, {{0, 0, 4000, 1000, both}, {1, 0, 6000, 1000, one}})
          .ok());
  ASSERT_TRUE(
      (*run)->add_step({5, 1.0, 60'000, 0.1, -1, true}, {{0, 0, 9000, 3000, {{0, 9000, 12000, 3000}}}}).ok());
  ASSERT_TRUE((*run)->finish({}).ok());
  const auto record = (*store)->load_run((*run)->id());
  ASSERT_TRUE(record.ok()) << error_of(record);
  EXPECT_DOUBLE_EQ(record->kernels[0].threads_busy, (900 + 500 + 3000) / (2 * 4000.0));
  EXPECT_DOUBLE_EQ(record->kernels[1].threads_busy, 0.5);
  EXPECT_EQ(record->kernels[2].threads_busy, -1) << "not timed";
  const auto trace = (*store)->load_trace((*run)->id());
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  ASSERT_EQ(trace->threads.size(), 2u);
  EXPECT_EQ(trace->threads[1].thread, 1);
  EXPECT_EQ(trace->threads[1].step, 4);
  EXPECT_EQ(trace->threads[1].start_ns, 4100);
  EXPECT_EQ(trace->threads[1].duration_ns, 600);
  EXPECT_EQ(trace->threads[1].busy_ns, 500);
  const auto first_rows = (*store)->load_trace((*run)->id(), 1);
  EXPECT_FALSE(first_rows.ok()) << "a step alone is more";

  const std::int64_t silent = write_tiny_run(**store, "silent", 6);
  const auto other = (*store)->load_run(silent);
  ASSERT_TRUE(other.ok()) << error_of(other);
  EXPECT_EQ(other->kernels[0].threads_busy, -1);
}

}  // namespace
}  // namespace gradloom::test
