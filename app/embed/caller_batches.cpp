#include "app/embed/caller_batches.h"

#include "engine/base/text.h"
#include "sessions/batch_sources.h"

namespace gradloom {

Status CallerBatches::bring(std::int64_t first, std::int64_t apart, std::int64_t count,
                            const std::vector<InputSpec>& inputs, const std::vector<const void*>& pointers) {
  const std::size_t wanted = inputs.size() * static_cast<std::size_t>(count);
  if (pointers.size() != wanted)
    return Error{Errc::usage, "a step takes " + std::to_string(wanted) + " arrays (" +
                                  plural_text(static_cast<std::int64_t>(inputs.size()), "input") + " of " +
                                  plural_text(count, "batch") + "), not " + std::to_string(pointers.size())};
  std::vector<std::map<std::string, Tensor>> batches(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const InputSpec& input = inputs[i % inputs.size()];
    if (pointers[i] == nullptr) return Error{Errc::usage, "no address for " + input_text(input)};
    // Nobody writes through it: batches are copied to where kernels read them.
    auto* const at = static_cast<std::byte*>(const_cast<void*>(pointers[i]));
    const Tensor there = Tensor::over(input.type, {at, [](std::byte*) {}});
    batches[i / inputs.size()][input.name] = TRY(accept_contents(there, input));
  }
  first_ = first;
  apart_ = apart;
  batches_ = std::move(batches);
  return {};
}

Result<std::map<std::string, Tensor>> CallerBatches::batch(std::int64_t i) const {
  const std::int64_t place = (i - first_) / apart_;
  if (i < first_ || (i - first_) % apart_ != 0 || place >= static_cast<std::int64_t>(batches_.size()))
    return Error{Errc::usage, "batch " + std::to_string(i) + " is the caller's, who has not brought it"};
  return batches_[static_cast<std::size_t>(place)];
}

}  // namespace gradloom
