// The flags that train, plan and compare share, and the recipe they make.
// --recipe FILE is read first; flags override it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint_folder.h"
#include "app/job_source.h"
#include "sessions/recipe.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gradloom {

struct RecipeSetting;

class RecipeFlags {
 public:
  void declare(CLI::App& app, bool model_positional = true);
  // Model present, options parsed. `base`: what holds where neither --recipe nor a flag says it.
  Result<Recipe> resolve(const Recipe* base = nullptr) const;
  Result<Recipe> over(Recipe recipe) const;  // what the flags make of it, whatever --recipe names
  // What --recipe, or a folder that verify wrote, says before flags override it; none: neither was given.
  Result<std::optional<JobSource>> source() const;
  Status load_ops() const;  // the libraries that --ops names; resolve does that too
  // "passes=none" or "passes=default,-fuse-gelu;precision=f64": changes of one side of a comparison.
  static Status override_with(Recipe& recipe, const std::string& text);
  void set_model(const std::string& path) { model_ = path; }
  bool given(const std::string& key) const;  // was this setting (or "recipe", "dims") on the command line
  bool any_given(const std::string& but = "") const;  // any setting but that one, or "recipe"

 private:
  const std::vector<std::string>& named_ops() const;
  std::string recipe_of_folder() const;  // empty: MODEL is none that verify wrote
  struct Flag {
    const RecipeSetting* setting = nullptr;
    CLI::Option* option = nullptr;  // null: the setting has no flag, or one that is repeated
    std::string text;
    std::vector<std::string> list;  // of one that is repeated
  };
  std::string recipe_path_, model_;
  std::vector<std::string> dims_, exclude_, import_limits_;
  std::shared_ptr<std::vector<Flag>> flags_;  // by setting; CLI11 holds references to the texts
};

// Declares --import-limit, which `given` gets; what it says, by the names of the limits.
void declare_import_limits(CLI::App& app, std::vector<std::string>& given);
Result<std::map<std::string, std::int64_t>> read_import_limits(const std::vector<std::string>& given);
// The shortest text of --passes that makes the pipeline: "default,-fuse-gelu", or the passes one by one.
std::string pipeline_flag(const Pipeline& pipeline, const Rules& rules = {});
// What `train` takes beside a recipe.
struct RunFlags {
  std::string session{};
  CheckpointOptions checkpoints{};
  std::string resume{};               // a checkpoint that training goes on from
  const Recipe* resumed = nullptr;    // its recipe, which holds where no flag says otherwise; null: none
  const JobSource* source = nullptr;  // named by --recipe; null: none, the model is named
};
// The command line that runs a recipe: what the window shows and a user can paste; and its words.
std::string command_line(const Recipe& recipe, const RunFlags& flags);
std::vector<std::string> command_words(const Recipe& recipe, const RunFlags& flags);
std::string shell_line(const std::vector<std::string>& words);
std::string shell_quoted(const std::string& text);

}  // namespace gradloom
