// gradloom_job_*: trainings in another program are those of the command.
#include "app/embed/gradloom.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

using Words = std::vector<std::string>;

class JobApi : public Commands {
 protected:
  struct Heard {
    std::vector<std::pair<int, std::string>> lines;
    std::int64_t stop_after = -1;
    std::vector<double> losses;
  };
  static void on_log(void* user, int level, const char* line) {
    static_cast<Heard*>(user)->lines.emplace_back(level, line);
  }
  static int on_progress(void* user, std::int64_t step, std::int64_t steps, double loss) {
    Heard& heard = *static_cast<Heard*>(user);
    heard.losses.push_back(loss);
    EXPECT_EQ(step, static_cast<std::int64_t>(heard.losses.size()));
    EXPECT_LE(step, steps);
    return step == heard.stop_after ? 1 : 0;
  }

  static int open(const Words& words, gradloom_job** job, Heard* heard = nullptr, bool json = false) {
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    gradloom_callbacks callbacks{sizeof callbacks, heard, on_log, json ? 1 : 0, on_progress};
    return gradloom_job_open(static_cast<int>(words.size()), pointers.data(),
                             heard == nullptr ? nullptr : &callbacks, job);
  }
  gradloom_job* opened(const Words& words) {
    gradloom_job* job = nullptr;
    EXPECT_EQ(open(words, &job), GRADLOOM_OK) << gradloom_last_error();
    return job;
  }
  // What the command's fixture trains.
  Words mlp(const Words& more, const std::string& optimizer = "adam{lr=1e-3}") const {
    Words words{model("mlp") + "/model.onnx", "--dim",       "batch=8", "--loss",
                "ce:logits,labels",           "--optimizer", optimizer};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words with_data(const Words& more, const std::string& optimizer = "adam{lr=1e-3}") const {
    Words words = mlp({"--data", "npz:" + model("mlp") + "/batches.npz"}, optimizer);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::vector<double> losses_of(gradloom_job* job, int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      double loss = 0;
      EXPECT_EQ(gradloom_job_step(job, &loss), GRADLOOM_OK) << gradloom_last_error();
      losses.push_back(loss);
    }
    return losses;
  }
  std::vector<double> command_losses(const Words& more) const {
    const Outcome o = run(train_mlp(more));
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<double> losses;
    for (const json& line : o.lines())
      if (line.contains("step") && line.contains("loss")) losses.push_back(line["loss"]);
    return losses;
  }
  static std::vector<gradloom_value> values(const gradloom_job* job, int kind) {
    int count = 0;
    EXPECT_EQ(gradloom_job_count(job, kind, &count), GRADLOOM_OK);
    std::vector<gradloom_value> all(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
      EXPECT_EQ(gradloom_job_value(job, kind, i, &all[static_cast<std::size_t>(i)]), GRADLOOM_OK);
    return all;
  }
};

TEST_F(JobApi, LossesAreThoseOfTheCommand) {
  const std::vector<double> want = command_losses({"--steps", "6"});
  ASSERT_EQ(want.size(), 6u);
  gradloom_job* const job = opened(with_data({"--steps", "6"}));
  EXPECT_EQ(losses_of(job, 6), want);
  std::int64_t made = 0, all = 0;
  EXPECT_EQ(gradloom_job_steps(job, &made, &all), GRADLOOM_OK);
  EXPECT_EQ(made, 6);
  EXPECT_EQ(all, 6);
  EXPECT_EQ(gradloom_job_step(job, nullptr), GRADLOOM_USAGE);
  EXPECT_NE(std::string(gradloom_last_error()).find("all 6 steps are made"), std::string::npos);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
}

// An array in the .npy format.
template <class T>
void write_npy(const std::string& path, const char* type, const std::vector<std::size_t>& shape,
               const std::vector<T>& data) {
  std::string dims;
  for (const std::size_t d : shape) dims += std::to_string(d) + ",";
  std::string header =
      std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (" + dims + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  const auto size = static_cast<std::uint16_t>(header.size());
  out.write(reinterpret_cast<const char*>(&size), 2);
  out << header;
  out.write(reinterpret_cast<const char*>(data.data()),
            static_cast<std::streamsize>(data.size() * sizeof(T)));
}

// The caller's own batches, two for each step, against the same ones in files.
TEST_F(JobApi, CallersBatchesAreReadAsThoseOfFiles) {
  constexpr std::size_t kBatches = 8, kSamples = 8, kFeatures = 64;
  std::vector<float> x(kBatches * kSamples * kFeatures);
  std::vector<std::int64_t> labels(kBatches * kSamples);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919 % 1000)) / 500 - 1;
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i * 31 % 10);
  write_npy(path("x.npy"), "<f4", {kBatches, kSamples, kFeatures}, x);
  write_npy(path("labels.npy"), "<i8", {kBatches, kSamples}, labels);
  const Words more{"--accumulate", "2", "--steps", "4"};
  Words from_files = mlp({"--data", "npy:x=" + path("x.npy") + ",labels=" + path("labels.npy")});
  from_files.insert(from_files.end(), more.begin(), more.end());
  gradloom_job* const files = opened(from_files);
  const std::vector<double> want = losses_of(files, 4);
  EXPECT_EQ(gradloom_job_close(files), GRADLOOM_OK);

  Words callers = mlp({"--data", "caller"});
  callers.insert(callers.end(), more.begin(), more.end());
  gradloom_job* const job = opened(callers);
  EXPECT_EQ(gradloom_job_step(job, nullptr), GRADLOOM_USAGE);
  const std::vector<gradloom_value> inputs = values(job, GRADLOOM_INPUT);
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_STREQ(inputs[0].name, "x");
  EXPECT_EQ(inputs[1].dtype, GRADLOOM_I64);
  for (std::size_t step = 0; step < 4; ++step) {
    const auto batch = [&](std::size_t k) { return (2 * step + k) % kBatches; };
    std::vector<float> own(x);  // read during the call alone
    const void* pointers[] = {
        own.data() + batch(0) * kSamples * kFeatures, labels.data() + batch(0) * kSamples,
        own.data() + batch(1) * kSamples * kFeatures, labels.data() + batch(1) * kSamples};
    double loss = 0;
    ASSERT_EQ(gradloom_job_step_on(job, 4, pointers, &loss), GRADLOOM_OK) << gradloom_last_error();
    EXPECT_EQ(loss, want[step]);
  }
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
}

TEST_F(JobApi, WrongBatchesChangeNothing) {
  gradloom_job* const job = opened(mlp({"--data", "caller", "--steps", "3"}));
  std::vector<float> x(8 * 64, 0.5f);
  std::vector<std::int64_t> labels(8, 3), wrong(8, 10);
  const void* three[] = {x.data(), labels.data(), x.data()};
  EXPECT_EQ(gradloom_job_step_on(job, 3, three, nullptr), GRADLOOM_USAGE);
  const void* none[] = {x.data(), nullptr};
  EXPECT_EQ(gradloom_job_step_on(job, 2, none, nullptr), GRADLOOM_USAGE);
  const void* outside[] = {x.data(), wrong.data()};
  EXPECT_EQ(gradloom_job_step_on(job, 2, outside, nullptr), GRADLOOM_BAD_INPUT);
  EXPECT_NE(std::string(gradloom_last_error()).find("label 10"), std::string::npos) << gradloom_last_error();
  const void* right[] = {x.data(), labels.data()};
  double loss = 0;
  EXPECT_EQ(gradloom_job_step_on(job, 2, right, &loss), GRADLOOM_OK) << gradloom_last_error();
  gradloom_job* const fresh = opened(mlp({"--data", "caller", "--steps", "3"}));
  double first = 0;
  EXPECT_EQ(gradloom_job_step_on(fresh, 2, right, &first), GRADLOOM_OK);
  EXPECT_EQ(loss, first);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  EXPECT_EQ(gradloom_job_close(fresh), GRADLOOM_OK);
}

// All that one job has, written into another, which then goes on as the first does.
TEST_F(JobApi, ContentsGoFromOneJobToAnother) {
  const std::string optimizer = "sgd{lr=0.05,momentum=0.9}";
  const auto constant_batch = [&](gradloom_job* job) {
    std::vector<float> x(8 * 64);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 17;
    std::vector<std::int64_t> labels{0, 1, 2, 3, 4, 5, 6, 7};
    const void* pointers[] = {x.data(), labels.data()};
    double loss = 0;
    EXPECT_EQ(gradloom_job_step_on(job, 2, pointers, &loss), GRADLOOM_OK) << gradloom_last_error();
    return loss;
  };
  gradloom_job* const one = opened(mlp({"--data", "caller", "--steps", "9"}, optimizer));
  gradloom_job* const other = opened(mlp({"--data", "caller", "--steps", "9"}, optimizer));
  for (int i = 0; i < 3; ++i) constant_batch(one);
  EXPECT_FALSE(values(one, GRADLOOM_STATE).empty());
  for (const int kind : {GRADLOOM_PARAMETER, GRADLOOM_STATISTIC, GRADLOOM_STATE})
    for (const gradloom_value& v : values(one, kind)) {
      std::vector<char> contents(static_cast<std::size_t>(v.bytes));
      EXPECT_EQ(gradloom_job_read(one, v.name, contents.data(), contents.size()), GRADLOOM_OK);
      EXPECT_EQ(gradloom_job_write(other, v.name, contents.data(), contents.size()), GRADLOOM_OK);
    }
  EXPECT_EQ(constant_batch(one), constant_batch(other));
  char little = 0;
  EXPECT_EQ(gradloom_job_read(one, "no.such", &little, 1), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_read(one, values(one, GRADLOOM_PARAMETER)[0].name, &little, 1), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_close(one), GRADLOOM_OK);
  EXPECT_EQ(gradloom_job_close(other), GRADLOOM_OK);
}

int sizes_of(gradloom_job* job, const Words& words, int* sizes) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return gradloom_job_sizes(job, static_cast<int>(words.size()), pointers.data(), sizes);
}

void copy_contents(const gradloom_job* from, gradloom_job* to, const std::vector<gradloom_value>& values) {
  for (const gradloom_value& v : values) {
    std::vector<char> contents(static_cast<std::size_t>(v.bytes));
    ASSERT_EQ(gradloom_job_read(from, v.name, contents.data(), contents.size()), GRADLOOM_OK);
    ASSERT_EQ(gradloom_job_write(to, v.name, contents.data(), contents.size()), GRADLOOM_OK);
  }
}
std::vector<char> contents_of(const gradloom_job* job, const gradloom_value& v) {
  std::vector<char> contents(static_cast<std::size_t>(v.bytes));
  EXPECT_EQ(gradloom_job_read(job, v.name, contents.data(), contents.size()), GRADLOOM_OK);
  return contents;
}

// A job on batches of 8 and 5 in turn, and two jobs of one size each between which all contents go to and fro. (Each
// makes its first step before, in which states begin.)
TEST_F(JobApi, BatchesOfOtherSizesAndOtherPrecisionsTrainTheSame) {
  std::vector<float> x(8 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 17;
  const std::vector<std::int64_t> labels{0, 1, 2, 3, 4, 5, 6, 7};
  const void* pointers[] = {x.data(), labels.data()};
  const Words sizes_of_five{"--dim", "batch=5"}, bf16{"--precision", "bf16"}, f32{"--precision", "f32"};
  const std::pair<Words, Words> cases[] = {{{}, sizes_of_five},
                                           {bf16, sizes_of_five},
                                           {{"--clip-norm", "0.1"}, sizes_of_five},
                                           {{}, bf16},
                                           {bf16, f32},
                                           {bf16, {"--precision", "bf16", "--dim", "batch=5"}},
                                           {bf16, {"--precision", "f32", "--dim", "batch=5"}}};
  for (const auto& [more, other] : cases) {
    const auto with = [&](Words words) {
      gradloom_job* const job = opened(mlp(words, "sgd{lr=0.05,momentum=0.9}"));
      EXPECT_EQ(gradloom_job_step_on(job, 2, pointers, nullptr), GRADLOOM_OK) << gradloom_last_error();
      return job;
    };
    Words own{"--data", "caller", "--steps", "9"};
    own.insert(own.end(), more.begin(), more.end());
    Words apart = own;
    apart.insert(apart.end(), other.begin(), other.end());
    gradloom_job *const sized = with(own), *const eight = with(own), *const five = with(apart);
    std::vector<gradloom_value> all = values(sized, GRADLOOM_PARAMETER);
    for (const gradloom_value& v : values(sized, GRADLOOM_STATE)) all.push_back(v);
    copy_contents(eight, five, all);
    int sizes = 0;
    ASSERT_EQ(sizes_of(sized, other, &sizes), GRADLOOM_OK) << gradloom_last_error();
    for (const int of : {0, sizes, sizes, 0, 0, sizes}) {
      double loss = 0, want = 0;
      ASSERT_EQ(gradloom_job_step_sized(sized, of, 2, pointers, &loss), GRADLOOM_OK) << gradloom_last_error();
      gradloom_job *const from = of == 0 ? eight : five, *const to = of == 0 ? five : eight;
      ASSERT_EQ(gradloom_job_step_on(from, 2, pointers, &want), GRADLOOM_OK) << gradloom_last_error();
      EXPECT_EQ(loss, want);
      for (const gradloom_value& v : all) EXPECT_EQ(contents_of(sized, v), contents_of(from, v)) << v.name;
      copy_contents(from, to, all);
    }
    for (gradloom_job* const job : {sized, eight, five}) EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  }
}

TEST_F(JobApi, SizesThatCannotBe) {
  gradloom_job* const job = opened(mlp({"--data", "caller", "--steps", "3"}));
  int sizes = 0;
  EXPECT_EQ(sizes_of(job, {"--dim", "batch=0"}, &sizes), GRADLOOM_USAGE);
  EXPECT_EQ(sizes_of(job, {"--steps", "5"}, &sizes), GRADLOOM_USAGE);
  EXPECT_EQ(sizes_of(job, {model("cnn-digits") + "/model.onnx", "--dim", "batch=8"}, &sizes), GRADLOOM_USAGE);
  EXPECT_EQ(sizes_of(job, {path("none.onnx")}, &sizes), GRADLOOM_IO) << gradloom_last_error();
  EXPECT_EQ(gradloom_job_step_sized(job, 1, 0, nullptr, nullptr), GRADLOOM_USAGE);
  ASSERT_EQ(sizes_of(job, {"--dim", "batch=2"}, &sizes), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_EQ(sizes, 1);
  std::vector<float> x(2 * 64, 0.5f);
  const std::vector<std::int64_t> labels(2, 3);
  const void* pointers[] = {x.data(), labels.data()};
  EXPECT_EQ(gradloom_job_step_sized(job, 1, 2, pointers, nullptr), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_EQ(gradloom_job_forget_sizes(job, 1), GRADLOOM_OK);
  EXPECT_EQ(gradloom_job_forget_sizes(job, 1), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_step_sized(job, 1, 2, pointers, nullptr), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
}

TEST_F(JobApi, ACheckpointGoesOn) {
  const std::vector<double> want = command_losses({"--steps", "7"});
  gradloom_job* const job = opened(with_data({"--steps", "7", "--checkpoint", path("kept")}));
  losses_of(job, 4);
  ASSERT_EQ(gradloom_job_checkpoint(job), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_TRUE(fs::exists(path("kept/step-00000004")));
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  gradloom_job* const next = opened({"--resume", path("kept")});
  EXPECT_EQ(losses_of(next, 3), std::vector<double>(want.begin() + 4, want.end()));
  EXPECT_EQ(gradloom_job_checkpoint(next), GRADLOOM_USAGE);  // no folder was named
  EXPECT_EQ(gradloom_job_close(next), GRADLOOM_OK);
}

// A queue that works ahead would have the states of the step after it.
TEST_F(JobApi, StatesAreThoseOfTheLastStepOnEveryDevice) {
  for (const char* device : {"cpu", "host-gpu"}) {
    SCOPED_TRACE(device);
    const auto parameters_of = [&](const Words& args) {
      fs::remove(path("p.npz"));
      const Outcome o = run(args);
      EXPECT_EQ(o.code, 0) << o.err;
      return read_file(path("p.npz"));
    };
    const Words saved{"--device", device, "--save-params", path("p.npz"), "--steps"};
    const auto after = [&](const char* steps) {
      Words more = saved;
      more.emplace_back(steps);
      return parameters_of(train_mlp(more));
    };
    const std::string third = after("3"), sixth = after("6");
    fs::remove_all(path("kept"));
    gradloom_job* const job = opened(with_data({"--steps", "6", "--device", device, "--checkpoint",
                                                path("kept"), "--save-params", path("closed.npz")}));
    losses_of(job, 3);
    for (int twice = 0; twice < 2; ++twice)
      ASSERT_EQ(gradloom_job_checkpoint(job), GRADLOOM_OK) << gradloom_last_error();
    EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
    EXPECT_TRUE(read_file(path("closed.npz")) == third);
    EXPECT_TRUE(parameters_of({"train", "--resume", path("kept/step-00000003"), "--steps", "6",
                               "--save-params", path("p.npz")}) == sixth);
  }
}

// Each closes before the evaluation that its last step would have had.
TEST_F(JobApi, TheNextRunMakesTheEvaluationThatAStopLeftOut) {
  const Words evaluated{"--steps", "4",           "--eval-every",
                        "1",       "--eval-data", "npz:" + model("mlp") + "/batches.npz"};
  std::vector<json> want, got;
  const auto keep = [](const json& line, std::vector<json>& in) {
    if (line.contains("eval")) in.push_back({line["eval"]["step"], line["eval"]["loss"]});
  };
  for (const json& line : run(train_mlp(evaluated)).lines()) keep(line, want);
  ASSERT_EQ(want.size(), 4u);
  for (int session = 0; session < 4; ++session) {
    Heard heard;
    gradloom_job* job = nullptr;
    Words words = session == 0 ? with_data(evaluated) : Words{"--resume", path("kept")};
    words.insert(words.end(), {"--checkpoint", path("kept")});
    ASSERT_EQ(open(words, &job, &heard, true), GRADLOOM_OK) << gradloom_last_error();
    losses_of(job, 1);
    EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
    for (const auto& [level, line] : heard.lines)
      if (level == GRADLOOM_LOG_JSON) keep(json::parse(line), got);
  }
  EXPECT_EQ(got, want);
}

// The batches between are not there any more.
TEST_F(JobApi, CallersBatchesThatAreNotFiniteLeaveFiniteParameters) {
  const Outcome still =
      run(train_mlp({"--optimizer", "sgd{lr=0}", "--steps", "1", "--save-params", path("first.npz")}));
  ASSERT_EQ(still.code, 0) << still.err;
  gradloom_job* const job = opened(mlp({"--data", "caller", "--steps", "9", "--save-params", path("p.npz")}));
  std::vector<float> x(std::size_t{8} * 64, 0.5F);
  const std::vector<std::int64_t> labels(8, 1);
  const void* const pointers[] = {x.data(), labels.data()};
  for (int step = 0; step < 3; ++step)
    ASSERT_EQ(gradloom_job_step_on(job, 2, pointers, nullptr), GRADLOOM_OK) << gradloom_last_error();
  x[0] = std::nanf("");
  EXPECT_EQ(gradloom_job_step_on(job, 2, pointers, nullptr), GRADLOOM_NUMERIC);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_NUMERIC);
  EXPECT_TRUE(read_file(path("p.npz")) == read_file(path("first.npz"))) << "those of the copy";
}

TEST_F(JobApi, TheSessionHasTheRun) {
  Heard heard;
  gradloom_job* job = nullptr;
  ASSERT_EQ(open(with_data({"--steps", "5", "--session", path("s.db"), "--save-params", path("p.npz")}), &job,
                 &heard, true),
            GRADLOOM_OK)
      << gradloom_last_error();
  ASSERT_EQ(gradloom_job_run(job), GRADLOOM_OK) << gradloom_last_error();
  ASSERT_EQ(gradloom_job_close(job), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_EQ(heard.losses, command_losses({"--steps", "5"}));
  EXPECT_TRUE(fs::exists(path("p.npz")));
  std::size_t steps = 0;
  bool summary = false;
  for (const auto& [level, line] : heard.lines) {
    if (level != GRADLOOM_LOG_JSON) continue;
    const json object = json::parse(line);
    if (object.contains("step")) ++steps;
    summary = summary || object.contains("summary");
  }
  EXPECT_EQ(steps, 5u);
  EXPECT_TRUE(summary);
  const Outcome runs = run({"runs", path("s.db"), "--json"});
  EXPECT_EQ(runs.code, 0) << runs.err;
  EXPECT_NE(runs.out.find("\"done\""), std::string::npos) << runs.out;
}

TEST_F(JobApi, ProgressEndsARun) {
  Heard heard;
  heard.stop_after = 2;
  gradloom_job* job = nullptr;
  ASSERT_EQ(open(with_data({"--steps", "9"}), &job, &heard), GRADLOOM_OK);
  EXPECT_EQ(gradloom_job_run(job), GRADLOOM_INTERRUPTED);
  EXPECT_EQ(heard.losses.size(), 2u);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_INTERRUPTED);
}

// A rate that the caller sets is that of a recipe that says so.
TEST_F(JobApi, TheCallerMaySetTheRate) {
  gradloom_job* const other = opened(with_data({"--steps", "3"}, "sgd{lr=0.3}"));
  const std::vector<double> want = losses_of(other, 3);
  EXPECT_EQ(gradloom_job_close(other), GRADLOOM_OK);
  gradloom_job* const job = opened(with_data({"--steps", "3"}, "sgd{lr=0.01}"));
  EXPECT_EQ(gradloom_job_set_learning_rate(job, 0.3), GRADLOOM_OK);
  EXPECT_EQ(losses_of(job, 3), want);
  EXPECT_EQ(gradloom_job_set_learning_rate(job, std::nan("")), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
}

// Options of numbered groups that the caller sets are those of a recipe that says so; a rate may begin at 0.
TEST_F(JobApi, TheCallerMaySetOptionsOfGroups) {
  const Words numbers{"--steps", "4", "--group", "*{number=0}", "--group", "*bias{number=1}"};
  const std::string said = "adam{lr=0.01,beta1=0.7,beta2=0.95,weight_decay=0.1,eps=1e-3}";
  gradloom_job* const other =
      opened(with_data({"--steps", "4", "--group", "*bias{lr=0.02,weight_decay=0}"}, said));
  const std::vector<double> want = losses_of(other, 4);
  EXPECT_EQ(gradloom_job_close(other), GRADLOOM_OK);
  gradloom_job* const job = opened(with_data(numbers, "adam{lr=0}"));
  const std::tuple<int, const char*, double> options[] = {
      {0, "lr", 0.01},    {1, "lr", 0.02},    {0, "beta1", 0.7},        {1, "beta1", 0.7},
      {0, "beta2", 0.95}, {1, "beta2", 0.95}, {0, "weight_decay", 0.1}, {1, "weight_decay", 0},
      {0, "eps", 1e-3},   {1, "eps", 1e-3}};
  for (const auto& [group, name, value] : options)
    EXPECT_EQ(gradloom_job_set_option(job, group, name, value), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_EQ(losses_of(job, 4), want);
  const std::tuple<int, const char*, double, std::string> refused[] = {
      {2, "lr", 0.1, "there is no group 2: the recipe numbers 2"},
      {0, "lr", -1, "no learning rate: -1"},
      {0, "maximize", 1, "optimizer adam has no option 'maximize' that may change"},
      {0, "momentum", 0.1, "optimizer adam has no option 'momentum' that may change"},
      {0, "beta1", 1.5, "optimizer adam: no beta1: 1.5"}};
  for (const auto& [group, name, value, why] : refused) {
    EXPECT_EQ(gradloom_job_set_option(job, group, name, value), GRADLOOM_USAGE) << name;
    EXPECT_NE(std::string(gradloom_last_error()).find(why), std::string::npos) << gradloom_last_error();
  }
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  gradloom_job* const bare = opened(with_data(numbers, "sgd{lr=0.1}"));
  EXPECT_EQ(gradloom_job_set_option(bare, 0, "momentum", 0.9), GRADLOOM_USAGE);
  EXPECT_NE(std::string(gradloom_last_error()).find("keeps nothing for another"), std::string::npos);
  EXPECT_EQ(gradloom_job_close(bare), GRADLOOM_OK);
}

// Numbered groups whose options nobody sets are as if they had no number. A GPU follows the rate, and refuses the rest.
class NumberedGroups : public JobApi, public testing::WithParamInterface<const char*> {
 protected:
  static std::string folder_of_program() { return fs::path(GRADLOOM_COMMAND).parent_path(); }
  void SetUp() override { setenv("GRADLOOM_PLUGINS", folder_of_program().c_str(), 1); }
  void TearDown() override { unsetenv("GRADLOOM_PLUGINS"); }
};

TEST_P(NumberedGroups, AloneChangeNothing) {
  const bool cpu = std::string_view(GetParam()) == "cpu";
  if (!cpu && access((folder_of_program() + "/libgradloom_hostgpu.so").c_str(), R_OK) != 0)
    GTEST_SKIP() << "this build has no host executor (GRADLOOM_HOST_GPU is off)";
  std::vector<double> losses[2];
  for (const bool numbered : {false, true}) {
    Words words = with_data({"--steps", "3", "--device", GetParam(), "--precision", "f64"});
    if (numbered) words.insert(words.end(), {"--group", "*{number=0}", "--group", "*bias{number=3}"});
    gradloom_job* const job = opened(words);
    losses[numbered ? 1 : 0] = losses_of(job, 3);
    if (numbered) {
      EXPECT_EQ(gradloom_job_set_option(job, 3, "lr", 0.5), GRADLOOM_OK) << gradloom_last_error();
      EXPECT_EQ(gradloom_job_set_option(job, 3, "beta1", 0.5), cpu ? GRADLOOM_OK : GRADLOOM_USAGE);
    }
    EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

INSTANTIATE_TEST_SUITE_P(Devices, NumberedGroups, testing::Values("cpu", "host-gpu"),
                         [](const auto& device) { return std::string(device.param, 3); });

TEST_F(JobApi, ALossThatIsNotFiniteEndsIt) {
  gradloom_job* const job = opened(with_data({"--steps", "50"}, "sgd{lr=1e30}"));
  int code = GRADLOOM_OK;
  for (int i = 0; i < 50 && code == GRADLOOM_OK; ++i) code = gradloom_job_step(job, nullptr);
  EXPECT_EQ(code, GRADLOOM_NUMERIC);
  EXPECT_EQ(gradloom_job_step(job, nullptr), GRADLOOM_NUMERIC);
  EXPECT_EQ(gradloom_job_close(job), GRADLOOM_NUMERIC);
}

TEST_F(JobApi, ErrorsAreCodesAndOneLine) {
  gradloom_job* job = nullptr;
  const auto expect = [&](const Words& words, int code, const std::string& part) {
    EXPECT_EQ(open(words, &job), code) << gradloom_last_error();
    const std::string line = gradloom_last_error();
    EXPECT_NE(line.find(part), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_EQ(job, nullptr);
  };
  expect({path("none.onnx")}, GRADLOOM_IO, "none.onnx");
  expect({}, GRADLOOM_USAGE, "no model");
  expect(mlp({"--optimiser", "adam"}), GRADLOOM_USAGE, "--optimiser");
  expect(mlp({"--precision", "f31"}), GRADLOOM_USAGE, "f31");
  expect(mlp({"--data", "caller", "--epochs", "2"}), GRADLOOM_USAGE, "data caller");
  expect(mlp({"--device", "cuda:77"}), GRADLOOM_DEVICE, "cuda");
  expect(mlp({"--ranks", "2", "--passes", "default,zero,gather-early"}), GRADLOOM_USAGE, "gather-early");
  EXPECT_EQ(gradloom_job_open(1, nullptr, nullptr, &job), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_open(0, nullptr, nullptr, nullptr), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_step(nullptr, nullptr), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_job_close(nullptr), GRADLOOM_OK);
  gradloom_callbacks callbacks{};  // without its size
  EXPECT_EQ(gradloom_job_open(0, nullptr, &callbacks, &job), GRADLOOM_USAGE);
  const Outcome o = run(train_mlp({"--data", "caller"}));
  EXPECT_EQ(o.code, GRADLOOM_USAGE);
  EXPECT_NE(o.err.find("data caller"), std::string::npos) << o.err;
}

// Two jobs at the same time in two threads are what each is alone; each thread has its own error.
TEST_F(JobApi, JobsRunSideBySide) {
  const std::vector<double> want = command_losses({"--steps", "20"});
  std::vector<double> got[2];
  std::vector<std::thread> threads;
  for (std::vector<double>& losses : got)
    threads.emplace_back([&] {
      gradloom_job* const job = opened(with_data({"--steps", "20"}));
      losses = losses_of(job, 20);
      EXPECT_EQ(gradloom_job_step(job, nullptr), GRADLOOM_USAGE);
      EXPECT_EQ(gradloom_job_close(job), GRADLOOM_OK);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[0], want);
  EXPECT_EQ(got[1], want);
}

TEST(Library, TellsItsVersion) {
  EXPECT_NE(std::string(gradloom_version()).find('.'), std::string::npos);
  EXPECT_EQ(gradloom_api(), GRADLOOM_API_MAJOR * 1000 + GRADLOOM_API_MINOR);
  EXPECT_EQ(gradloom_set_threads(2), GRADLOOM_OK);
  EXPECT_EQ(gradloom_threads(), 2);
  EXPECT_EQ(gradloom_set_threads(-1), GRADLOOM_USAGE);
  EXPECT_EQ(gradloom_threads(), 2);
  EXPECT_EQ(gradloom_set_threads(0), GRADLOOM_OK);
}

}  // namespace
}  // namespace gradloom
