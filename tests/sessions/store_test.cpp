#include "sessions/store.h"

#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/sessions/session_fixture.h"
#include "tests/sessions/views_10.h"

namespace gradloom::test {
namespace {

// Runs SQL with a plain connection, as a user with the sqlite3 shell would; rows as text joined by |.
std::string shell(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  std::string out;
  char* message = nullptr;
  sqlite3_exec(
      db, sql.c_str(),
      [](void* to, int n, char** values, char**) {
        auto& text = *static_cast<std::string*>(to);
        for (int i = 0; i < n; ++i) text += (i ? "|" : "") + std::string(values[i] ? values[i] : "NULL");
        text += "\n";
        return 0;
      },
      &out, &message);
  if (message != nullptr) out += std::string("error: ") + message;
  sqlite3_free(message);
  sqlite3_close(db);
  return out;
}

using StoreTest = SessionTest;

TEST_F(StoreTest, RoundTrip) {
  const std::string path = file("s.db");
  std::int64_t id = 0;
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    id = write_tiny_run(**store, "first", 10);
  }
  auto store = Store::open(path, StoreMode::read);
  ASSERT_TRUE(store.ok()) << error_of(store);
  auto record = (*store)->load_run(id);
  ASSERT_TRUE(record.ok()) << error_of(record);
  const RunSummary& s = record->summary;
  EXPECT_EQ(s.status, "done");
  EXPECT_EQ(s.name, "first");
  EXPECT_EQ(s.seed, 0xfedcba9876543210u);
  EXPECT_EQ(s.steps, 10);
  EXPECT_EQ(s.first_loss, 5.0);
  EXPECT_EQ(s.last_loss, 0.5);
  EXPECT_EQ(s.kernels_per_step, 5);
  EXPECT_EQ(s.plan_peak_bytes, 5 * 128);
  EXPECT_EQ(s.lower_bound_bytes, 256);
  EXPECT_EQ(s.measured_peak_bytes, 4096);
  EXPECT_EQ(s.overhead, 0.01);
  EXPECT_EQ(s.median_step_ns, 10'007) << "untimed steps after the third: 4 6 7 9 10";
  EXPECT_EQ(record->environment.at("cpu_model"), "test");
  EXPECT_EQ(record->environment.at("load_after"), "0.5");
  ASSERT_EQ(record->kernels.size(), 5u);
  EXPECT_EQ(record->kernels[0].info.onnx_nodes, std::vector<std::string>{"/fc/MatMul"});
  EXPECT_EQ(record->kernels[0].samples, 2) << "steps 5 and 8: step 2 is one of the first";
  EXPECT_EQ(record->kernels[1].median_ns, 1001);
  EXPECT_EQ(record->kernels[1].step_ns, 1001);
  EXPECT_EQ(record->kernels[3].info.phase, "backward");
  double share = 0;
  for (const KernelRow& kernel : record->kernels) share += kernel.share;
  EXPECT_NEAR(share, 1, 1e-12);
  ASSERT_EQ(record->passes.size(), 1u);
  EXPECT_EQ(record->passes[0].phase, "post_gradient");
  ASSERT_EQ(record->passes[0].log.size(), 3u);
  EXPECT_EQ(record->passes[0].log[0].why, "switched off");
  EXPECT_EQ(record->passes[0].log[0].removed, (std::vector<std::string>{"fc", "act"}));
  EXPECT_EQ(record->passes[0].log[0].sources, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(record->passes[0].log[0].fingerprint, "@0123456789ab");
  EXPECT_EQ(record->passes[0].log[1].fingerprint, "");
  EXPECT_EQ(record->passes[0].log[2].fingerprint, "@0123456789ab.2");
  ASSERT_EQ(record->buffers.size(), 5u);
  EXPECT_EQ(record->buffers[1].values, std::vector<std::string>{"act:0"});
  EXPECT_EQ(record->buffers[1].offset, 128);
  EXPECT_EQ(record->steps[4].timed, true);
  EXPECT_EQ(record->steps[4].grad_norm, 1.5);

  auto trace = (*store)->load_trace(id);
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  EXPECT_EQ(trace->rows.size(), 15u);
  EXPECT_EQ(trace->steps.size(), 3u);
  EXPECT_EQ(trace->rows[5].step, 5);
  EXPECT_EQ(trace->rows[5].bytes, 384);
  EXPECT_EQ(trace->live_bytes.size(), 5u);
}

TEST_F(StoreTest, TheShellSeesKernelsJoinedToNodes) {
  const std::string path = file("s.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "fused", 9, true);
  }
  EXPECT_EQ(
      shell(path,
            "SELECT kernel, onnx_nodes, phase, pass, samples, median_ns FROM v_kernels WHERE plan_step = 0"),
      "FusedMatMul|/fc/MatMul /act/Relu|forward|fuse-bias-activation|3|1000\n");
  EXPECT_EQ(shell(path, "SELECT round(sum(share), 9) FROM v_kernels"), "1.0\n");
  EXPECT_EQ(
      shell(path, "SELECT name, phase, median_ns FROM v_nodes ORDER BY source, phase"),
      "/fc/MatMul|backward|1002\n/fc/MatMul|forward|500\n/act/Relu|backward|1001\n/act/Relu|forward|500\n");
  EXPECT_EQ(shell(path, "SELECT phase, kernels FROM v_phases ORDER BY phase"),
            "backward|2\nforward|1\noptimizer|1\n");
  EXPECT_EQ(shell(path,
                  "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName WHERE "
                  "value = 'FusedMatMul'"),
            "3\n");
  EXPECT_EQ(shell(path, "PRAGMA journal_mode"), "wal\n");
}

TEST_F(StoreTest, StreamsOfAGpuStandBesideTheLaunches) {
  const std::string path = file("s.db");
  auto store = Store::open(path, StoreMode::write);
  ASSERT_TRUE(store.ok());
  const std::int64_t cpu = write_tiny_run(**store, "cpu", 9),
                     id = write_tiny_run(**store, "gpu", 9, false, {{"gpu.name", "H200"}});
  EXPECT_TRUE((*store)->check(id).ok());
  EXPECT_TRUE((*store)->load_trace(cpu)->activities.empty());
  EXPECT_TRUE((*store)->load_run(cpu)->streams.empty());

  const auto trace = (*store)->load_trace(id);
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  ASSERT_EQ(trace->activities.size(), 12u);
  const TinyStep t = tiny_step(false);
  const std::vector<Activity> written = tiny_activities(t, 5);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const TraceActivity expected = trace_activity(written[i], 5), &read = trace->activities[4 + i];
    EXPECT_EQ(read.kind, expected.kind);
    EXPECT_EQ(read.stream, expected.kind == Activity::Kind::api ? -1 : written[i].stream);
    EXPECT_EQ(read.plan_step, expected.plan_step);
    EXPECT_EQ(read.step, 5);
    EXPECT_EQ(read.start_ns, expected.start_ns);
    EXPECT_EQ(read.duration_ns, written[i].end_ns - written[i].start_ns);
    EXPECT_EQ(read.bytes, expected.bytes);
    EXPECT_EQ(read.name, expected.name);
  }
  EXPECT_EQ(trace->steps[1].start_ns, 5'000'000 - 5000) << "a step begins with its first copy";

  const auto record = (*store)->load_run(id);
  ASSERT_TRUE(record.ok()) << error_of(record);
  ASSERT_EQ(record->streams.size(), 4u);
  EXPECT_EQ(record->streams[0].kind, "launch");
  EXPECT_EQ(record->streams[0].stream, -1);
  EXPECT_EQ(record->streams[0].count, 6);
  EXPECT_EQ(record->streams[0].ns, std::vector<double>(3, 600.0));
  EXPECT_EQ(record->streams[1].kind, "copy");
  EXPECT_EQ(record->streams[1].bytes, 3 * 4096);
  EXPECT_EQ(record->streams[2].kind, "kernel");
  EXPECT_EQ(record->streams[2].count, 15);
  EXPECT_EQ(record->streams[3].stream, 1);
  store = Error{};

  EXPECT_EQ(shell(path,
                  "SELECT streamId, end - start, bytes, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY "
                  "start LIMIT 2"),
            "1|1500|4096|0\n0|400|4096|0\n");
  EXPECT_EQ(shell(path, "SELECT stream, kind, count, total_ns FROM v_streams WHERE run = 2 AND step = 5"),
            "NULL|launch|2|600\n0|copy|1|400\n0|kernel|5|5010\n1|copy|1|1500\n");
  EXPECT_EQ(shell(path, "SELECT kind, stream, plan_step FROM activity WHERE step = 2"),
            "launch|NULL|0\nlaunch|NULL|4\ncopy|1|NULL\ncopy|0|NULL\n");
}

// What versions 12 to 6 brought, undone.
const std::string kNoVersion9 =
    std::string(test::kViews10) +
    "DROP INDEX thread_sample_of_run; DROP TABLE thread_sample; DROP TABLE exchange_step; DROP TABLE rank_environment; "
    "DROP TABLE configuration; DROP TABLE annotation; DROP TABLE prediction; ";
const std::string kNoRanks =
    kNoVersion9 +
    "DROP INDEX implementation_of_run; DROP TABLE implementation; "
    "DROP VIEW v_ranks; DROP INDEX rank_of_run; DROP INDEX rank_sample_of_run; DROP INDEX exchange_of_run; "
    "DROP TABLE rank; DROP TABLE rank_sample; DROP TABLE exchange; ";
const std::string kNoLoops =
    kNoRanks + "DROP VIEW v_loop; DROP INDEX host_span_of_run; DROP TABLE host_span; ";
const std::string kNoInstances =
    kNoLoops + "DROP VIEW v_instances; DROP INDEX pass_instance_of_run; DROP TABLE pass_instance; ";

// A file as the first version of the program wrote it: without what came later, in schema and digests.
void make_version_1(const std::string& path) {
  EXPECT_EQ(
      shell(
          path,
          kNoInstances +
              "DROP VIEW CUPTI_ACTIVITY_KIND_MEMCPY; DROP VIEW v_streams; DROP INDEX activity_of_run; "
              "DROP TABLE activity; DROP INDEX loss_scale_of_run; DROP TABLE loss_scale; DROP TABLE trial; DROP INDEX evaluation_of_run; DROP TABLE evaluation;"
              "UPDATE run SET digest = substr(digest, 1, 12 * 17 - 1); PRAGMA user_version = 1;"),
      "");
}

TEST_F(StoreTest, FilesOfVersion2AreReadAndGoOn) {
  const std::string path = file("s.db");
  std::int64_t a = 0;
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    a = write_tiny_run(**store, "gpu", 9, false, {{"gpu.name", "H200"}});
  }
  EXPECT_EQ(
      shell(
          path,
          kNoInstances +
              "DROP TABLE trial; DROP INDEX evaluation_of_run; DROP TABLE evaluation; DROP INDEX loss_scale_of_run; DROP TABLE loss_scale;"
              "UPDATE run SET digest = substr(digest, 1, 13 * 17 - 1); PRAGMA user_version = 2;"),
      "");
  {
    auto old = Store::open(path, StoreMode::read);
    ASSERT_TRUE(old.ok()) << error_of(old);
    EXPECT_TRUE((*old)->check(a).ok()) << error_of((*old)->check(a));
    EXPECT_EQ((*old)->load_run(a)->steps.at(1).loss_scale, 0);
    EXPECT_EQ((*old)->load_trace(a)->activities.size(), 12u);
  }
  auto store = Store::open(path, StoreMode::write);
  ASSERT_TRUE(store.ok()) << error_of(store);
  EXPECT_TRUE((*store)->check(a).ok()) << error_of((*store)->check(a));
  store = Error{};
  EXPECT_EQ(shell(path, "PRAGMA user_version; SELECT count(*) FROM loss_scale"), "12\n0\n");
  shell(path, "INSERT INTO loss_scale VALUES (1, 2, 1024, 1)");
  auto reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(error_of((*reader)->check(a)), path + ": run 1 is damaged (table loss_scale)");
}

TEST_F(StoreTest, FilesOfVersion5AreReadAndGetFingerprints) {
  const std::string path = file("s.db");
  std::int64_t old = 0, fresh = 0;
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    old = write_tiny_run(**store, "old", 3);
  }
  EXPECT_EQ(shell(path, kNoInstances + "UPDATE run SET digest = substr(digest, 1, 15 * 17 - 1); "
                                       "PRAGMA user_version = 5;"),
            "");
  {
    auto reader = Store::open(path, StoreMode::read);
    ASSERT_TRUE(reader.ok()) << error_of(reader);
    const auto record = (*reader)->load_run(old);
    ASSERT_TRUE(record.ok()) << error_of(record);
    EXPECT_EQ(record->passes[0].log[0].fingerprint, "");
  }
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    fresh = write_tiny_run(**store, "fresh", 3);
    for (const std::int64_t run : {old, fresh})
      EXPECT_TRUE((*store)->check(run).ok()) << error_of((*store)->check(run));
    EXPECT_EQ((*store)->load_run(fresh)->passes[0].log[2].fingerprint, "@0123456789ab.2");
  }
  EXPECT_EQ(
      shell(path, "PRAGMA user_version; SELECT run, pass, rule, site, fingerprint, matched FROM v_instances"),
      "12\n2|fuse-bias-activation|matmul-relu|fc|@0123456789ab|0\n"
      "2|fuse-bias-activation|matmul-relu|out|@0123456789ab.2|0\n");
  shell(path, "INSERT INTO pass_instance VALUES (1, 0, 0, '@0123456789ab')");
  auto reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(error_of((*reader)->check(old)), path + ": run 1 is damaged (table pass_instance)");
}

// Views that are written otherwise now show the same.
TEST_F(StoreTest, FilesOfVersion10GetFasterViews) {
  const std::string path = file("s.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "a", 9);
    write_tiny_run(**store, "b", 3);
  }
  const auto shown = [&] {
    return shell(
        path,
        "SELECT * FROM v_kernels ORDER BY run, plan_step; SELECT * FROM v_nodes; SELECT * FROM v_phases");
  };
  const std::string now = shown();
  EXPECT_EQ(shell(path, test::as_version_10()), "");
  EXPECT_EQ(shown(), now);
  EXPECT_GT(std::count(now.begin(), now.end(), '\n'), 15);
  {
    auto reader = Store::open(path, StoreMode::read);
    ASSERT_TRUE(reader.ok()) << error_of(reader);
    EXPECT_TRUE((*reader)->check(1).ok()) << error_of((*reader)->check(1));
  }
  {
    auto writer = Store::open(path, StoreMode::write);
    ASSERT_TRUE(writer.ok()) << error_of(writer);
    EXPECT_TRUE((*writer)->check(1).ok()) << error_of((*writer)->check(1));
  }
  EXPECT_EQ(shown(), now);
  EXPECT_EQ(
      shell(
          path,
          "PRAGMA user_version; SELECT count(*) FROM sqlite_schema WHERE name = 'v_nodes' AND sql LIKE '%MATERIALIZED%'"),
      "12\n1\n");
  shell(path, "PRAGMA user_version = 10");  // the new text is not that of version 10
  const auto forged = Store::open(path, StoreMode::read);
  ASSERT_FALSE(forged.ok());
  EXPECT_NE(error_of(forged).find("view v_kernels is not as expected"), std::string::npos)
      << error_of(forged);
}

// What the run of a GPU says of its kernels is read back into them; a file of version 7 has nothing of it.
TEST_F(StoreTest, ImplementationsAreKept) {
  const std::string path = file("s.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "old", 3);
  }
  EXPECT_EQ(shell(path, kNoRanks + "UPDATE run SET digest = substr(digest, 1, 17 * 17 - 1); "
                                   "PRAGMA user_version = 7;"),
            "");
  {
    auto reader = Store::open(path, StoreMode::read);
    ASSERT_TRUE(reader.ok()) << error_of(reader);
    EXPECT_TRUE((*reader)->check(1).ok()) << error_of((*reader)->check(1));
    EXPECT_EQ((*reader)->load_run(1)->kernels[0].info.implementation, "");
  }
  auto store = Store::open(path, StoreMode::write);
  ASSERT_TRUE(store.ok()) << error_of(store);
  const TinyStep t = tiny_step(false);
  auto run = (*store)->begin_run(tiny_start());
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
  RunFinish end;
  end.implementations = {{},
                         {{"attention", "", "cudnn 9.19.0: no engine is suggested", false},
                          {"gemm", "cublasLt 13.1.0", "algorithm 66", false}},
                         {{"gemm", "", "cublasLt 13.1.0: cublasLtMatmul: status 14", true}}};
  ASSERT_TRUE((*run)->finish(end).ok());
  EXPECT_TRUE((*store)->check(2).ok()) << error_of((*store)->check(2));
  const auto record = (*store)->load_run(2);
  ASSERT_TRUE(record.ok()) << error_of(record);
  const auto info = [&](std::size_t i) { return record->kernels[i].info; };
  EXPECT_EQ(info(0).implementation, "");
  EXPECT_EQ(
      info(1).implementation,
      "attention: our own (cudnn 9.19.0: no engine is suggested); gemm: cublasLt 13.1.0 (algorithm 66)");
  EXPECT_FALSE(info(1).library_failed);
  EXPECT_EQ(info(2).implementation, "gemm: our own (cublasLt 13.1.0: cublasLtMatmul: status 14)");
  EXPECT_TRUE(info(2).library_failed);
  store = Error{};
  shell(path, "UPDATE implementation SET failed = 0");
  auto reader = Store::open(path, StoreMode::read);
  EXPECT_EQ(error_of((*reader)->check(2)), path + ": run 2 is damaged (table implementation)");
}

TEST_F(StoreTest, LossScalesAreKept) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  auto run = (*store)->begin_run(tiny_start());
  ASSERT_TRUE(run.ok());
  for (std::int64_t i = 1; i <= 4; ++i)
    ASSERT_TRUE((*run)->add_step({i, 1.0, 5, 0.0, -1, false, i < 3 ? 512.0 : 1024.0, i == 2 ? 1 : 0}).ok());
  ASSERT_TRUE((*run)->finish({"done", "", 0, -1, 0, 0, {}}).ok());
  EXPECT_TRUE((*store)->check((*run)->id()).ok());
  const auto record = (*store)->load_run((*run)->id());
  ASSERT_TRUE(record.ok()) << error_of(record);
  ASSERT_EQ(record->steps.size(), 4u);
  for (const StepRow& step : record->steps) {
    EXPECT_EQ(step.loss_scale, step.step < 3 ? 512 : 1024) << step.step;
    EXPECT_EQ(step.skipped, step.step == 2 ? 1 : 0) << step.step;
  }
}

TEST_F(StoreTest, FilesOfVersion1AreReadAndGoOn) {
  const std::string path = file("s.db");
  std::int64_t a = 0, b = 0;
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    a = write_tiny_run(**store, "a", 9);
    b = write_tiny_run(**store, "b", 9);
  }
  make_version_1(path);
  {
    auto old = Store::open(path, StoreMode::read);
    ASSERT_TRUE(old.ok()) << error_of(old);
    EXPECT_TRUE((*old)->check(a).ok()) << error_of((*old)->check(a));
    EXPECT_EQ((*old)->list_runs()->at(1).status, "done");
    EXPECT_TRUE((*old)->load_run(a).ok());
    const auto trace = (*old)->load_trace(b);
    ASSERT_TRUE(trace.ok()) << error_of(trace);
    EXPECT_EQ(trace->rows.size(), 15u);
    EXPECT_TRUE(trace->activities.empty());
  }
  EXPECT_EQ(shell(path, "PRAGMA user_version"), "1\n") << "reading changes nothing";
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    const std::int64_t gpu = write_tiny_run(**store, "gpu", 9, false, {{"gpu.name", "H200"}});
    for (const std::int64_t id : {a, b, gpu})
      EXPECT_TRUE((*store)->check(id).ok()) << error_of((*store)->check(id));
  }
  EXPECT_EQ(shell(path, "PRAGMA user_version; SELECT count(*) FROM activity"), "12\n12\n");
  auto reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok()) << error_of(reader);
  EXPECT_EQ((*reader)->load_trace(3)->activities.size(), 12u);
  reader = Error{};
  shell(path, "INSERT INTO activity VALUES (1, 2, 0, 'copy', 1, NULL, 5, 5, 5, 'forged')");
  reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(error_of((*reader)->check(a)), path + ": run 1 is damaged (table activity)")
      << "runs of version 1 have no such rows";
  EXPECT_TRUE((*reader)->check(b).ok());
}

TEST_F(StoreTest, ADamagedFileOfVersion1IsNotTouched) {
  const std::string path = file("s.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "a", 3);
  }
  make_version_1(path);
  shell(path, "CREATE TABLE activity (mine TEXT)");
  const auto store = Store::open(path, StoreMode::write);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(
      shell(path, "PRAGMA user_version; SELECT count(*) FROM sqlite_schema WHERE name LIKE 'activity%'"),
      "1\n1\n");
}

TEST_F(StoreTest, NonFiniteLossesAreKept) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  auto run = (*store)->begin_run(tiny_start());
  ASSERT_TRUE(run.ok());
  const double infinity = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  const double losses[] = {infinity, -infinity, nan, -0.0};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE((*run)->add_step({i + 1, losses[i], 5, 0.0, -1, false}).ok());
  ASSERT_TRUE((*run)->finish({"failed", "loss is NaN at step 3", 0, -1, 0, 0, {}}).ok());
  auto record = (*store)->load_run((*run)->id());
  ASSERT_TRUE(record.ok()) << error_of(record);
  EXPECT_EQ(record->steps[0].loss, infinity);
  EXPECT_EQ(record->steps[1].loss, -infinity);
  EXPECT_TRUE(std::isnan(record->steps[2].loss));
  EXPECT_EQ(record->steps[0].grad_norm, -1);
  EXPECT_EQ(record->summary.status, "failed");
  EXPECT_EQ(record->summary.message, "loss is NaN at step 3");
  EXPECT_EQ(record->summary.overhead, -1);
}

TEST_F(StoreTest, FindsRuns) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->find_run("last").error().code, Errc::bad_input);
  const std::int64_t a = write_tiny_run(**store, "a", 3), b = write_tiny_run(**store, "b", 3);
  EXPECT_EQ(*(*store)->find_run("a"), a);
  EXPECT_EQ(*(*store)->find_run("last"), b);
  EXPECT_EQ(*(*store)->find_run(std::to_string(a)), a);
  EXPECT_EQ((*store)->find_run("nothing").error().code, Errc::bad_input);
  EXPECT_EQ((*store)->find_run("99999999999999999999").error().code, Errc::bad_input);
  EXPECT_EQ((*store)->load_run(77).error().code, Errc::bad_input);
  auto runs = (*store)->list_runs();
  ASSERT_TRUE(runs.ok());
  EXPECT_EQ(runs->size(), 2u);
}

TEST_F(StoreTest, TuningIsKeptByHardwareAndRenewed) {
  const std::map<std::string, TuningChoice> first{{"lib; H200; 1 2", {"0a", 500}},
                                                  {"lib; H200; 3 4", {"0b", 0}}},
      second{{"lib; H200; 3 4", {"0c", 70}}, {"lib; H200; 5 6", {"0d", 9}}},
      other{{"lib; A100; 1 2", {"0e", 1}}};
  {
    auto store = Store::open(file("s.db"), StoreMode::write);
    ASSERT_TRUE(store.ok());
    const std::int64_t run = write_tiny_run(**store, "a", 3);
    ASSERT_TRUE((*store)->add_tuning("NVIDIA H200", first).ok());
    ASSERT_TRUE((*store)->add_tuning("NVIDIA H200", second).ok());
    ASSERT_TRUE((*store)->add_tuning("NVIDIA A100", other).ok());
    ASSERT_TRUE((*store)->add_tuning("NVIDIA A100", {}).ok());
    EXPECT_TRUE((*store)->check(run).ok()) << "it belongs to no run";
  }
  auto reader = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(reader.ok());
  const auto known = (*reader)->tuning("NVIDIA H200");
  ASSERT_TRUE(known.ok()) << error_of(known);
  EXPECT_EQ(*known, (std::map<std::string, TuningChoice>{{"lib; H200; 1 2", {"0a", 500}},
                                                         {"lib; H200; 3 4", {"0c", 70}},
                                                         {"lib; H200; 5 6", {"0d", 9}}}));
  EXPECT_EQ(*(*reader)->tuning("NVIDIA A100"), other);
  EXPECT_TRUE((*reader)->tuning("AMD MI300")->empty());
  EXPECT_FALSE((*reader)->add_tuning("NVIDIA A100", other).ok()) << "opened for reading";
}

TEST_F(StoreTest, EvaluationsAreKeptWithTheirRun) {
  const std::string path = file("s.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    auto run = (*store)->begin_run(tiny_start());
    ASSERT_TRUE(run.ok()) << error_of(run);
    const TinyStep t = tiny_step(false);
    ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
    for (std::int64_t step = 1; step <= 4; ++step) {
      ASSERT_TRUE((*run)->add_step({step, 2.0, 1000, 0.1}).ok());
      if (step % 2 == 0) (*run)->add_evaluation({step, step == 2 ? 1.5 : std::nan(""), 7, 2000});
    }
    ASSERT_TRUE((*run)->finish({}).ok());
  }
  auto reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok());
  const auto run = (*reader)->load_run(1);
  ASSERT_TRUE(run.ok()) << error_of(run);
  ASSERT_EQ(run->evaluations.size(), 2u);
  EXPECT_EQ(run->evaluations[0].loss, 1.5);
  EXPECT_EQ(run->evaluations[0].batches, 7);
  EXPECT_EQ(run->evaluations[1].step, 4);
  EXPECT_TRUE(std::isnan(run->evaluations[1].loss));
  reader = Error{};
  shell(path, "UPDATE evaluation SET loss = 0.5 WHERE step = 2");
  reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_NE(error_of((*reader)->check(1)).find("table evaluation"), std::string::npos);
}

TEST_F(StoreTest, LiveReadingAndTwoWriters) {
  const std::string path = file("s.db");
  auto writer = Store::open(path, StoreMode::write);
  ASSERT_TRUE(writer.ok());
  auto run = (*writer)->begin_run(tiny_start("live"));
  ASSERT_TRUE(run.ok());
  auto reader = Store::open(path, StoreMode::read);
  ASSERT_TRUE(reader.ok()) << error_of(reader);
  auto other = Store::open(path, StoreMode::write);
  ASSERT_TRUE(other.ok());
  auto second = (*other)->begin_run(tiny_start("other"));
  ASSERT_TRUE(second.ok()) << error_of(second);
  const TinyStep t = tiny_step(false);
  for (int i = 1; i <= 20; ++i) {
    ASSERT_TRUE((*run)->add_step({i, 1.0, 5, 0.1, -1, true}, tiny_samples(t, i)).ok());
    ASSERT_TRUE((*second)->add_step({i, 2.0, 5, 0.1, -1, true}, tiny_samples(t, i)).ok());
    if (i % 5 == 0) {
      ASSERT_TRUE((*run)->flush().ok());
      ASSERT_TRUE((*second)->flush().ok());
    }
  }
  auto steps = (*reader)->steps_after((*run)->id(), 12);
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->size(), 8u);
  auto summary = (*reader)->summary((*run)->id());
  ASSERT_TRUE(summary.ok()) << error_of(summary);
  EXPECT_EQ(summary->status, "running");
  EXPECT_TRUE((*reader)->check((*run)->id()).ok()) << "a running run has a digest too";
  ASSERT_TRUE((*run)->finish({}).ok());
  ASSERT_TRUE((*second)->finish({}).ok());
  EXPECT_TRUE((*reader)->check((*run)->id()).ok());
  EXPECT_TRUE((*reader)->check((*second)->id()).ok()) << "interleaved rows of two runs";
}

TEST_F(StoreTest, EditedRowsAreNamed) {
  const std::string path = file("s.db");
  std::int64_t a = 0, b = 0;
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    a = write_tiny_run(**store, "a", 6);
    b = write_tiny_run(**store, "b", 6);
  }
  for (const std::string& edit :
       {std::string("UPDATE loss SET loss = loss + 1e-12 WHERE run = 1 AND step = 3"),
        std::string("DELETE FROM kernel_sample WHERE run = 1 AND plan_step = 2"),
        std::string("UPDATE run SET optimizer = 'adam' WHERE id = 1"),
        std::string("UPDATE pass_match SET why = '' WHERE run = 1"),
        std::string("UPDATE pass_instance SET fingerprint = '@ba9876543210' WHERE run = 1"),
        std::string("INSERT INTO activity VALUES (1, 2, 0, 'copy', 1, NULL, 5, 5, 5, 'x')"),
        std::string("INSERT INTO environment VALUES (1, 'x', 'y')")}) {
    const std::string before = read_all(path);
    shell(path, edit);
    auto store = Store::open(path, StoreMode::read);
    ASSERT_TRUE(store.ok()) << error_of(store);
    const Status damaged = (*store)->check(a);
    EXPECT_FALSE(damaged.ok()) << edit;
    EXPECT_NE(error_of(damaged).find("run 1 is damaged"), std::string::npos) << error_of(damaged);
    EXPECT_FALSE((*store)->load_run(a).ok());
    EXPECT_TRUE((*store)->load_run(b).ok()) << "other runs stay readable";
    auto runs = (*store)->list_runs();
    ASSERT_TRUE(runs.ok());
    EXPECT_EQ(runs->size(), 2u);
    store = Error{};
    write_all(path, before);
  }
}

TEST_F(StoreTest, Comparisons) {
  const std::string path = file("s.db");
  auto store = Store::open(path, StoreMode::write);
  ASSERT_TRUE(store.ok());
  Comparison c;
  c.a = "none";
  c.b = "default";
  c.ratio = {1.5, 1.4, 1.6};
  c.verdict = Verdict::faster;
  c.kernels.push_back({"x", "forward", 2, 1, 10, 5, 0.01});
  auto id = (*store)->add_comparison(c);
  ASSERT_TRUE(id.ok()) << error_of(id);
  auto all = (*store)->list_comparisons();
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ((*all)[0].comparison.verdict, Verdict::faster);
  EXPECT_EQ((*all)[0].comparison.ratio.low, 1.4);
  EXPECT_EQ((*all)[0].comparison.kernels[0].b_ns, 5);
  shell(path, "UPDATE comparison SET body = replace(body, 'FASTER', 'SLOWER')");
  EXPECT_TRUE((*store)->list_comparisons()->empty());
}

}  // namespace
}  // namespace gradloom::test
