// Batches for training.
//   synthetic      floats: standard normal; integers: uniform in [0, limit); repeatable from the seed, different for each batch
//   npz:FILE       arrays named after graph inputs with one more leading axis, the batch number, cycled
//   tokens:FILE    windows of the file's bytes for the integer input and the bytes that follow them for the labels, cut at random
//                  places given by the seed
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/tensor.h"

namespace gradloom {

// "npz:FILE" and "tokens:FILE" as {"npz:", FILE}, any other text with no file.
std::pair<std::string, std::string> split_data(const std::string& spec);

struct InputSpec {
  std::string name;
  Type type;  // static shape
  // integers: values are below it (classes, vocabulary); 0: unknown, synthetic then uses 0 and 1.
  std::int64_t limit = 0;
  // Target of the loss; tokens: without a mark the integer input named like a label, or the last.
  bool label = false;
  std::optional<std::int64_t> ignored{};  // the label that adds nothing to the loss
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Batch i >= 0 (endless: finite data are cycled): a tensor of exactly the declared type for every input.
  virtual Result<std::map<std::string, Tensor>> batch(std::int64_t i) const = 0;
  virtual std::int64_t count() const = 0;  // distinct batches; 0: unlimited
};

// Everything is checked here: missing arrays, wrong dtypes (between floats of different width data are
// converted), wrong shapes, integers outside the limit. Errc::usage for an unknown `spec`, Errc::bad_input or
// Errc::io for the file.
Result<std::unique_ptr<BatchSource>> make_batches(const std::string& spec,
                                                  const std::vector<InputSpec>& inputs, std::uint64_t seed);

// Of the integer and boolean inputs `names` those that npz: data hold and repeat in every batch: their
// contents, known before running. None for other data.
Result<std::map<std::string, Tensor>> repeated_inputs(const std::string& spec,
                                                      const std::set<std::string>& names);

}  // namespace gradloom
