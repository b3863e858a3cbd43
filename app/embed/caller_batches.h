// Batches that a program brings with each step (data "caller").
#pragma once

#include <vector>

#include "sessions/data.h"

namespace gradloom {

class CallerBatches : public BatchSource {
 public:
  // The batches of numbers `first`, `first` + `apart`, .., until the next are given. `pointers`: one for each input, one batch behind the
  // other; what is there is read as long as the step runs. Errors: Errc::usage: their number is wrong or one is null;
  // Errc::bad_input: integers outside the limits of their input.
  Status bring(std::int64_t first, std::int64_t apart, std::int64_t count,
               const std::vector<InputSpec>& inputs, const std::vector<const void*>& pointers);
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override;
  std::int64_t count() const override { return 0; }

 private:
  std::int64_t first_ = 0, apart_ = 1;
  std::vector<std::map<std::string, Tensor>> batches_;
};

}  // namespace gradloom
