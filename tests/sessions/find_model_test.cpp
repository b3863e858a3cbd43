#include "sessions/find_model.h"

#include "engine/base/hash.h"
#include "sessions/recipe.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {
namespace fs = std::filesystem;
using State = FoundModel::State;

class FindModel : public SessionTest {
 protected:
  void SetUp() override {
    fs::create_directories(file("work/models"));
    fs::create_directories(file("work/runs"));
    write_all(model_, "weights");
    auto store = Store::open(session_, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    RunStart start = tiny_start();
    start.model = model_;
    start.model_hash = hash_hex("weights");
    auto run = (*store)->begin_run(start);
    ASSERT_TRUE(run.ok()) << error_of(run);
    ASSERT_TRUE((*run)->finish({}).ok());
  }
  static RunRecord record(const std::string& session) {
    auto store = Store::open(session, StoreMode::read);
    EXPECT_TRUE(store.ok()) << error_of(store);
    auto run = (*store)->load_run(1);
    EXPECT_TRUE(run.ok()) << error_of(run);
    return std::move(run).value();
  }
  const std::string model_ = file("work/models/m.onnx"), session_ = file("work/runs/s.db");
};

TEST_F(FindModel, WhereItWas) {
  const RunRecord run = record(session_);
  EXPECT_EQ(run.environment.at(kModelFromSession), "../models/m.onnx");
  const FoundModel found = find_model(run, session_);
  EXPECT_EQ(found.state, State::same);
  EXPECT_EQ(found.path, model_);
  EXPECT_EQ(model_note(found, run), "");
}

TEST_F(FindModel, WhereBothMovedTo) {
  fs::rename(file("work"), file("elsewhere"));
  const RunRecord run = record(file("elsewhere/runs/s.db"));
  const FoundModel found = find_model(run, file("elsewhere/runs/s.db"));
  EXPECT_EQ(found.state, State::same);
  EXPECT_EQ(found.path, file("elsewhere/models/m.onnx"));
  // Beside the session.
  fs::rename(file("elsewhere/models/m.onnx"), file("elsewhere/runs/m.onnx"));
  EXPECT_EQ(find_model(run, file("elsewhere/runs/s.db")).path, file("elsewhere/runs/m.onnx"));
  // Another model has taken the old place: the one with the hash counts.
  fs::create_directories(file("work/models"));
  write_all(model_, "others");
  EXPECT_EQ(find_model(run, file("elsewhere/runs/s.db")).path, file("elsewhere/runs/m.onnx"));
}

TEST_F(FindModel, OtherContentsAndAbsenceAreSaid) {
  const RunRecord run = record(session_);
  write_all(model_, "trained since");
  FoundModel found = find_model(run, session_);
  EXPECT_EQ(found.state, State::other);
  EXPECT_EQ(found.path, model_);
  EXPECT_NE(model_note(found, run).find("other contents"), std::string::npos);
  fs::remove(model_);
  found = find_model(run, session_);
  EXPECT_EQ(found.state, State::none);
  EXPECT_EQ(found.path, model_);
  EXPECT_EQ(found.tried, (std::vector<std::string>{model_, file("work/runs/m.onnx")}));
  EXPECT_NE(model_note(found, run).find(model_), std::string::npos) << model_note(found, run);
}

TEST_F(FindModel, TheUsersPathIsTheOnlyOne) {
  const RunRecord run = record(session_);
  write_all(file("given.onnx"), "weights");
  EXPECT_EQ(find_model(run, session_, file("given.onnx")).path, file("given.onnx"));
  EXPECT_EQ(find_model(run, session_, file("given.onnx")).state, State::same);
  EXPECT_EQ(find_model(run, session_, file("absent.onnx")).state, State::none);
}

TEST_F(FindModel, RunsOfOlderSessionsHaveThePathAsItWasTyped) {
  RunRecord run = record(session_);
  run.environment.erase(kModelFromSession);
  run.summary.model = "../models/m.onnx";
  EXPECT_EQ(find_model(run, session_).path, model_);
  run.summary.model = "models/m.onnx";
  EXPECT_EQ(find_model(run, session_).state, State::none);
  write_all(file("work/runs/m.onnx"), "weights");
  EXPECT_EQ(find_model(run, session_).path, file("work/runs/m.onnx"));
}

TEST_F(FindModel, PathsOfStrangersLeadNowhere) {
  RunRecord run = record(session_);
  for (const std::string& path :
       {std::string("/dev/zero"), std::string("/proc/self/mem"), std::string(100'000, 'x'),
        std::string("a\0b", 3), std::string(), std::string("/"), std::string("\x1b[31m")}) {
    run.summary.model = run.environment[kModelFromSession] = path;
    const FoundModel found = find_model(run, session_);
    EXPECT_EQ(found.state, State::none);
    EXPECT_EQ(model_note(found, run).find('\x1b'), std::string::npos);
  }
}

TEST_F(FindModel, RecipesCanBeUsedFromEveryFolder) {
  Recipe recipe;
  recipe.model = "m.onnx";
  recipe.data = "npz:data/x.npz";
  const Recipe moved = with_absolute_paths(recipe);
  EXPECT_EQ(moved.model, (fs::current_path() / "m.onnx").string());
  EXPECT_EQ(moved.data, "npz:" + (fs::current_path() / "data/x.npz").string());
  EXPECT_EQ(with_absolute_paths(moved).model, moved.model);
  recipe.data = "synthetic";
  EXPECT_EQ(with_absolute_paths(recipe).data, "synthetic");
}

}  // namespace
}  // namespace gradloom::test
