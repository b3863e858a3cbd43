// Row O13 of the hostile corpus for every operator: each sample's node as a file (operator_cases.h), changed
// in each way that its attributes, inputs, types, shapes and contents can be wrong, goes the way from import
// over autodiff and passes to plan and one step (target "compile"). It must end in success or in one typed
// error, within 2 s of processor time and 256 MiB of memory. Bounded: of an operator with more changes than
// GRADLOOM_TEST_CHANGES (default 250), as many are drawn, the same in every run.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <set>

#include "engine/base/hash.h"
#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"
#include "tests/engine/onnx/support.h"
#include "tests/fuzz/find.h"
#include "tests/fuzz/operator_cases.h"

namespace gradloom::fuzz {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // needs more time and memory: only crashes and hangs are judged
#else
constexpr bool kSanitized = false;
#endif
constexpr double kSeconds = 2;
constexpr long kKibibytes = 256 << 10;
constexpr unsigned kHang = 60;  // seconds of the clock, for one change on a busy machine

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

long peak_kibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void run(const onnx::ModelProto& model, const std::string& name) {
  const std::string bytes = model.SerializePartialAsString();
  const double start = processor_seconds();
  const long peak = peak_kibibytes();
  alarm(kHang);
  run_kept(*find_target("compile"), bytes, name.c_str());
  alarm(0);
  if (kSanitized) return;
  EXPECT_LE(processor_seconds() - start, kSeconds) << name;
  EXPECT_LE(peak_kibibytes() - peak, kKibibytes) << name;
}

const std::vector<OperatorCases>& operators() {
  static const std::vector<OperatorCases> all = operator_cases();
  return all;
}

struct Change {
  const OperatorCase* of;
  Mutation mutation;
};

class Operators : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Operators, WrongInEveryWay) {
  keep_finds();
  const OperatorCases& op = operators()[GetParam()];
  std::vector<Change> changes;
  std::string why;
  bool valid = false;  // what is changed is right as it stands: for each operator, at one opset or more
  for (const OperatorCase& c : op.cases) {
    const auto imported = gradloom::test::import_model(c.model);
    valid = valid || imported.ok();
    if (!imported.ok()) why = imported.error().message;
    run(c.model, op.name + ", " + c.name);
    for (Mutation& mutation : mutations_of(c.model)) changes.push_back({&c, std::move(mutation)});
  }
  EXPECT_TRUE(valid) << why;
  const char* wanted = getenv("GRADLOOM_TEST_CHANGES");
  const auto count = static_cast<std::size_t>(wanted != nullptr ? atoll(wanted) : 250);
  std::mt19937_64 random(fnv1a64(op.name));
  std::shuffle(changes.begin(), changes.end(), random);
  // Those that are not of the same kind as one before come first: every attribute and input has its turn.
  std::set<std::string> seen;
  std::stable_partition(changes.begin(), changes.end(),
                        [&](const Change& c) { return seen.insert(c.mutation.what).second; });
  if (changes.size() > count) changes.resize(count);
  for (const Change& change : changes) {
    onnx::ModelProto model = change.of->model;
    change.mutation.apply(model);
    run(model, op.name + ", " + change.of->name + ": " + change.mutation.what);
  }
}

std::vector<std::size_t> numbers() {
  std::vector<std::size_t> all(operators().size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(numbers()), [](const auto& row) {
  const OperatorCases& op = operators()[row.param];
  std::string name = op.domain + (op.domain.empty() ? "" : "_") + op.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(OperatorCases, AreOfEveryOperatorThatAFileCanName) {
  std::set<std::pair<std::string, std::string>> there;
  for (const OperatorCases& op : operators()) there.insert({op.domain, op.name});
  for (const OpDef* op : all_ops()) {
    if (std::string(op->domain) != "gradloom") {
      EXPECT_TRUE(there.count({op->domain, op->name})) << op->name;
    }
  }
  for (const Expansion* expansion : all_expansions())
    EXPECT_TRUE(there.count({expansion->domain, expansion->name}))
        << expansion->domain << "." << expansion->name;
}

}  // namespace
}  // namespace gradloom::fuzz
