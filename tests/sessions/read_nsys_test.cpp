// SQLite exports of Nsight Systems.
#include "sessions/read_nsys.h"

#include <sqlite3.h>

#include <algorithm>
#include <set>

#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

constexpr const char* kTables =
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, deviceId INTEGER, streamId "
    "INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, \"end\" INTEGER, globalTid INTEGER, correlationId INTEGER, "
    "nameId INTEGER);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER, \"end\" INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid "
    "INTEGER);";

class NsysTest : public SessionTest {
 protected:
  void execute(const std::string& sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "");
    sqlite3_close(db);
  }
  std::string path() const { return file("n.sqlite"); }
  // Process 5, thread 5: two steps with a range around one launch each, and a copy in the second.
  void write_two_steps() const {
    execute(kTables);
    execute(
        "INSERT INTO StringIds VALUES (1, 'gemm<float>'), (2, 'cudaLaunchKernel_v7000'), (3, 'blocks.0/attn'), (4, 'cudaMemcpyAsync')");
    execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU Zero')");
    const std::int64_t process = std::int64_t{5} << 24, thread = process + 5;
    for (int i = 0; i < 2; ++i) {
      const std::int64_t t = 1'000'000'000 + 1000 * i;
      const auto at = [&](std::int64_t ns) { return std::to_string(t + ns); };
      const std::string of_thread = std::to_string(thread), of_process = std::to_string(process);
      execute("INSERT INTO NVTX_EVENTS VALUES (" + at(0) + "," + at(900) + ",59,'step " + std::to_string(i) +
              "',NULL," + of_thread + "), (" + at(10) + "," + at(500) + ",59,NULL,3," + of_thread + "), (" +
              at(11) + ",NULL,34,'a mark',NULL," + of_thread + ")");
      execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" + at(20) + "," + at(30) + "," + of_thread +
              "," + std::to_string(100 + i) + ",2)");
      execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" + at(1200) + "," + at(1500) + ",0,7," +
              std::to_string(100 + i) + "," + of_process + ",1,1)");
    }
    execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1000001600,1000001650,0,7,300," +
            std::to_string(process) + ",4096,1)");
    execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0,50,0,7,100," +
            std::to_string(std::int64_t{6} << 24) + ",1,1)");
  }
};

TEST_F(NsysTest, KernelsStepsAndModules) {
  write_two_steps();
  EXPECT_TRUE(is_sqlite_file(path()));
  const auto trace = read_nsys_export(path());
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  EXPECT_EQ(trace->origin, "nsys");
  EXPECT_EQ(trace->device, "cuda:0");
  EXPECT_EQ(trace->environment.at("gpu.name"), "GPU Zero");
  ASSERT_EQ(trace->steps.size(), 2u);
  ASSERT_EQ(trace->kernels.size(), 1u) << "the other process has the smaller part";
  EXPECT_TRUE(std::any_of(trace->notes.begin(), trace->notes.end(), [](const std::string& note) {
    return note.find("2 processes") != std::string::npos;
  }));
  EXPECT_EQ(trace->kernels[0].info.kernel, "gemm<float>");
  EXPECT_EQ(trace->kernels[0].info.scope, "blocks.0/attn");
  for (const ImportedStep& step : trace->steps) {
    EXPECT_EQ(step.duration_ns, 900);
    ASSERT_EQ(step.samples.size(), 1u);
    EXPECT_EQ(step.samples[0].duration_ns, 300);
  }
  const auto& second = trace->steps[1].activities;
  EXPECT_TRUE(std::any_of(second.begin(), second.end(), [](const Activity& a) {
    return a.kind == Activity::Kind::copy && a.bytes == 4096 && a.name == "Memcpy HtoD";
  }));
}

TEST_F(NsysTest, CopiesBetweenDevicesSayIt) {
  write_two_steps();
  for (const int kind : {9, 10, 11, -1})
    execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1000000700,1000000710,0,7," +
            std::to_string(400 + kind) + "," + std::to_string(std::int64_t{5} << 24) + ",64," +
            std::to_string(kind) + ")");
  const auto trace = read_nsys_export(path());
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  std::multiset<std::string> names;
  for (const Activity& a : trace->steps[0].activities)
    if (a.kind == Activity::Kind::copy) names.insert(a.name);
  EXPECT_EQ(names, (std::multiset<std::string>{"Memcpy", "Memcpy", "Memcpy HtoH", "Memcpy PtoP"}));
}

// torch.autograd.profiler.emit_nvtx numbers its ranges: an operator is the same operator in each step.
TEST_F(NsysTest, OperatorsOfEmitNvtxAreOneRow) {
  write_two_steps();
  const std::string thread = std::to_string((std::int64_t{5} << 24) + 5);
  for (const int step : {0, 1}) {
    const std::int64_t at = 1'000'000'015 + 1000 * step;
    execute("INSERT INTO NVTX_EVENTS VALUES (" + std::to_string(at) + "," + std::to_string(at + 20) +
            ",59,'aten::add_, op_id = " + std::to_string(40 + step) + ", sizes = [[64], []]',NULL," + thread +
            ")");
  }
  const auto trace = read_nsys_export(path());
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  ASSERT_EQ(trace->kernels.size(), 1u);
  EXPECT_EQ(trace->kernels[0].info.op, "aten::add_");
}

// Traced as a whole, a graph's kernels are in no table.
TEST_F(NsysTest, CudaGraphsAreKernels) {
  execute(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId INTEGER, "
      "correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 400, 0, 7, 1, NULL, 12, 13), (500, 700, 0, 7, 2, NULL, 12, 13)");
  const auto alone = read_nsys_export(path());
  ASSERT_TRUE(alone.ok()) << error_of(alone);
  ASSERT_EQ(alone->kernels.size(), 1u);
  EXPECT_EQ(alone->kernels[0].info.kernel, "CUDA graph 12");
  ASSERT_EQ(alone->steps.size(), 1u);
  ASSERT_EQ(alone->steps[0].samples.size(), 2u);
  EXPECT_EQ(alone->steps[0].samples[0].duration_ns + alone->steps[0].samples[1].duration_ns, 500);
  write_two_steps();
  execute(
      "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1000000100, 1000000300, 0, 7, 3, NULL, 12, 13)");
  const auto both = read_nsys_export(path());
  ASSERT_TRUE(both.ok()) << error_of(both);
  EXPECT_EQ(both->kernels.size(), 2u);
}

TEST_F(NsysTest, ColumnsAndTablesMayBeMissing) {
  execute(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9), (9, 5), (NULL, 'x'), (-9223372036854775808, 9)");
  const auto trace = read_nsys_export(path());
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  ASSERT_EQ(trace->kernels.size(), 1u);
  EXPECT_EQ(trace->steps[0].samples[0].duration_ns, 4);
}

TEST_F(NsysTest, OtherDatabasesAreRefused) {
  execute("CREATE TABLE t (a)");
  EXPECT_EQ(read_nsys_export(path()).error().code, Errc::bad_input);
  execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS \"end\"");
  EXPECT_EQ(read_nsys_export(path()).error().code, Errc::bad_input) << "a view could cost anything";
  const std::string whole = read_all(path());
  write_all(file("cut"), whole.substr(0, 600));
  EXPECT_EQ(read_nsys_export(file("cut")).error().code, Errc::bad_input);
  write_all(file("no"), "hello");
  EXPECT_FALSE(is_sqlite_file(file("no")));
  EXPECT_FALSE(is_sqlite_file(file("absent")));
  EXPECT_EQ(read_nsys_export(file("absent")).error().code, Errc::io);
}

TEST_F(NsysTest, NothingIsWrittenBesideIt) {
  write_two_steps();
  const std::string before = read_all(path());
  ASSERT_TRUE(read_nsys_export(path()).ok());
  EXPECT_EQ(read_all(path()), before);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace gradloom::test
