// gradloom what-if, show --roofline and plan --roofline.
#include "app/what_if.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class WhatIfCommand : public Commands {
 protected:
  std::string recorded() const {
    const Outcome made = run(train_mlp({"--steps", "12", "--session", path("s.db"), "--profile", "all"}));
    EXPECT_EQ(made.code, 0) << made.err;
    return path("s.db");
  }
  // The answer of the last run of a session, which keeps nothing.
  json answer(const std::string& session, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"what-if", session, "--forget", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? o.lines().front() : json();
  }
};

double sum_of(const json& parts, const char* key) {
  double sum = 0;
  for (const json& part : parts) sum += part[key].get<double>();
  return sum;
}

TEST_F(WhatIfCommand, FasterKernelsTakeTheirPartOffTheStep) {
  const std::string session = recorded();
  const json shown = run({"show", session, "--json"}).lines().front();
  double backward = 0, all = 0;
  for (const json& kernel : shown["kernels"]) {
    all += kernel["median_ns"].get<double>();
    if (kernel["phase"] == "backward") backward += kernel["median_ns"].get<double>();
  }
  ASSERT_GT(backward, 0);
  const json a = answer(session, {"--speed", "phase:backward=4"});
  const double step = a["step_ns"], after = a["predicted_ns"];
  EXPECT_NEAR(step, shown["median_step_ns"].get<double>(), 1 + 1e-6 * step);
  // Amdahl: three quarters of the backward pass, as kernels that do the same work have one time.
  EXPECT_NEAR(step - after, 0.75 * backward, 0.25 * backward);
  EXPECT_NEAR(a["ratio"]["value"], step / after, 1e-9);
  EXPECT_LE(a["low_ns"], after);
  EXPECT_GE(a["high_ns"], after);
  // Twice as fast twice is four times; all kernels and all launches leave a quarter.
  EXPECT_NEAR(answer(session, {"--speed", "phase:backward=2", "--speed", "phase:backward=2"})["predicted_ns"],
              after, 1);
  const json everything = answer(session, {"--speed", "op:*=4", "--speed", "launch=4"});
  EXPECT_NEAR(everything["predicted_ns"], step / 4, 0.05 * step);
  EXPECT_NEAR(sum_of(everything["ops"], "after_ns"), all / 4, 0.1 * all);
  const json at_once = answer(session, {"--speed", "op:*=1000", "--speed", "launch=1000"});
  EXPECT_NEAR(at_once["low_ns"].get<double>() / at_once["predicted_ns"].get<double>(), 0.95, 1e-6);
  EXPECT_NEAR(at_once["ratio"]["high"].get<double>(), 1000 / 0.95, 1) << "not without bound";
}

TEST_F(WhatIfCommand, OtherSettingsAreCompiledAndTold) {
  const std::string session = recorded();
  const json same = answer(session, {"--b", "seed=7"});
  EXPECT_NEAR(same["ratio"]["value"], 1, 1e-6) << "the same kernels";
  EXPECT_NEAR(same["measured"], 1, 1e-9);
  const json larger = answer(session, {"--b", "dim=batch=64"});
  EXPECT_GT(larger["samples"], 1);
  EXPECT_GT(larger["predicted_ns"], same["predicted_ns"]);
  EXPECT_GT(larger["predicted_peak_bytes"], larger["plan_peak_bytes"]);
  const json none = answer(session, {"--b", "passes=none"});
  std::int64_t before = 0, after = 0;
  for (const json& part : none["phases"]) {
    before += part["kernels_before"].get<std::int64_t>();
    after += part["kernels_after"].get<std::int64_t>();
  }
  EXPECT_GT(after, before) << "fusion is off";
}

TEST_F(WhatIfCommand, RanksWaitForTheirExchangesAndAFasterLinkHelps) {
  const std::string session = recorded();
  const auto exposed = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--b", "ranks=4", "--link", "0.1Gb/s,50us", "--local", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return answer(session, words);
  };
  const json slow = exposed({}), fast = exposed({"--speed", "link=10"});
  EXPECT_GT(slow["exposed_ns"], 0);
  EXPECT_LT(fast["exposed_ns"], slow["exposed_ns"]);
  EXPECT_NEAR(slow["predicted_ns"].get<double>() - slow["exposed_ns"].get<double>(), slow["step_ns"],
              1e-6 * slow["step_ns"].get<double>());
}

TEST_F(WhatIfCommand, AnotherProcessorIsToldByItsRoofs) {
  const std::string session = recorded();
  const json gpu = answer(session, {"--on", "h200", "--b", "precision=bf16"});
  EXPECT_NE(gpu["note"].get<std::string>().find("no kernel was measured"), std::string::npos);
  EXPECT_GT(gpu["predicted_ns"], 0);
  EXPECT_EQ(gpu["measured"], 0);
  // Its launches are the card's, not those that were measured here.
  const auto launches = [&](const char* factor) {
    return answer(session,
                  {"--on", "h200", "--b", "precision=bf16", "--speed", std::string("launch=") + factor});
  };
  const json half = launches("2"), none = launches("1000000");
  const double all = 2 * (gpu["predicted_ns"].get<double>() - half["predicted_ns"].get<double>());
  EXPECT_GE(all, 1000 * sum_of(gpu["ops"], "kernels_after")) << "a microsecond of each, and more";
  EXPECT_NEAR(none["predicted_ns"].get<double>(), gpu["predicted_ns"].get<double>() - all, 1e-3 * all);
  EXPECT_NEAR(none["low_ns"].get<double>() / none["predicted_ns"].get<double>(),
              gpu["low_ns"].get<double>() / gpu["predicted_ns"].get<double>(), 1e-9);
  // A processor that is described by a file: everything three times as fast as another.
  const auto describe = [&](const char* name, double factor) {
    std::ofstream(path(name)) << R"({"name":"x","launch_ns":1,"memory":[{"bytes":1,"bytes_per_second":)"
                              << 1e9 * factor << R"(}],"products":[{"type":"f32","flops_per_second":)"
                              << 1e9 * factor << "}]}";
    return path(name);
  };
  const json slow = answer(session, {"--on", describe("slow.json", 1)}),
             fast = answer(session, {"--on", describe("fast.json", 3)});
  EXPECT_NEAR(sum_of(slow["ops"], "after_ns"), 3 * sum_of(fast["ops"], "after_ns"),
              1e-3 * sum_of(slow["ops"], "after_ns"));
}

// Ranks on another processor exchange as it does: on GPUs by NCCL over the links of the data sheet, not as the CPUs here.
TEST_F(WhatIfCommand, RanksOnAnotherProcessorExchangeAsItDoes) {
  const std::string session = recorded();
  const json one = answer(session, {"--on", "h200"}), cpus = answer(session, {"--b", "ranks=8"}),
             cards = answer(session, {"--b", "ranks=8", "--on", "h200"}),
             slow = answer(session, {"--b", "ranks=8", "--on", "h200", "--local-link", "0.01GB/s,50us"});
  EXPECT_EQ(one["figures"], "");
  EXPECT_NE(cpus["figures"].get<std::string>().find("exchanges of processes"), std::string::npos);
  for (const json& a : {cards, slow}) {
    EXPECT_NE(a["figures"].get<std::string>().find("NVIDIA H200 SXM: its data sheet"), std::string::npos)
        << a;
    EXPECT_NE(a["figures"].get<std::string>().find("NCCL"), std::string::npos) << a;
    EXPECT_GT(a["exposed_ns"], 0);
    EXPECT_NEAR(a["predicted_ns"].get<double>(),
                one["predicted_ns"].get<double>() + a["exposed_ns"].get<double>(), 1);
  }
  EXPECT_LT(cards["exposed_ns"], slow["exposed_ns"]);
}

TEST_F(WhatIfCommand, PredictionsAreScoredByTheNextRun) {
  const std::string session = recorded();
  const Outcome asked = run({"what-if", session, "--b", "passes=none"});
  ASSERT_EQ(asked.code, 0) << asked.err;
  EXPECT_NE(asked.out.find("what if       passes=none"), std::string::npos) << asked.out;
  ASSERT_EQ(run({"what-if", session, "--speed", "op:*=2"}).code, 0);
  json scores = run({"what-if", session, "--scores", "--json"}).lines().front();
  ASSERT_EQ(scores["predictions"].size(), 2u);
  EXPECT_TRUE(scores["predictions"][0]["run"].is_null());
  const std::string measure = scores["predictions"][0]["measure"];
  EXPECT_EQ(measure.rfind("gradloom train ", 0), 0u) << measure;
  EXPECT_NE(measure.find("--session " + session), std::string::npos) << measure;
  EXPECT_EQ(scores["predictions"][1]["measure"], "") << "no run can";
  const Outcome made =
      run(train_mlp({"--steps", "12", "--session", session, "--profile", "all", "--passes", "none"}));
  ASSERT_EQ(made.code, 0) << made.err;
  scores = run({"what-if", session, "--scores", "--json"}).lines().front();
  const json first = scores["predictions"][0];
  EXPECT_EQ(first["run"], 2);
  EXPECT_NEAR(first["error"], first["predicted_ns"].get<double>() / first["measured_ns"].get<double>() - 1,
              1e-9);
  EXPECT_NEAR(scores["median_error"], std::abs(first["error"].get<double>()), 1e-9);
  EXPECT_TRUE(scores["predictions"][1]["run"].is_null()) << "no run can have twice as fast kernels";
  EXPECT_NE(run({"what-if", session, "--scores"}).out.find("median error"), std::string::npos);
}

TEST_F(WhatIfCommand, BadQuestionsAreOneLine) {
  const std::string session = recorded();
  for (const auto& [words, said] : std::vector<std::pair<std::vector<std::string>, const char*>>{
           {{}, "nothing is different"},
           {{"--speed", "op:Nothing=2"}, "no kernel of the plan fits"},
           {{"--speed", "op:MatMul"}, "no factor"},
           {{"--speed", "op:MatMul=0"}, "the factor is a number"},
           {{"--speed", "op:MatMul=nan"}, "the factor is a number"},
           {{"--speed", "op=2"}, "no pattern"},
           {{"--speed", "launch:x=2"}, "it takes no pattern"},
           {{"--speed", "colour:red=2"}, "none of what can be faster"},
           {{"--speed", "link=2"}, "one rank has no link"},
           {{"--b", "passes=nothing"}, "nothing"},
           {{"--b", "threads=1"}, "another number of threads"},
           {{"--b", "seed=2", "--threads", "77"}, "run 1 was measured with threads "},
           {{"--b", "seed=2", "--device", "host-gpu"}, "run 1 was measured with device cpu"},
           {{"--on", "h300"}, "h200"},
           {{"--b", "seed=2", "--link", "fast"}, "fast"}}) {
    std::vector<std::string> all = {"what-if", session, "--forget"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome o = run(all);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_NE(o.err.find(said), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST_F(WhatIfCommand, TheRooflineOfARunAndOfAPlan) {
  const std::string session = recorded();
  std::ofstream(path("here.json"))
      << R"({"name":"here","launch_ns":1,"memory":[{"bytes":1,"bytes_per_second":1e12}],)"
      << R"("products":[{"type":"f32","flops_per_second":1e13}]})";
  const json r =
      run({"show", session, "--roofline", "--on", path("here.json"), "--json"}).lines().front()["roofline"];
  EXPECT_EQ(r["hardware"], "here");
  EXPECT_GT(r["time_ns"], r["least_ns"]);
  double least = 0;
  bool products = false;
  for (const json& kernel : r["kernels"]) {
    least += kernel["least_ns"].get<double>();
    const double by_hand = std::max({kernel["flops"].get<double>() / 1e4, kernel["bytes"].get<double>() / 1e3,
                                     kernel["launches"].get<double>()});
    EXPECT_NEAR(kernel["least_ns"], by_hand, 1e-6 * by_hand);
    products |= kernel["roof"] == "f32 products";
  }
  EXPECT_NEAR(r["least_ns"], least, 1e-6 * least);
  EXPECT_TRUE(products || r["roofs"].contains("memory"));
  const Outcome text = run({"show", session, "--roofline", "--on", path("here.json"), "--group", "op"});
  EXPECT_NE(text.out.find("of the roofs"), std::string::npos) << text.out;
  EXPECT_EQ(run({"show", session, "--roofline", "--group", "pass"}).code, 2);
  EXPECT_EQ(run({"show", session, "--group", "roof"}).code, 2);

  const Outcome plan =
      run({"plan", model("mlp/model.onnx"), "--dim", "batch=64", "--loss", "ce:logits,labels", "--device",
           "cuda:0", "--precision", "bf16", "--roofline", "--on", "h200"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("not measured"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("NVIDIA H200"), std::string::npos) << plan.out;
  EXPECT_EQ(run({"plan", model("mlp/model.onnx"), "--dim", "batch=64", "--loss", "ce:logits,labels",
                 "--device", "hip:0", "--roofline"})
                .code,
            2)
      << "nothing is known of it";
}

// What a measurement says is the roof of later runs here.
TEST_F(WhatIfCommand, MeasuredHardwareIsRemembered) {
  const std::string cache = path("cache");
  std::filesystem::create_directory(cache);
  std::filesystem::permissions(cache, std::filesystem::perms::owner_all);
  setenv("GRADLOOM_CACHE", cache.c_str(), 1);
  const std::string session = recorded();
  const auto source = [&] {
    return run({"show", session, "--roofline", "--json"})
        .lines()
        .front()["roofline"]["source"]
        .get<std::string>();
  };
  EXPECT_NE(source().find("best that its kernels reached"), std::string::npos) << source();
  const Outcome measured = run({"devices", "--measure", "--device", "cpu", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_NE(source().find("measured"), std::string::npos) << source();
  std::ofstream(path("written.json")) << measured.out;
  EXPECT_EQ(run({"show", session, "--roofline", "--on", path("written.json")}).code, 0);
  unsetenv("GRADLOOM_CACHE");
}

}  // namespace
}  // namespace gradloom
