#include "app/rank_agreement.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "app/checked_file.h"
#include "app/output.h"
#include "app/ranks.h"
#include "engine/base/text.h"
#include "engine/ranks/agreement.h"
#include "kernels/cpu.h"
#include "profiler/environment.h"
#include "sessions/recipe.h"

namespace gradloom {
namespace {

// Where a file is set: whether one is, not where it lies.
void forget_place(std::string& path) { path = path.empty() ? "" : "a file"; }

void keep_until(std::string& text, char end) { text.resize(std::min(text.find(end), text.size())); }

// The settings that decide numbers and steps; nothing of the machine that a rank runs on.
std::string settings_of_all(Recipe recipe) {
  recipe.model.clear();
  recipe.model_hash.clear();  // has a line of its own
  for (std::string* const path : {&recipe.load_params, &recipe.load_optimizer, &recipe.costs})
    forget_place(*path);
  for (std::string& library : recipe.ops) library.erase(0, library.rfind('/') + 1);
  keep_until(recipe.data, ':');
  keep_until(recipe.eval_data, ':');
  keep_until(recipe.device, ':');
  const Recipe usual;
  recipe.threads = usual.threads;
  recipe.record = usual.record;
  recipe.search = usual.search;
  recipe.strict_libraries = usual.strict_libraries;
  recipe.algorithms.clear();
  recipe.expect.reset();
  return recipe_json(recipe);
}

// "reduce: "ring", not "tree"" of the first setting that is another one.
std::string first_difference(const OtherText& other) {
  constexpr std::size_t kLongest = 60;
  const Json first = Json::parse(other.first, nullptr, false),
             theirs = Json::parse(other.theirs, nullptr, false);
  if (!first.is_object() || !theirs.is_object()) return "it cannot be read";
  const auto value = [](const Json& of, const std::string& key) {
    const std::string text = of.contains(key) ? escaped(of[key].dump()) : "none";
    return text.size() > kLongest ? std::string() : text;
  };
  for (const Json* const keys : {&first, &theirs})
    for (const auto& [key, unused] : keys->items()) {
      if (first.contains(key) && theirs.contains(key) && first[key] == theirs[key]) continue;
      const std::string a = value(theirs, key), b = value(first, key);
      return escaped(key) + (a.empty() || b.empty() ? "" : " " + a + ", not " + b);
    }
  return "";
}

Error differs(const OtherText& other, const std::string& what) {
  return {Errc::device, "rank " + std::to_string(other.rank) + " has another " + what};
}

// The numbers with which training begins, where they are not the model's own.
Status check_same_beginning(World& world, const Job& job, const std::string& checkpoint) {
  const std::string of = checkpoint.empty() ? "none"
                                            : "of step " + std::to_string(job.steps_before()) +
                                                  ", its files hash to " + checkpoint;
  if (const auto other = TRY(other_text(world, of)))
    return differs(*other,
                   "checkpoint than rank 0: " + escaped(other->theirs) + "; not " + escaped(other->first));
  if (!checkpoint.empty()) return {};  // which has all that was loaded
  const Recipe& recipe = job.recipe();
  for (const auto& [path, what] : {std::pair(&recipe.load_params, "file of parameters"),
                                   {&recipe.load_optimizer, "file of the optimizer's states"}}) {
    if (path->empty()) continue;
    const InputFile file = TRY(InputFile::open(*path));
    if (const auto other = TRY(other_text(world, TRY(hash_of(file, file.size())))))
      return differs(*other, std::string(what) + " than rank 0: its contents hash to " +
                                 escaped(other->theirs) + ", not " + escaped(other->first));
  }
  return {};
}

}  // namespace

Status check_same_build(World& world) {
  const Environment build = read_environment();  // build_info() names the window's libraries, too
  const std::string own = build.version + (build.git_id.empty() ? "" : " (" + build.git_id + ")");
  if (const auto other = TRY(other_text(world, own)))
    return differs(*other, "version of Gradloom than rank 0: " + escaped(other->theirs) + ", not " +
                               escaped(other->first));
  return {};
}

Status check_same_on_all_ranks(const Job& job, const std::string& checkpoint) {
  World* const world = World::current();
  if (world == nullptr) return {};
  const Recipe& recipe = job.recipe();
  if (const auto other = TRY(other_text(*world, recipe.model_hash)))
    return differs(*other, "model than rank 0: its contents hash to " + escaped(other->theirs) + ", not " +
                               escaped(other->first));
  if (const auto other = TRY(other_text(*world, settings_of_all(recipe))))
    return differs(*other, "recipe than rank 0: " + first_difference(*other));
  TRY(check_same_beginning(*world, job, checkpoint));
  if (const auto other = TRY(other_text(*world, std::to_string(job.first_batch(job.steps_before() + 1)))))
    return differs(*other,
                   "first batch than rank 0: " + escaped(other->theirs) + ", not " + escaped(other->first));
  // With states apart each rank has a plan of its own, which the processor must not change either.
  const std::string isa = kernels::cpu().isa;
  const auto plan = TRY(other_text(*world, keeps_states_apart(job) ? isa : job.compiled().plan.hash));
  if (!plan) return {};
  const auto processor = TRY(other_text(*world, isa));
  return differs(
      *plan, "plan than rank 0" + (processor ? ": its processor is " + escaped(processor->theirs) + ", not " +
                                                   escaped(processor->first)
                                             : std::string(" (another kind of device, or tuned otherwise)")));
}

Result<std::string> about_other_data(const Job& job) {
  World* const world = World::current();
  if (world == nullptr) return std::string();
  const std::vector<std::int64_t> counts = TRY(world->exchange(job.data_batches()));
  for (std::size_t rank = 1; rank < counts.size(); ++rank)
    if (counts[rank] != counts[0])
      return "rank " + std::to_string(rank) + " has " + std::to_string(counts[rank]) +
             " batches of data, rank 0 " + std::to_string(counts[0]) +
             ": each begins its own again when they end";
  return std::string();
}

}  // namespace gradloom
