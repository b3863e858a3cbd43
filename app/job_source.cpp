#include "app/job_source.h"

#include <filesystem>
#include <utility>

#include "app/replay.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "sessions/read_nsys.h"

namespace gradloom {
namespace {

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

CostsRun named_run(const std::string& name) {
  return is_regular(name) ? CostsRun{name, ""} : costs_run(name);
}

bool names_run(const std::string& name) {
  const CostsRun named = named_run(name);
  return !named.run.empty() && is_regular(named.session);
}

Result<JobSource> job_of_run(const RunRecord& run, const std::string& session) {
  Recipe recipe = TRY(recipe_of(run));
  recipe.expect.reset();
  JobSource source{session + "#" + std::to_string(run.summary.id), std::move(recipe), ""};
  const FoundModel model = find_model(run, session);
  if (model.state != FoundModel::State::none) source.recipe.model = model.path;
  source.note = model_note(model, run);
  return source;
}

Result<JobSource> read_job_source(const std::string& name) {
  if (!names_run(name) && !is_sqlite_file(name)) {
    Recipe recipe = TRY(read_recipe(name));
    return JobSource{name, std::move(recipe), ""};
  }
  const CostsRun named = names_run(name) ? named_run(name) : CostsRun{name, "last"};
  const auto store = TRY(Store::open(named.session, StoreMode::read));
  return job_of_run(TRY(store->load_run(TRY(store->find_run(named.run)))), named.session);
}

}  // namespace gradloom
