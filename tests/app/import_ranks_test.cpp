// Traces of several ranks as one run.
#include "app/import_ranks.h"

#include "app/import_trace.h"
#include "sessions/store.h"
#include "tests/app/command_fixture.h"
#include "tests/profiler/import/trace_text.h"

namespace gradloom {
namespace {

// Two steps of 1000 us: a product of 300 us, and two all-reduces that end 900 us and 950 us after the step begins, which this rank joins
// `late_us` after the first does. Its clock is `ahead_us` ahead.
std::string rank_trace(int rank, int ranks, double late_us, double ahead_us, const std::string& more = "") {
  test::KinetoText text;
  for (int i = 0; i < 2; ++i) {
    const double t = 2000.0 * i + ahead_us;
    const std::string n = std::to_string(i + 1);
    text.mark("ProfilerStep#" + std::to_string(i + 5), t, 1000);
    text.op("aten::mm", t + 5, 20);
    text.event("cuda_runtime", "cudaLaunchKernel", 1, t + 10, 5, R"("correlation":)" + n + "1");
    text.event("kernel", "gemm", 9, t + 100, 300, R"("device":0,"stream":7,"correlation":)" + n + "1");
    text.op("c10d::allreduce_", t + 30, 20);
    text.event("cuda_runtime", "cudaLaunchKernel", 1, t + 35, 5, R"("correlation":)" + n + "2");
    text.event("cuda_runtime", "cudaLaunchKernel", 1, t + 42, 5, R"("correlation":)" + n + "3");
    const std::string told =
        R"(,"Collective name":"allreduce","In msg nelems":1000,"Group size":2,"dtype":"Float","Process Group Name":"0")";
    text.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 9, t + 350 + late_us,
               550 - late_us, R"("device":0,"stream":20,"correlation":)" + n + "2" + told);
    text.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 9, t + 910, 40,
               R"("device":0,"stream":20,"correlation":)" + n + "3" + told);
  }
  return R"({"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":)" + std::to_string(rank) +
         R"(,"world_size":)" + std::to_string(ranks) + R"(},"host_name":"host-)" + std::to_string(rank / 2) +
         "\"" + more + "," + text.text().substr(1);
}

class ImportRanks : public Commands {
 protected:
  void SetUp() override { fs::create_directory(path("job")); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path("job/" + name)) << text;
  }
  Outcome import() const { return run({"import", path("job"), "--session", path("s.db"), "--json"}); }
};

TEST_F(ImportRanks, AJobIsOneRunWithALaneForEachRank) {
  write("b.pt.trace.json", rank_trace(0, 2, 0, 0));
  write("a.pt.trace.json", rank_trace(1, 2, 200, 123'456));
  const Outcome o = import();
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(o.lines().size(), 1u) << o.out;
  EXPECT_EQ(o.lines()[0]["ranks"], 2);
  EXPECT_EQ(o.lines()[0]["name"], "job");
  const auto store = Store::open(path("s.db"), StoreMode::read);
  ASSERT_TRUE(store.ok());
  const auto record = (*store)->load_run(1);
  ASSERT_TRUE(record.ok()) << record.error().message;
  ASSERT_EQ(record->ranks.size(), 2u);
  const RankShares &first = record->ranks[0], &second = record->ranks[1];
  // 300 us of products each; of the first exchange 550 us rank 0 waits 200 until rank 1 is there. 50 us of it lie beside the product.
  EXPECT_NEAR(first.kernels_ns, 300e3, 1);
  EXPECT_NEAR(second.kernels_ns, 300e3, 1);
  EXPECT_NEAR(first.exchange_ns, 590e3, 1);
  EXPECT_NEAR(first.wait_ns, 200e3, 1);
  EXPECT_NEAR(first.transfer_ns(), 390e3, 1);
  EXPECT_NEAR(first.exposed_ns, 540e3, 1);
  EXPECT_NEAR(second.exchange_ns, 390e3, 1);
  EXPECT_NEAR(second.wait_ns, 0, 1);
  EXPECT_NEAR(second.exposed_ns, 390e3, 1);
  EXPECT_EQ(first.sent_bytes, 8000) << "two means of 4000 bytes: (n - 1) / n of them, twice";
  EXPECT_EQ(first.rank.host, "host-0");
  EXPECT_EQ(second.rank.local_rank, 1);
  EXPECT_EQ(second.rank.environment.at("trace.rank"), "1");
  EXPECT_EQ(record->kernels.size(), 2u) << "the ranks' kernels are the same";
  const auto trace = (*store)->load_trace(1);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->ranks.size(), 2u);
  EXPECT_EQ(trace->rows.size(), 6u);
  EXPECT_EQ(trace->other_ranks.size(), 6u);
  EXPECT_EQ(trace->exchanges.size(), 8u);
  for (const TraceExchange& e : trace->exchanges)
    for (const TraceExchange& other : trace->exchanges)
      if (e.plan_step == other.plan_step && e.step == other.step && e.micro == other.micro) {
        EXPECT_EQ(e.start_ns + e.duration_ns, other.start_ns + other.duration_ns) << "on one clock";
      }
}

TEST_F(ImportRanks, CommandsTellWhoWaits) {
  write("0.json", rank_trace(0, 2, 0, 0));
  write("1.json", rank_trace(1, 2, 200, 0));
  ASSERT_EQ(import().code, 0);
  const json shown = run({"show", path("s.db"), "--json"}).lines().at(0);
  ASSERT_EQ(shown["ranks"].size(), 2u);
  EXPECT_NE(run({"show", path("s.db")}).out.find("rank"), std::string::npos);
  const Outcome traced = run({"trace", path("s.db"), "-o", path("t.json")});
  ASSERT_EQ(traced.code, 0) << traced.err;
  EXPECT_NE(read_file(path("t.json")).find("wait for the last rank"), std::string::npos);
  const Outcome table = run({"trace", path("s.db"), "-o", path("t.csv"), "--json"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(table.lines().at(0)["events"], 6) << "a CSV has one rank";
  EXPECT_EQ(run({"show", path("s.db"), "--critical-path", "--idle"}).code, 0);
}

TEST_F(ImportRanks, EachRecordingOfTheRanksIsARun) {
  for (int rank = 0; rank < 2; ++rank)
    for (const char* time : {"100", "200"})
      write("w" + std::to_string(rank) + "." + time + ".json", rank_trace(rank, 2, 0, 0));
  const Outcome o = import();
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(o.lines().size(), 2u);
  for (const json& line : o.lines()) EXPECT_EQ(line["ranks"], 2);
}

TEST_F(ImportRanks, WithoutAllRanksEachIsARunOfItsOwn) {
  write("0.json", rank_trace(0, 4, 0, 0));
  write("2.json", rank_trace(2, 4, 0, 0));
  write("else.json", test::KinetoText().mark("ProfilerStep#1", 0, 9).op("aten::mm", 1, 5).text());
  const Outcome o = import();
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(o.lines().size(), 3u);
  EXPECT_NE(o.err.find("rank 2 of 4"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("rank 0 of 1"), std::string::npos) << o.err;
}

Result<ImportedTrace> trace_of_rank(int rank, double late_us, double ahead_us) {
  return test::read_text(rank_trace(rank, 2, late_us, ahead_us));
}

TEST(MergeRanks, StepsThatARankLacksAreLeftOut) {
  auto first = trace_of_rank(0, 0, 0), second = trace_of_rank(1, 0, 5000);
  ASSERT_TRUE(first.ok() && second.ok());
  second->steps.erase(second->steps.begin());
  std::vector<ImportedTrace> traces;
  traces.push_back(std::move(*first));
  traces.push_back(std::move(*second));
  const auto merged = merge_ranks(std::move(traces));
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->steps.size(), 1u);
  EXPECT_EQ(merged->trace.steps[0].number, 6);
  EXPECT_EQ(merged->steps[0].samples.size(), 3u);
  EXPECT_NE(merged->trace.notes.back().find("1 step that not all ranks have"), std::string::npos);
}

TEST(MergeRanks, KernelsThatOnlyAnotherRankRunsAreMore) {
  auto first = trace_of_rank(0, 0, 0), second = trace_of_rank(1, 0, 0);
  ASSERT_TRUE(first.ok() && second.ok());
  for (ImportedKernel& kernel : second->kernels)
    if (kernel.info.kernel == "gemm") kernel.info.kernel = "other gemm";
  std::vector<ImportedTrace> traces;
  traces.push_back(std::move(*first));
  traces.push_back(std::move(*second));
  const auto merged = merge_ranks(std::move(traces));
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->trace.kernels.size(), 3u);
  const ImportedKernel& more = merged->trace.kernels.back();
  EXPECT_EQ(more.info.kernel, "other gemm");
  EXPECT_EQ(more.info.plan_step, 2);
  for (const std::uint32_t source : more.info.sources) EXPECT_LT(source, merged->trace.operators.size());
}

TEST(MergeRanks, NothingInCommonIsRefused) {
  auto first = trace_of_rank(0, 0, 0), second = trace_of_rank(1, 0, 0);
  ASSERT_TRUE(first.ok() && second.ok());
  for (ImportedStep& step : second->steps) step.number += 100;
  std::vector<ImportedTrace> traces;
  traces.push_back(std::move(*first));
  traces.push_back(std::move(*second));
  EXPECT_EQ(merge_ranks(std::move(traces)).error().code, Errc::bad_input);
}

TEST(MergeRanks, FactsOfStrangersAreNoRanks) {
  EXPECT_EQ(rank_of_trace({}).ranks, 0);
  for (const auto& [rank, ranks] :
       {std::pair("0", "1"), {"2", "2"}, {"-1", "2"}, {"0", "99999999"}, {"x", "2"}, {"0", ""}})
    EXPECT_EQ(rank_of_trace({{"trace.rank", rank}, {"trace.world_size", ranks}}).ranks, 0) << rank << ranks;
  EXPECT_EQ(rank_of_trace({{"trace.rank", "1"}, {"trace.world_size", "2"}}).rank, 1);
}

}  // namespace
}  // namespace gradloom
