// Batches for training.
//   synthetic      floats: standard normal; integers: uniform in [0, limit); repeatable from the seed, different for each batch
//   npz:FILE       arrays named after graph inputs with one more leading axis, the batch number, cycled
//   npz:FOLDER     the same in the .npz files of a folder in the order of their names, each as many batches as it holds; one is in
//                  memory, the next is read meanwhile
//   npy:INPUT=FILE,..   an array for each input, which stays in its file: as in npz, or with the input's own axes, of which the first
//                  counts samples; what does not fill a batch at the end is left out, shuffled others in each epoch. Names of files
//                  without commas
//   tokens:FILE    windows of the file's bytes for the integer input and the bytes that follow them for the labels, cut at random
//                  places given by the seed; tokens{bytes=2}:FILE of unsigned little-endian numbers of so many bytes (1, 2, 4).
//                  The file stays where it is
//   caller         batches come with each step, from the program that links libgradloom (app/embed)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/tensor.h"

namespace gradloom {

// How data with an end are gone through.
// Shuffled, the order is a function of seed and epoch alone, another in each: of npz and of npy with batches the
// batches (in a folder: the files, and the batches of each), of npy with samples the samples, of tokens the windows.
struct DataOrder {
  bool epochs = false;   // tokens: every window once, one behind the other, instead of at random places
  bool shuffle = false;  // implies epochs
};

// The text with each of its files moved.
std::string move_data_files(const std::string& spec,
                            const std::function<std::string(const std::string& file)>& move);
// "npz:FILE", "tokens{bytes=2}:FILE" and such as {"npz:", FILE}, any other text with no file. The file of npy: is the list
// of them.
std::pair<std::string, std::string> split_data(const std::string& spec);
Status check_data(const std::string& spec);  // Errc::usage for what is none of the above

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
  virtual std::int64_t count() const = 0;            // distinct batches; 0: unlimited
  virtual std::int64_t tokens() const { return 0; }  // of a batch; 0: they are samples
};

// Everything is checked here, but for data of the caller, which are none of ours to make (Errc::usage): missing arrays, wrong dtypes (between floats of different width data are
// converted), wrong shapes, integers outside the limit. Errc::usage for an unknown `spec`, Errc::bad_input or
// Errc::io for the file.
constexpr const char* kCallerData = "caller";
Result<std::unique_ptr<BatchSource>> make_batches(const std::string& spec,
                                                  const std::vector<InputSpec>& inputs, std::uint64_t seed,
                                                  DataOrder order = {});

// Of the integer and boolean inputs `names` those that npz: data hold and repeat in every batch: their
// contents, known before running. None for other data.
Result<std::map<std::string, Tensor>> repeated_inputs(const std::string& spec,
                                                      const std::set<std::string>& names);

}  // namespace gradloom
