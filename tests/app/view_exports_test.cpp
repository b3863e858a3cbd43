// Every view of the window has a command whose JSON says what it shows, and rows of it as a table.
#include "app/view_exports.h"

#include <map>
#include <set>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

ViewDef view_with(const char* rows, const char* columns = "") {
  return {"v", "V", "V", ViewOf::session, "v", "", rows, columns, ""};
}

TEST(ViewCsv, RowsHaveAllColumnsInTheOrderInWhichTheyCome) {
  const auto csv = view_csv(
      view_with("a.rows", "model"),
      {R"({"model":"m","a":{"rows":[{"x":1,"y":"p, \"q\""},{"x":2.5,"z":{"low":1,"high":null}}]}})",
       R"({"model":"n","other":[]})", R"({"model":"n","a":{"rows":[{"y":"=1+1","l":["b",3],"o":[{}]}]}})"});
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  EXPECT_EQ(*csv,
            "model,x,y,z.low,z.high,l\n"
            "m,1,\"p, \"\"q\"\"\",,,\n"
            "m,2.5,,1,,\n"
            "n,,'=1+1,,,b 3\n");
}

TEST(ViewCsv, TreesAndColumnsBecomeRows) {
  const auto tree = view_csv(
      view_with("step"),
      {R"({"step":{"name":"step","ns":3,"children":[{"name":"a","ns":2,"children":[{"name":"b","ns":1}]}]}})"});
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(*tree, "depth,name,ns\n0,step,3\n1,a,2\n2,b,1\n");
  const auto curve =
      view_csv(view_with("runs*"),
               {R"({"runs":[{"run":1,"steps":[1,2],"values":[0.5,"NaN"]},{"run":2,"steps":[]}]})"});
  ASSERT_TRUE(curve.ok());
  EXPECT_EQ(*curve, "run,steps,values\n1,1,0.5\n1,2,NaN\n");
  const auto lines = view_csv(view_with(""), {R"({"a":1})", R"({"summary":{}})", R"({"a":2})"});
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(*lines, "a\n1\n2\n");
  EXPECT_FALSE(view_csv(view_with(""), {"no json"}).ok());
}

TEST(Views, AreFoundByWhatTheyNeed) {
  ViewSource nothing;
  EXPECT_EQ(find_view("roofline", nothing).error().code, Errc::usage);
  EXPECT_NE(find_view("rooflin", nothing).error().message.find("roofline"), std::string::npos);
  ViewSource job;
  job.recipe = Recipe();
  EXPECT_STREQ((*find_view("roofline", job))->command, "plan");
  ViewSource run{.session = "s.db", .run = 3, .recipe = Recipe()};
  EXPECT_STREQ((*find_view("roofline", run))->command, "show");
  EXPECT_STREQ((*find_view("difference", run))->command, "plan") << "against no passes";
  run.other = 2;
  EXPECT_EQ(view_words(**find_view("difference", run), run),
            (std::vector<std::string>{"compare", "2", "3", "--session", "s.db", "--stored", "--graph"}));
  std::set<std::string> names;
  for (const ViewDef* const view : views_by_name()) {
    EXPECT_TRUE(names.insert(view->name).second) << view->name;
    EXPECT_EQ(find_view(view->name, run).ok(), view->of != ViewOf::answer) << view->name;
  }
  for (const ViewDef& view : all_views()) EXPECT_EQ(names.count(view.name), 1u) << view.name;
  // What is shown already lacks nothing.
  nothing.said = [] { return std::vector<std::string>(); };
  for (const std::string& name : names) EXPECT_TRUE(find_view(name, nothing).ok()) << name;
}

TEST(Views, OfARunAreTheRunsAndOfAJobThePlans) {
  ViewSource source{.session = "s.db", .run = 3, .recipe = Recipe()};
  source.recipe->model = "m.onnx";
  for (const char* name : {"kernels", "memory", "roofline", "advice"}) {
    source.run = 3;
    const std::vector<std::string> of_run = view_words(**find_view(name, source), source);
    EXPECT_EQ(of_run.at(1), "s.db") << name;
    source.run = 0;
    const std::vector<std::string> of_job = view_words(**find_view(name, source), source);
    EXPECT_EQ(of_job.at(1), "m.onnx") << name;
    EXPECT_EQ(of_run.front() == "advise", of_job.front() == "advise") << name;
  }
}

class ExportedViews : public Commands {
 protected:
  // Two runs with timed kernels, a comparison, a search with the worth of passes, a prediction.
  void SetUp() override {
    const std::string session = path("s.db");
    for (const char* passes : {"default", "none"}) {
      const Outcome made =
          run(train_mlp({"--steps", "8", "--profile", "all", "--passes", passes, "--session", session}));
      ASSERT_EQ(made.code, 0) << made.err;
    }
    const std::vector<std::string> job{model("mlp") + "/model.onnx", "--dim", "batch=8", "--loss",
                                       "ce:logits,labels"};
    for (const bool worth : {false, true}) {
      std::vector<std::string> tune{"tune", "--seconds", "2", "--session", session};
      tune.insert(tune.begin() + 1, job.begin(), job.end());
      if (worth) tune.emplace_back("--worth");
      const Outcome searched = run(tune);
      ASSERT_EQ(searched.code, 0) << searched.err;
    }
    ASSERT_EQ(run({"what-if", session, "--run", "1", "--b", "passes=none"}).code, 0);
  }
  std::vector<std::string> exporting(const std::string& view, const std::string& file) const {
    return {"export", path("s.db"), "--run", "1", "--against", "2", "--view", view, "-o", path(file)};
  }
};

TEST_F(ExportedViews, EachHasRowsAndJson) {
  std::map<std::string, std::string> column{{"graph", "node"},
                                            {"kernels", "step_ns"},
                                            {"icicle", "total_ns"},
                                            {"memory", "offset"},
                                            {"timeline", "start_ns"},
                                            {"roofline", "above_ns"},
                                            {"compare", "a_ns"},
                                            {"difference", "region"},
                                            {"advice", "gain_ns"},
                                            {"scores", "low_ns"},
                                            {"scaling", "efficiency"},
                                            {"tune", "on_front"},
                                            {"waterfall", "among.ratio"},
                                            {"trends", "median_step_ns"},
                                            {"curves", "values"},
                                            {"runs", "run_id"},
                                            {"passes", "matched"}};
  for (const ViewDef& view : all_views()) {
    const std::string name = view.name;
    if (view.of == ViewOf::answer) continue;
    const Outcome csv = run(exporting(name, "v.csv"));
    ASSERT_EQ(csv.code, 0) << name << ": " << csv.err;
    std::istringstream rows(read_file(path("v.csv")));
    std::string head, row;
    std::getline(rows, head);
    EXPECT_NE(("," + head + ",").find("," + column.at(name) + ","), std::string::npos)
        << name << ": " << head;
    EXPECT_TRUE(std::getline(rows, row)) << name << " has no row";
    const Outcome data = run(exporting(name, "v.json"));
    ASSERT_EQ(data.code, 0) << name << ": " << data.err;
    std::istringstream lines(read_file(path("v.json")));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) EXPECT_TRUE(json::accept(line)) << name;
    EXPECT_GT(count, 0) << name;
  }
}

TEST_F(ExportedViews, TimelineHasEachKernelOnce) {
  ASSERT_EQ(run(exporting("timeline", "t.csv")).code, 0);
  const Outcome shown = run({"show", path("s.db"), "--run", "1", "--launches", "--json"});
  const json launches = shown.lines().at(0)["launches"];
  const json run_json = run({"show", path("s.db"), "--run", "1", "--json"}).lines().at(0);
  EXPECT_EQ(launches["rows"].size(), run_json["kernels_per_step"].get<std::size_t>());
  const std::string csv = read_file(path("t.csv"));
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), launches["rows"].size() + 1);
  double end = 0;
  for (const json& row : launches["rows"]) {
    EXPECT_GE(row["start_ns"].get<double>(), end) << "one lane, in order";
    end = row["start_ns"].get<double>() + row["ns"].get<double>();
  }
}

TEST_F(ExportedViews, SearchesAreToldWithTheWorthOfPasses) {
  const Outcome told = run({"runs", path("s.db"), "--searches", "--json"});
  ASSERT_EQ(told.code, 0) << told.err;
  const auto lines = told.lines();
  ASSERT_FALSE(lines.empty());
  bool job = false, worth = false;
  for (const json& line : lines) {
    EXPECT_EQ(line["model"], "mlp");
    for (const json& row : line["rows"]) job |= row["changes"] == "";
    worth |= line["worth"].is_object() && !line["worth"]["passes"].empty();
  }
  EXPECT_TRUE(job);
  EXPECT_TRUE(worth);
}

TEST_F(ExportedViews, PicturesAreOfThePaneAlone) {
  Outcome o = run(exporting("roofline", "r.svg"));
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string svg = read_file(path("r.svg"));
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0u);
  EXPECT_NE(svg.find(">Roofline</text>"), std::string::npos);
  EXPECT_EQ(svg.find(">File</text>"), std::string::npos) << "the menu is no part of it";
  EXPECT_NE(svg.find("<path d=\"M"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  o = run(exporting("roofline", "r.png"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(fs::file_size(path("r.png")), 5000u);
  o = run(exporting("compare", "c.svg"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(read_file(path("c.svg")).find("run 2"), std::string::npos);
  o = run(exporting("difference", "d.svg"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(read_file(path("d.svg")).find(">Passes</text>"), std::string::npos) << "the table of regions";
  EXPECT_NE(read_file(path("d.svg")).find("run 2"), std::string::npos);
}

// Memory as the run planned it is what its job plans now; the two runs differ.
TEST_F(ExportedViews, MemoryIsOfTheRun) {
  const auto shown = [&](const char* of) {
    const Outcome o = run({"show", path("s.db"), "--run", of, "--memory", "--json"});
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? o.lines().at(0)["memory"] : json();
  };
  const json first = shown("1"), second = shown("2");
  const Outcome o = run({"plan", "--recipe", path("s.db") + "#1", "--memory", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  json planned = o.lines().back()["memory"];
  for (std::size_t i = planned["live"].size(); i-- > 0;)  // a session has no workspaces
    if (planned["live"][i]["workspace"] == true) planned["live"].erase(i);
  for (const char* key : {"arena_bytes", "peak_step", "peak_node"})
    EXPECT_EQ(first[key], planned[key]) << key;
  ASSERT_EQ(first["live"].size(), planned["live"].size());
  for (std::size_t i = 0; i < first["live"].size(); ++i)
    for (const char* key : {"bytes", "offset", "first_step", "last_step", "values"})
      EXPECT_EQ(first["live"][i][key], planned["live"][i][key]) << i << " " << key;
  EXPECT_EQ(first["run_id"], 1);
  EXPECT_FALSE(first.contains("findings")) << "a run does not tell them";
  EXPECT_NE(first["arena_bytes"], second["arena_bytes"]);
  const Outcome text = run({"show", path("s.db"), "--run", "1", "--memory"});
  EXPECT_NE(text.out.find("live at the peak"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("freed late"), std::string::npos) << text.out;
}

TEST_F(ExportedViews, WhatCannotBeWrittenIsTold) {
  expect_error(exporting("roofline", "v.txt"), 2, ".csv, .json, .svg or .png");
  expect_error(exporting("prediction", "v.csv"), 2, "gradloom what-if");
  expect_error({"export", path("s.db"), "--view", "compare", "-o", path("v.csv")}, 2, "two runs");
  expect_error({"export", path("s.db"), "--view", "roofline"}, 2, "-o FILE");
  expect_error({"export", path("s.db"), "--against", "1"}, 2, "--view");
  expect_error({"export", path("s.db"), "--theme", "dark"}, 2, "--view");
  expect_error({"export", path("s.db"), "--boxes", "9"}, 2, "--graph");
  expect_error({"export", path("s.db"), "--recipe", path("r.json"), "--view", "passes", "-o", path("v.csv")},
               2, "not both");
  expect_error({"export", path("s.db"), "--view", "roofline", "--csv", path("t")}, 2, "--view");
  EXPECT_FALSE(fs::exists(path("v.csv")));
  EXPECT_FALSE(fs::exists(path("v.txt")));
}

}  // namespace
}  // namespace gradloom
