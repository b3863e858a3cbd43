#include "sessions/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sessions/random.h"
#include "sessions/store.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

// A machine that only pretends to work: step times with noise, drift that hits whoever runs, and rare stalls.
struct FakeMachine {
  Pcg32 random{1};
  double drift = 0, drift_per_step = 0;
  explicit FakeMachine(std::uint64_t seed) : random(seed) {}
  std::int64_t step(double base_ns) {
    drift += drift_per_step;
    const double u = (random.next() + 1.0) / 4294967296.0, v = random.next() / 4294967296.0;
    const double noise = 0.05 * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    const double stall = random.below(100) == 0 ? 4 : 1;
    return static_cast<std::int64_t>(base_ns * (1 + drift) * std::exp(noise) * stall);
  }
};

Resident fake(FakeMachine& machine, const std::string& name, double base_ns, const TinyStep& t,
              double loss_error = 0) {
  Resident side;
  side.name = name;
  side.kernels = kernel_infos(t.graph, t.plan);
  const std::size_t count = t.plan.steps.size();
  side.run = [&machine, base_ns, count, loss_error, next = std::int64_t{1}](
                 std::int64_t first, std::int64_t steps, bool timed) mutable -> Result<Block> {
    EXPECT_EQ(first, next) << "steps go on without gaps";
    next += steps;
    Block block;
    for (std::int64_t i = 0; i < steps; ++i) {
      block.step_ns.push_back(machine.step(base_ns));
      block.losses.push_back(1.0 / static_cast<double>(first + i) + loss_error);
      for (std::size_t k = 0; timed && k < count; ++k) {
        block.samples.push_back(
            {static_cast<std::int32_t>(k), 0, 0, machine.step(base_ns / static_cast<double>(count))});
      }
    }
    return block;
  };
  return side;
}

Comparison run_fake(std::uint64_t seed, double a_ns, double b_ns, double drift_per_step = 0,
                    double loss_error = 0) {
  FakeMachine machine(seed);
  machine.drift_per_step = drift_per_step;
  const TinyStep plain = tiny_step(false), fused = tiny_step(true);
  Resident a = fake(machine, "plain", a_ns, plain), b = fake(machine, "fused", b_ns, fused, loss_error);
  CompareOptions options;
  options.max_seconds =
      60;  // never reached: the fake clock decides, so the result does not depend on this machine
  auto result = compare_interleaved(a, b, options);
  EXPECT_TRUE(result.ok()) << error_of(result);
  return *result;
}

TEST(CompareInterleaved, SeesADifference) {
  const Comparison c = run_fake(1, 13e6, 10e6);
  EXPECT_EQ(c.verdict, Verdict::faster);
  EXPECT_NEAR(c.ratio.value, 1.3, 0.05);
  EXPECT_LT(c.ratio.low, 1.3);
  EXPECT_GT(c.ratio.high, 1.3 * 0.98);
  EXPECT_EQ(c.first_different_step, 0);
  EXPECT_EQ(c.max_loss_difference, 0);
  EXPECT_GE(c.groups, 12);
  EXPECT_EQ(run_fake(2, 10e6, 13e6).verdict, Verdict::slower);
}

TEST(CompareInterleaved, DriftCancels) {
  // The machine gets 60 % slower while both run; one after the other would show B far slower.
  const Comparison c = run_fake(3, 10e6, 10e6, 2e-4);
  EXPECT_NE(c.verdict, Verdict::faster);
  EXPECT_NE(c.verdict, Verdict::slower);
  EXPECT_NEAR(c.ratio.value, 1, 0.02);
}

TEST(CompareInterleaved, EqualSidesAreRarelyCalledDifferent) {
  constexpr int kPairs = 100;
  int wrong = 0, same = 0;
  for (int i = 0; i < kPairs; ++i) {
    const Verdict verdict = run_fake(1000 + static_cast<std::uint64_t>(i), 10e6, 10e6).verdict;
    wrong += verdict == Verdict::faster || verdict == Verdict::slower;
    same += verdict == Verdict::same;
  }
  std::printf("A/A: %d of %d called different, %d SAME\n", wrong, kPairs, same);
  EXPECT_LE(wrong, 1);
  EXPECT_GE(same, kPairs / 2);
}

TEST(CompareInterleaved, TablesMatchByProvenance) {
  const Comparison c = run_fake(4, 13e6, 10e6);
  ASSERT_EQ(c.kernels.size(), 3u + 1u)
      << "the forward nodes are one row, as B fuses them; two backward rows; the optimizer";
  const auto row = [&](const std::vector<ComparedRow>& rows, const std::string& name,
                       const std::string& phase) {
    for (const ComparedRow& r : rows) {
      if (r.name == name && r.phase == phase) return r;
    }
    ADD_FAILURE() << "no row " << name;
    return ComparedRow{};
  };
  const ComparedRow fused = row(c.kernels, "/fc/MatMul + /act/Relu", "forward");
  EXPECT_EQ(fused.a_kernels, 2);
  EXPECT_EQ(fused.b_kernels, 1);
  EXPECT_GT(fused.a_ns, fused.b_ns);
  EXPECT_LT(fused.p, 0.05) << "two kernels of 2.6 ms against one of 2.5 ms, 16 steps each";
  EXPECT_EQ(row(c.kernels, "(optimizer)", "optimizer").b_kernels, 1);
  EXPECT_EQ(row(c.phases, "backward", "backward").a_kernels, 2);
  double total = 0;
  for (const ComparedRow& r : c.scopes) total += r.a_ns;
  EXPECT_NEAR(total, 13e6, 2e6);
}

TEST(CompareInterleaved, LossDifferencesAreReported) {
  const Comparison c = run_fake(5, 10e6, 10e6, 0, 1e-3);
  EXPECT_EQ(c.first_different_step, 1);
  EXPECT_NEAR(c.max_loss_difference, 1e-3, 1e-12);
  EXPECT_GT(c.max_relative_loss_difference, 1e-3);
  const Comparison nan = run_fake(5, 10e6, 10e6, 0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(nan.max_loss_difference));
  EXPECT_EQ(nan.first_different_step, 1);
}

TEST(CompareInterleaved, StopsAndPassesErrorsOn) {
  FakeMachine machine(1);
  const TinyStep t = tiny_step(false);
  Resident a = fake(machine, "a", 1e6, t), b = fake(machine, "b", 1e6, t);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(compare_interleaved(a, b, {}, stop.get_token()).error().code, Errc::interrupted);
  Resident broken;
  broken.name = "broken";
  broken.run = [](std::int64_t, std::int64_t, bool) -> Result<Block> {
    return Error{Errc::numeric, "loss is NaN"};
  };
  Resident fine = fake(machine, "fine", 1e6, t);
  EXPECT_EQ(compare_interleaved(fine, broken, {}).error().code, Errc::numeric);
}

// A GPU's blocks bring activities: they become rows per stream, tested like kernels.
TEST(CompareInterleaved, StreamsAreARowEach) {
  FakeMachine machine(3);
  const TinyStep t = tiny_step(false);
  Resident sides[2] = {fake(machine, "a", 1e7, t), fake(machine, "b", 1e7, t)};
  for (int i = 0; i < 2; ++i) {
    sides[i].run = [&machine, i, inner = sides[i].run](std::int64_t first, std::int64_t steps,
                                                       bool timed) -> Result<Block> {
      Block block = TRY(inner(first, steps, timed));
      for (std::int64_t s = 0; timed && s < steps; ++s) {
        using Kind = Activity::Kind;
        block.activities.push_back({{Kind::api, 0, 0, 0, machine.step(i == 0 ? 1e4 : 1e6), 0, "launch", 0},
                                    {Kind::copy, -1, 1, 0, machine.step(1e5), 64, "copy", 0},
                                    {Kind::copy, -1, 1, 0, machine.step(1e5), 64, "copy", 0}});
      }
      return block;
    };
  }
  CompareOptions options;
  options.max_seconds = 60;
  const auto c = compare_interleaved(sides[0], sides[1], options);
  ASSERT_TRUE(c.ok()) << error_of(c);
  std::map<std::string, ComparedRow> rows;
  for (const ComparedRow& row : c->streams) rows[row.name] = row;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.at("kernel, stream 0 (compute)").a_kernels, static_cast<std::int64_t>(t.plan.steps.size()));
  EXPECT_EQ(rows.at("copy, stream 1 (upload)").b_kernels, 2);
  EXPECT_NEAR(rows.at("copy, stream 1 (upload)").a_ns, 2e5, 5e4);
  EXPECT_GT(rows.at("copy, stream 1 (upload)").p, 0.01);
  EXPECT_EQ(rows.at("CPU launches").a_kernels, 1);
  EXPECT_LT(rows.at("CPU launches").p, 0.01);
  EXPECT_EQ(c->streams[0].name, "CPU launches") << "the largest difference first";
}

TEST(CompareJson, RoundTrips) {
  Comparison c = run_fake(6, 12e6, 10e6);
  c.note = "odd \"note\" \xff";
  c.max_loss_difference = std::numeric_limits<double>::quiet_NaN();
  const std::string text = comparison_json(c);
  const auto back = parse_comparison(text);
  ASSERT_TRUE(back.ok()) << error_of(back);
  EXPECT_EQ(comparison_json(*back), text);
  EXPECT_EQ(back->verdict, c.verdict);
  EXPECT_EQ(back->kernels.size(), c.kernels.size());
  EXPECT_TRUE(std::isnan(back->max_loss_difference));
  EXPECT_FALSE(parse_comparison("[]").ok());
  EXPECT_FALSE(parse_comparison("{").ok());
  EXPECT_NE(comparison_text(c).find(verdict_name(c.verdict)), std::string::npos);
}

TEST(CompareJson, RowsNameAllTheirNodes) {
  const Comparison c = run_fake(6, 12e6, 10e6);
  ASSERT_FALSE(c.kernels.empty());
  for (const ComparedRow& row : c.kernels) EXPECT_FALSE(row.nodes.empty()) << row.name;
  for (const ComparedRow& row : c.scopes) EXPECT_FALSE(row.nodes.empty()) << row.name;
  for (const ComparedRow& row : c.phases) EXPECT_TRUE(row.nodes.empty()) << row.name << " is its name";
  const auto back = parse_comparison(comparison_json(c));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kernels[0].nodes, c.kernels[0].nodes);
  // Stored before rows named their nodes: what the label has room for.
  const auto old = parse_comparison(
      R"json({"kernels": [{"name": "a/x + b/y + c + 2 more", "phase": "forward"}, {"name": "(optimizer)"}]})json");
  ASSERT_TRUE(old.ok()) << error_of(old);
  EXPECT_EQ(old->kernels[0].nodes, (std::vector<std::string>{"a/x", "b/y", "c"}));
  EXPECT_TRUE(old->kernels[1].nodes.empty());
}

using CompareRuns = SessionTest;

TEST_F(CompareRuns, StoredRuns) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  const std::int64_t a = write_tiny_run(**store, "plain", 60), b = write_tiny_run(**store, "fused", 60, true),
                     few = write_tiny_run(**store, "few", 5);
  const auto run_a = (*store)->load_run(a), run_b = (*store)->load_run(b), run_few = (*store)->load_run(few);
  ASSERT_TRUE(run_a.ok() && run_b.ok() && run_few.ok());
  const auto c = compare_runs(*run_a, *run_b);
  ASSERT_TRUE(c.ok()) << error_of(c);
  EXPECT_EQ(c->verdict, Verdict::same) << "the same step times";
  EXPECT_FALSE(c->interleaved);
  EXPECT_NE(c->note.find("one after the other"), std::string::npos);
  EXPECT_EQ(c->a, "plain");
  EXPECT_EQ(c->first_different_step, 0);
  EXPECT_EQ(c->kernels.size(), 4u);
  EXPECT_EQ(compare_runs(*run_a, *run_few)->verdict, Verdict::unsure);
  EXPECT_TRUE(c->streams.empty()) << "runs of the CPU";
}

// Steps `first` to `last` of a training: every third one timed, the first three of the run slow.
std::int64_t write_part(Store& store, std::int64_t first, std::int64_t last, bool timed = true) {
  const TinyStep t = tiny_step(false);
  auto run = store.begin_run(tiny_start());
  EXPECT_TRUE(run.ok() && (*run)->write_plan(t.graph, t.plan, t.reports).ok());
  for (std::int64_t i = first; i <= last; ++i) {
    const std::int64_t slow = i < first + 3 ? 9 : 1;
    const StepRow row{i, 5.0 / static_cast<double>(i), 10'000 * slow, 0.1, 1.5, timed && i % 3 == 2};
    EXPECT_TRUE((*run)
                    ->add_step(row, row.timed ? tiny_samples(t, i, 1000 * slow) : std::vector<KernelSample>{})
                    .ok());
  }
  EXPECT_TRUE((*run)->finish({}).ok());
  return (*run)->id();
}

// A training that went on from a checkpoint: its steps count on, and its first ones are slow, too.
TEST_F(CompareRuns, OfATrainingThatWentOn) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  const auto whole = (*store)->load_run(write_part(**store, 1, 60)),
             rest = (*store)->load_run(write_part(**store, 41, 46)),
             begin = (*store)->load_run(write_part(**store, 1, 20));
  ASSERT_TRUE(whole.ok() && rest.ok() && begin.ok());
  EXPECT_EQ(rest->summary.steps_before, 40);
  EXPECT_EQ(rest->summary.median_step_ns, 10'000) << "of steps 45 and 46";
  EXPECT_EQ(rest->kernels[0].steps, 1) << "step 44";
  EXPECT_EQ(rest->kernels[0].step_ns, 1000);
  const auto c = compare_runs(*whole, *rest);
  ASSERT_TRUE(c.ok()) << error_of(c);
  EXPECT_EQ(c->steps, 6) << "41 to 46";
  EXPECT_EQ(c->first_different_step, 0);
  EXPECT_EQ(c->max_loss_difference, 0);
  EXPECT_EQ(c->ratio.value, 1);
  const auto none = compare_runs(*begin, *rest);
  ASSERT_TRUE(none.ok()) << error_of(none);
  EXPECT_FALSE(none->has_losses());
  EXPECT_NE(comparison_text(*none).find("no step has one in both"), std::string::npos);
}

TEST_F(CompareRuns, KernelsThatWereNotTimedAreNotGone) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  const auto timed = (*store)->load_run(write_part(**store, 1, 40)),
             untimed = (*store)->load_run(write_part(**store, 1, 40, false));
  ASSERT_TRUE(timed.ok() && untimed.ok());
  const auto c = compare_runs(*timed, *untimed);
  ASSERT_TRUE(c.ok()) << error_of(c);
  EXPECT_NE(c->note.find("was not timed kernel by kernel"), std::string::npos) << c->note;
  ASSERT_FALSE(c->kernels.empty());
  for (const ComparedRow& row : c->kernels) EXPECT_FALSE(row.measured()) << row.name;
  EXPECT_EQ(comparison_text(*c).find("0.00 ns"), std::string::npos) << comparison_text(*c);
  const auto same = compare_runs(*timed, *timed);
  ASSERT_TRUE(same.ok()) << error_of(same);
  for (const ComparedRow& row : same->kernels) EXPECT_TRUE(row.measured()) << row.name;
}

TEST_F(CompareRuns, GpuRunsShowStreamsAndWhatDisturbedThem) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  const auto run = [&](const std::string& name, const std::map<std::string, std::string>& gpu) {
    return *(*store)->load_run(write_tiny_run(**store, name, 60, false, gpu));
  };
  const RunRecord quiet = run("quiet", {{"gpu.throttle", "none"}, {"gpu.other_processes", "0"}}),
                  unknown = run("unknown",
                                {{"gpu.throttle", "not measured"}, {"gpu.other_processes", "not measured"}}),
                  busy = run("busy", {{"gpu.throttle", "power cap, thermal"}, {"gpu.other_processes", "2"}}),
                  cpu = run("cpu", {});
  const auto c = compare_runs(quiet, unknown);
  ASSERT_TRUE(c.ok()) << error_of(c);
  EXPECT_EQ(c->note.find("GPU"), std::string::npos) << c->note;
  ASSERT_EQ(c->streams.size(), 4u);
  std::map<std::string, ComparedRow> rows;
  for (const ComparedRow& row : c->streams) rows[row.name] = row;
  EXPECT_EQ(rows.at("CPU launches").a_kernels, 2);
  EXPECT_EQ(rows.at("CPU launches").a_ns, 600);
  EXPECT_EQ(rows.at("kernel, stream 0 (compute)").b_kernels, 5);
  EXPECT_EQ(rows.at("kernel, stream 0 (compute)").b_ns, 5010);
  EXPECT_EQ(rows.at("copy, stream 1 (upload)").a_ns, 1500);
  EXPECT_EQ(parse_comparison(comparison_json(*c))->streams.size(), 4u);
  EXPECT_NE(comparison_text(*c).find("copy, stream 1 (upload)"), std::string::npos);

  const std::string note = compare_runs(cpu, busy)->note;
  EXPECT_NE(
      note.find(
          "; busy: the GPU's clocks were held down (power cap, thermal), 2 other processes ran on the GPU"),
      std::string::npos)
      << note;
  EXPECT_EQ(compare_runs(cpu, busy)->streams[0].a_kernels, 0);
}

}  // namespace
}  // namespace gradloom::test
