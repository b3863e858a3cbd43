// Trainings on several processes of this machine.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "engine/base/npz.h"
#include "tests/app/command_fixture.h"

namespace gradloom {

using Words = std::vector<std::string>;

class RanksFixture : public Commands {
 protected:
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Two steps of a model; f64 unless `more` says something else.
  static Words training(const std::string& name, const Words& more) {
    return with({"train", model(name) + "/model.onnx", "--dim", "batch=4", "--steps", "3", "--precision",
                 "f64", "--threads", "1", "--json"},
                more);
  }
  // The losses of the steps, as they are written.
  static Words losses(const Outcome& o) {
    Words all;
    for (const json& line : o.lines())
      if (line.contains("step") && line.contains("loss")) all.push_back(line["loss"].dump());
    return all;
  }
  static void expect_near_losses(const Words& a, const Words& b, double largest) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(std::stod(a[i]), std::stod(b[i]), largest) << i;
  }
  std::map<std::string, Tensor> parameters(const std::string& name) const {
    auto read = read_npz(path(name));
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? std::move(read).value() : std::map<std::string, Tensor>();
  }
  using Parameters = std::map<std::string, Tensor>;
  static void expect_same_parameters(const Parameters& a, const Parameters& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, x] : a) {
      ASSERT_EQ(b.count(name), 1u) << name;
      ASSERT_EQ(x.type(), b.at(name).type()) << name;
      EXPECT_EQ(std::memcmp(x.data(), b.at(name).data(), x.bytes()), 0) << name;
    }
  }
  // Each number by `largest` at most, or so much of its size where it is more than 1.
  enum class Distance { absolute, of_size };
  static void expect_near_parameters(const Parameters& a, const Parameters& b, double largest,
                                     Distance distance = Distance::absolute) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, x] : a) {
      ASSERT_EQ(b.count(name), 1u) << name;
      ASSERT_EQ(x.type(), b.at(name).type()) << name;
      for (std::int64_t i = 0; i < x.count(); ++i) {
        const double size = distance == Distance::absolute ? 1 : std::max(1.0, std::fabs(x.at(i)));
        ASSERT_NEAR(x.at(i), b.at(name).at(i), largest * size) << name << " " << i;
      }
    }
  }
  // Running statistics are those of the batch that each rank has, or that came last.
  static Parameters without_running(Parameters all) {
    std::erase_if(all, [](const auto& one) { return one.first.find("running_") != std::string::npos; });
    return all;
  }
  // Within ten seconds.
  static bool ends(pid_t process) {
    for (int i = 0; i < 100; ++i) {
      const std::string status = read_file("/proc/" + std::to_string(process) + "/stat");
      if (status.empty() || status.find(") Z ") != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
  // A long training on two ranks whose second one gets a signal; `ranks`: their processes.
  Outcome signalled(int signal_number, std::set<pid_t>& ranks, const Words& more) {
    const pid_t child = start(training("gpt-char", with({"--ranks", "2", "--steps", "100000"}, more)));
    EXPECT_TRUE(wait_for("stdout", "\"step\":2"));
    ranks = rank_processes(child);
    EXPECT_EQ(ranks.size(), 2u);
    kill(ranks.size() == 2 ? *ranks.rbegin() : child, ranks.size() == 2 ? signal_number : SIGTERM);
    return wait(child);
  }
  // The processes of the ranks.
  static std::set<pid_t> rank_processes(pid_t started) {
    std::set<pid_t> found;
    for (const pid_t child : children(started)) {
      const std::vector<pid_t> of_mpirun = children(child);
      if (is_mpirun(child))
        found.insert(of_mpirun.begin(), of_mpirun.end());
      else
        found.insert(child);
    }
    return found;
  }
  static bool is_mpirun(pid_t process) {
    return read_file("/proc/" + std::to_string(process) + "/cmdline").rfind("mpirun", 0) == 0;
  }
  static std::vector<pid_t> children(pid_t process) {
    const std::string id = std::to_string(process);
    std::vector<pid_t> all;
    // Of the thread that started them.
    std::error_code code;
    for (const auto& task : fs::directory_iterator("/proc/" + id + "/task", code)) {
      std::ifstream file(task.path() / "children");
      for (pid_t child = 0; file >> child;) all.push_back(child);
    }
    return all;
  }
};

// A variable of the environment, of what a test starts, while this lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
  ~EnvironmentVariable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace gradloom
