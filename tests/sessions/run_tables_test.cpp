#include "sessions/run_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using Row = std::map<std::string, std::string>;

// RFC 4180, strictly: fields are quoted or hold no quote.
std::vector<std::vector<std::string>> lines(const std::string& csv) {
  std::vector<std::vector<std::string>> list(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    std::string& field = list.back().back();
    if (csv[i] == '"' && quoted && i + 1 < csv.size() && csv[i + 1] == '"')
      field += csv[++i];
    else if (csv[i] == '"')
      quoted = !quoted;
    else if (csv[i] == ',' && !quoted)
      list.back().emplace_back();
    else if (csv[i] == '\n' && !quoted)
      list.push_back({""});
    else
      field += csv[i];
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(list.back(), std::vector<std::string>{""}) << "the last line ends";
  list.pop_back();
  return list;
}

class RunTables : public SessionTest {
 protected:
  // A run with two timed steps, its tables by name.
  void make(const std::string& node = "fc") {
    TinyStep tiny = tiny_step(false);
    tiny.graph.nodes[0].name = node;
    auto store = Store::open(file("s.db"), StoreMode::write);
    ASSERT_TRUE(store.ok());
    auto run = (*store)->begin_run(tiny_start());
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE((*run)->write_plan(tiny.graph, tiny.plan, tiny.reports).ok());
    ASSERT_TRUE((*run)->write_ranks({{0, "a", 0, 1, "cpu", 0, 0}, {1, "b", 0, 1, "cpu", 0, 0}}).ok());
    for (std::int64_t step = 1; step <= 2; ++step) {
      RankStep times;
      times.exchanges = {{0, 0, 2, step * 1'000'000, 500, 100, 64},
                         {1, 0, 2, step * 1'000'000 + 100, 400, 0, 64}};
      (*run)->add_rank_step(step, times);
      ASSERT_TRUE((*run)
                      ->add_step({step, step == 1 ? 0.5 : std::nan(""), 9000, 1e-3, -1, true},
                                 tiny_samples(tiny, step))
                      .ok());
    }
    (*run)->add_evaluation({2, 0.25, 3, 777});
    ASSERT_TRUE((*run)->finish({}).ok());
    record_ = *(*store)->load_run(1);
    for (RunTable& table : run_tables(record_, *(*store)->load_trace(1))) {
      const auto all = lines(table.csv);
      EXPECT_EQ(all.size(), table.rows + 1) << table.name;
      for (std::size_t i = 1; i < all.size(); ++i) {
        EXPECT_EQ(all[i].size(), all[0].size()) << table.name;
        Row& row = tables_[table.name].emplace_back();
        for (std::size_t j = 0; j < all[0].size(); ++j) row[all[0][j]] = all[i][j];
      }
      EXPECT_EQ(tables_[table.name].size(), table.rows);
    }
  }
  RunRecord record_;
  std::map<std::string, std::vector<Row>> tables_;
};

TEST_F(RunTables, HoldWhatTheViewsShow) {
  make();
  ASSERT_EQ(tables_["kernels"].size(), record_.kernels.size());
  double share = 0;
  for (std::size_t i = 0; i < record_.kernels.size(); ++i) {
    Row& row = tables_["kernels"][i];
    const KernelRow& kernel = record_.kernels[i];
    EXPECT_EQ(row["plan_step"], std::to_string(i));
    EXPECT_EQ(row["node"], kernel.info.node);
    EXPECT_EQ(row["phase"], kernel.info.phase);
    EXPECT_EQ(std::stoll(row["median_ns"]), kernel.median_ns);
    EXPECT_EQ(std::stoll(row["samples"]), 2);
    EXPECT_EQ(std::stod(row["flops"]), 64);
    share += std::stod(row["share"]);
  }
  EXPECT_NEAR(share, 1, 1e-12);
  ASSERT_EQ(tables_["steps"].size(), 2u);
  EXPECT_EQ(tables_["steps"][0]["loss"], "0.5");
  EXPECT_EQ(tables_["steps"][1]["loss"], "nan");
  EXPECT_EQ(tables_["steps"][0]["lr"], "0.001");
  EXPECT_EQ(tables_["steps"][0]["grad_norm"], "") << "was not computed";
  ASSERT_EQ(tables_["evaluations"].size(), 1u);
  EXPECT_EQ(tables_["evaluations"][0]["eval_ns"], "777");
  ASSERT_EQ(tables_["passes"].size(), 1u);
  EXPECT_EQ(tables_["passes"][0]["rejected"], "3");
  ASSERT_EQ(tables_["matches"].size(), 3u);
  EXPECT_EQ(tables_["matches"][1]["why"], "no product before it");
  ASSERT_EQ(tables_["memory"].size(), record_.buffers.size());
  EXPECT_EQ(tables_["memory"][1]["offset"], "128");
  EXPECT_EQ(tables_["memory"][1]["first_node"], "act");
  ASSERT_EQ(tables_["exchanges"].size(), 4u);
  EXPECT_EQ(tables_["exchanges"][0]["node"], record_.kernels[2].info.node);
  EXPECT_EQ(tables_["exchanges"][0]["wait_ns"], "100");
}

TEST_F(RunTables, NamesFromFilesAreTextOnly) {
  make("=HYPERLINK(\"x\",\"y\")\n");
  EXPECT_EQ(tables_["kernels"][0]["node"], "'=HYPERLINK(\"x\",\"y\")\\x0a");
}

TEST_F(RunTables, OfARunWithoutAnything) {
  for (const RunTable& table : run_tables({}, {})) {
    EXPECT_EQ(table.rows, 0u) << table.name;
    EXPECT_EQ(lines(table.csv).size(), 1u) << table.name;
  }
}

}  // namespace
}  // namespace gradloom::test
