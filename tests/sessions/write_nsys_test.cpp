#include "sessions/write_nsys.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "sessions/read_nsys.h"
#include "tests/profiler/trace_documents.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

// Kernel, phase, module, start since the first event, duration.
using Executed = std::tuple<std::string, std::string, std::string, std::int64_t, std::int64_t>;

class WriteNsys : public SessionTest {
 protected:
  ImportedTrace written(const TraceDocument& d) const {
    const Status status = write_nsys_export(d, file("n.sqlite"));
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    auto read = read_nsys_export(file("n.sqlite"));
    EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message);
    return read.ok() ? std::move(read).value() : ImportedTrace();
  }
  // What the document has, of rank 0; of all that started in a step.
  static std::vector<Executed> executed(const TraceDocument& d, bool places) {
    std::vector<Executed> list;
    for (const TraceRow& row : d.rows) {
      const KernelInfo& k = d.kernels[static_cast<std::size_t>(row.plan_step)];
      list.emplace_back(k.kernel, places ? k.phase : "", places ? k.scope : "", row.start_ns,
                        row.duration_ns);
    }
    return sorted(std::move(list));
  }
  static std::vector<Executed> executed(const ImportedTrace& trace, bool places) {
    std::vector<Executed> list;
    for (const ImportedStep& step : trace.steps)
      for (const KernelSample& s : step.samples) {
        const KernelInfo& k = trace.kernels[static_cast<std::size_t>(s.plan_step)].info;
        list.emplace_back(k.kernel, places ? k.phase : "", places ? k.scope : "", s.start_ns, s.duration_ns);
      }
    return sorted(std::move(list));
  }
  static std::vector<Executed> sorted(std::vector<Executed> list) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const Executed& e : list) first = std::min(first, std::get<3>(e));
    for (Executed& e : list) std::get<3>(e) -= first;
    std::sort(list.begin(), list.end());
    return list;
  }
  std::int64_t count(const std::string& sql) const {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open_v2(file("n.sqlite").c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    const std::int64_t value =
        sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : -1;
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
  }
};

// Where reports of Nsight Systems look names up: each number has its row, by its published schema.
TEST_F(WriteNsys, WhatReportsLookUpIsThere) {
  TraceDocument d = gpu_document();
  d.environment["cpu_model"] = "a processor";
  written(d);
  for (const char* table : {"KERNEL", "MEMCPY", "MEMSET", "RUNTIME"})
    EXPECT_GT(count(std::string("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_") + table), 0) << table;
  for (const auto& [table, column, other, key] :
       {std::tuple("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId", "TARGET_INFO_GPU", "id"),
        std::tuple("CUPTI_ACTIVITY_KIND_KERNEL", "contextId", "TARGET_INFO_CUDA_CONTEXT_INFO", "contextId"),
        std::tuple("CUPTI_ACTIVITY_KIND_KERNEL", "streamId", "TARGET_INFO_CUDA_STREAM", "streamId"),
        std::tuple("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", "PROCESSES", "globalPid"),
        std::tuple("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", "StringIds", "id"),
        std::tuple("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid", "ThreadNames", "globalTid"),
        std::tuple("CUPTI_ACTIVITY_KIND_RUNTIME", "eventClass", "ENUM_NSYS_EVENT_CLASS", "id"),
        std::tuple("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", "ENUM_CUDA_MEMCPY_OPER", "id"),
        std::tuple("CUPTI_ACTIVITY_KIND_MEMCPY", "srcKind", "ENUM_CUDA_MEM_KIND", "id"),
        std::tuple("CUPTI_ACTIVITY_KIND_MEMCPY", "dstKind", "ENUM_CUDA_MEM_KIND", "id"),
        std::tuple("CUPTI_ACTIVITY_KIND_MEMCPY", "streamId", "TARGET_INFO_CUDA_STREAM", "streamId"),
        std::tuple("CUPTI_ACTIVITY_KIND_MEMSET", "memKind", "ENUM_CUDA_MEM_KIND", "id"),
        std::tuple("NVTX_EVENTS", "globalTid", "ThreadNames", "globalTid"),
        std::tuple("NVTX_EVENTS", "eventType", "ENUM_NSYS_EVENT_TYPE", "id"),
        std::tuple("ThreadNames", "nameId", "StringIds", "id")})
    EXPECT_EQ(count(std::string("SELECT count(*) FROM ") + table + " WHERE " + column + " NOT IN (SELECT " +
                    key + " FROM " + other + ")"),
              0)
        << table << "." << column;
  for (const char* table :
       {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"})
    EXPECT_EQ(count(std::string("SELECT count(*) FROM ") + table + " WHERE greenContextId IS NOT NULL"), 0);
  EXPECT_EQ(
      count("SELECT count(*) FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'cpu_model' AND value = 'a processor'"),
      1);
  EXPECT_EQ(count("SELECT stopTime - startTime - duration FROM ANALYSIS_DETAILS"), 0);
  EXPECT_EQ(
      count(
          "SELECT count(*) FROM ANALYSIS_DETAILS, CUPTI_ACTIVITY_KIND_KERNEL WHERE start < startTime OR end > stopTime"),
      0);
  EXPECT_EQ(count("SELECT count(*) FROM ENUM_CUDA_KERNEL_LAUNCH_TYPE, META_DATA_CAPTURE"), 0);
}

TEST_F(WriteNsys, KernelsOfACpuComeBackWithPhasesAndModules) {
  TraceDocument d = document();
  d.kernels[1].scope = d.kernels[2].scope = "loss";  // a module whose name is that of a phase
  d.kernels[5].scope = "";
  const ImportedTrace read = written(d);
  ASSERT_EQ(read.steps.size(), 2u);
  auto want = executed(d, true);
  const auto got = executed(read, true);
  ASSERT_EQ(got.size(), want.size());
  for (Executed& e : want)
    if (std::get<2>(e) == "loss") std::get<2>(e) = "";  // a range of that name would say the phase
  EXPECT_EQ(got, sorted(want));
}

TEST_F(WriteNsys, KernelsOfAGpuComeBackThroughTheirLaunches) {
  const TraceDocument d = gpu_document();
  const ImportedTrace read = written(d);
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(executed(read, false), executed(d, false));
  std::map<std::string, int> phases;
  for (const ImportedKernel& k : read.kernels) ++phases[k.info.phase];
  EXPECT_EQ(phases["optimizer"], 1) << "it has a launch of its own";
  EXPECT_EQ(count("SELECT count(DISTINCT correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL"), 6)
      << "one launch starts five kernels";
  EXPECT_EQ(
      count(
          "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)"),
      22);
  EXPECT_EQ(count("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1 AND bytes = 4096"), 4);
  EXPECT_EQ(count("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE bytes = 64"), 2);
  std::int64_t copies = 0;
  for (const ImportedStep& step : read.steps)
    for (const Activity& a : step.activities) copies += a.kind == Activity::Kind::copy ? 1 : 0;
  EXPECT_EQ(copies, 4);
}

TEST_F(WriteNsys, RanksAreProcesses) {
  const TraceDocument d = ranks_document();
  const ImportedTrace read = written(d);  // of the process with most kernels, of equal ones the first
  EXPECT_EQ(executed(read, true).size(), 22u);
  EXPECT_EQ(count("SELECT count(DISTINCT globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL"), 2);
  EXPECT_EQ(count("SELECT count(*) FROM TARGET_INFO_GPU WHERE name LIKE '%rank 1 of 2 on b'"), 1);
  EXPECT_EQ(
      count(
          "SELECT count(*) FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId WHERE s.value = 'exchange'"),
      2);
}

// As nsys stats asks (cuda_gpu_kern_sum).
TEST_F(WriteNsys, StatisticsByName) {
  written(document());
  EXPECT_EQ(
      count("SELECT count(*) FROM (SELECT s.value, count(*), sum(k.end - k.start), avg(k.end - k.start) FROM "
            "CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value)"),
      4);
  EXPECT_EQ(
      count(
          "SELECT sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName "
          "WHERE s.value = 'Optimizer avx512'"),
      2 * 999);
}

TEST_F(WriteNsys, HostileContentsAndBadPlaces) {
  TraceDocument d = gpu_document();
  d.kernels[0].kernel = std::string("'); DROP TABLE StringIds; --\0\xff", 30);
  d.kernels[1].kernel = "";
  d.kernels[2].scope = std::string(1 << 20, '/');
  d.rows[0].plan_step = 1'000'000;
  d.rows.back().start_ns = std::int64_t{1} << 61;
  ASSERT_TRUE(write_nsys_export(d, file("n.sqlite")).ok());
  EXPECT_EQ(count("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"), 22);
  EXPECT_EQ(
      count(
          "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName NOT IN (SELECT id FROM StringIds)"),
      0);
  EXPECT_EQ(write_nsys_export(d, file("none/n.sqlite")).error().code, Errc::io);
  ASSERT_TRUE(write_nsys_export({}, file("n.sqlite")).ok());
  EXPECT_EQ(count("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"), 0);
}

}  // namespace
}  // namespace gradloom::test
