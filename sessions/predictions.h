// What `gradloom what-if` predicted: rows of table prediction, which later runs of the session are held against.
#pragma once

#include <string>

namespace gradloom {

struct KeptPrediction {
  std::string question;   // for people: "precision=bf16"
  std::string plan_hash;  // of the run that would measure it; empty: none can
  std::string hardware;   // hardware_text; of that run, too
  double step_ns = 0;     // of the job, as it was then
  double predicted_ns = 0, low_ns = 0, high_ns = 0;
  std::string recipe_json;    // the changed job
  std::string created_utc{};  // ISO 8601; filled in by the store
};

}  // namespace gradloom
