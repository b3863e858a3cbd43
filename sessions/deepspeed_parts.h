// What reading and writing ds_config.json share: its objects, and texts of settings as short as they can be. Private to sessions/.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/train/loss_scaling.h"
#include "engine/train/optimizers.h"
#include "engine/train/schedules.h"
#include "sessions/deepspeed.h"

namespace gradloom {

constexpr const char *kBucketPass = "data-parallel", *kZeroPass = "zero";
constexpr double kNoClamp = 1e30;  // from here on Lamb's max_coeff holds nothing back

bool has_option(kernels::OptimizerKind kind, std::string_view name);
// Whether DeepSpeed takes it from torch.optim, with the names and defaults of there.
bool is_of_torch_alone(kernels::OptimizerKind kind);

// Only the options that differ from their defaults, and the rate: "adamw{lr=0.001,beta2=0.95}".
std::string optimizer_text(const OptimizerSpec& spec);
std::string schedule_text(const ScheduleSpec& spec);
std::string loss_scale_text(const LossScaleSpec& spec);

double gradient_bytes(const Recipe& recipe);  // of an element of a gradient, as it is exchanged
std::string option_of(const RecipePass& pass, const std::string& name);
std::int64_t zero_stage(const Recipe& recipe);  // 0: without pass zero
void set_option(RecipePass& pass, const std::string& name, const std::string& value);
// a / b, in 15 digits where these give back b.
double rounded_quotient(double a, double b);

// An object of the file. Null is absent; "auto" is absent too, and told once. Errors: Errc::bad_input with the path.
class DeepSpeedObject {
 public:
  DeepSpeedObject(const nlohmann::json& value, std::string path, std::vector<ConversionNote>& notes)
      : value_(&value), path_(std::move(path)), notes_(&notes) {}
  bool has(const std::string& key) const;
  bool is_auto(const std::string& key) const;
  bool is_flag(const std::string& key) const;
  Result<std::optional<double>> number(const std::string& key, double least, double most);
  Result<std::optional<std::int64_t>> integer(const std::string& key, double least, double most);
  Result<std::optional<bool>> flag(const std::string& key);
  Result<std::optional<std::string>> text(const std::string& key);
  Result<std::optional<std::pair<double, double>>> pair(const std::string& key, double least, double most);
  Result<std::optional<DeepSpeedObject>> object(const std::string& key);
  bool has_others() const;  // keys that were not asked for yet
  void consume_all();       // who calls it tells them
  void list_rest();         // each key that was not asked for is a note

 private:
  const nlohmann::json* take(const std::string& key);
  Error refuse(const std::string& key, const std::string& why) const;
  const nlohmann::json* value_;
  std::string path_;
  std::vector<ConversionNote>* notes_;
  std::set<std::string> taken_;
};

}  // namespace gradloom
