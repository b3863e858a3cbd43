// Batches from arrays: .npz archives, folders of them, .npy files that are read where they lie.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <future>
#include <numeric>
#include <optional>

#include "engine/base/input_file.h"
#include "engine/base/npz.h"
#include "engine/base/text.h"
#include "sessions/batch_sources.h"
#include "sessions/permutation.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostFiles = 1'000'000;  // of a folder

std::string array_text(const InputSpec& input, const Type& type) {
  return fmt::format("array {} is {}", escaped(input.name), to_string(type));
}

Error misfit(const InputSpec& input, const Type& type, const char* needs) {
  return {Errc::bad_input,
          fmt::format("{}, but {} needs {}", array_text(input, type), input_text(input), needs)};
}

// An archive's arrays have one more leading axis than the inputs: the batch number.
Status accept_batches(const Type& type, const InputSpec& input) {
  TRY(accept_dtype(type, input));
  Shape wanted = input.type.shape;
  wanted.insert(wanted.begin(), type.shape.empty() ? 0 : type.shape[0]);
  if (type.shape.empty() || type.shape != wanted)
    return misfit(input, type, "that shape with one more leading axis, the batch number");
  if (type.shape[0] == 0) return Error{Errc::bad_input, array_text(input, type) + ": no batches"};
  return {};
}

std::string names(const std::map<std::string, Tensor>& arrays) {
  std::string text;
  for (const auto& [name, tensor] : arrays) {
    if (text.size() > 300) return text + ", ...";
    text += (text.empty() ? "" : ", ") + escaped(name);
  }
  return text.empty() ? "none" : text;
}

struct Archive {
  std::int64_t count = 0;
  std::map<std::string, Tensor> arrays;  // by input; without contents when only headers were read
};

// What is not wanted, or has another type, is refused by its header: a small archive may hold a large array.
Result<Archive> read_archive(const std::string& file, const std::vector<InputSpec>& inputs,
                             bool with_contents) {
  Archive archive;
  if (inputs.empty()) return Error{Errc::usage, "the model has no inputs: --data has nothing to fill"};
  std::map<std::string, std::int64_t> counts;
  const auto wanted = [&](const std::string& name, const Type& type) -> Result<bool> {
    for (const InputSpec& input : inputs) {
      if (input.name != name) continue;
      TRY(accept_batches(type, input));
      counts[name] = type.shape[0];
      return with_contents;
    }
    return false;
  };
  std::map<std::string, Tensor> found = TRY(read_npz(file, wanted));
  for (const InputSpec& input : inputs) {
    const auto count = counts.find(input.name);
    if (count == counts.end())
      return Error{Errc::bad_input,
                   fmt::format("{}: no array for {}; it has {}", file, input_text(input), names(found))};
    if (archive.count != 0 && archive.count != count->second)
      return Error{Errc::bad_input, fmt::format("{}: array {} has {} batches, others have {}", file,
                                                escaped(input.name), count->second, archive.count)};
    archive.count = count->second;
    if (!with_contents) continue;
    Result<Tensor> accepted = accept_contents(found.at(input.name), input);
    if (!accepted.ok()) return with_context(accepted.error(), file);
    archive.arrays[input.name] = std::move(accepted).value();
  }
  return archive;
}

std::map<std::string, Tensor> batch_of(const Archive& archive, std::int64_t i) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, all] : archive.arrays) out[name] = batch_of(all, i);
  return out;
}

// Where batch i of cycled data is: the pass over them, and the place in it.
struct EpochPlace {
  std::uint64_t epoch;
  std::int64_t at;
};
EpochPlace place_of(std::int64_t i, std::int64_t count) {
  return {static_cast<std::uint64_t>(i / count), i % count};
}

class Npz : public BatchSource {
 public:
  Npz(Archive archive, std::uint64_t seed, DataOrder order)
      : archive_(std::move(archive)), seed_(seed), order_(order) {}
  std::int64_t count() const override { return archive_.count; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    const auto [epoch, at] = place_of(i, archive_.count);
    return batch_of(archive_, order_.shuffle ? Permutation(archive_.count, seed_, epoch)(at) : at);
  }

 private:
  Archive archive_;
  std::uint64_t seed_;
  DataOrder order_;
};

// One file is in memory and the one after it on its way.
class NpzFolder : public BatchSource {
 public:
  NpzFolder(std::vector<std::string> files, std::vector<std::int64_t> counts, std::vector<InputSpec> inputs,
            std::uint64_t seed, DataOrder order)
      : files_(std::move(files)),
        counts_(std::move(counts)),
        inputs_(std::move(inputs)),
        seed_(seed),
        order_(order),
        count_(std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0})) {}
  std::int64_t count() const override { return count_; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    const auto [epoch, at] = place_of(i, count_);
    set_epoch(epoch);
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), at);
    const auto nth = static_cast<std::size_t>(next - starts_.begin()) - 1;
    const std::size_t file = sequence_[nth];
    TRY(load(file));
    prefetch(nth + 1 < sequence_.size() ? sequence_[nth + 1] : first_of(epoch + 1));
    std::int64_t within = at - starts_[nth];
    if (order_.shuffle) within = Permutation(counts_[file], seed_ ^ (file + 1), epoch)(within);
    return batch_of(current_, within);
  }

 private:
  void set_epoch(std::uint64_t epoch) const {
    if (!sequence_.empty() && (epoch == epoch_ || !order_.shuffle)) return;
    epoch_ = epoch;
    const auto n = static_cast<std::int64_t>(files_.size());
    const Permutation permutation(n, seed_, epoch);
    sequence_.clear();
    starts_.clear();
    std::int64_t start = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      sequence_.push_back(static_cast<std::size_t>(order_.shuffle ? permutation(k) : k));
      starts_.push_back(start);
      start += counts_[sequence_.back()];
    }
  }
  std::size_t first_of(std::uint64_t epoch) const {
    if (!order_.shuffle) return 0;
    return static_cast<std::size_t>(Permutation(static_cast<std::int64_t>(files_.size()), seed_, epoch)(0));
  }
  Result<Archive> read(std::size_t file) const {
    Archive archive = TRY(read_archive(files_[file], inputs_, true));
    if (archive.count == counts_[file]) return archive;
    return Error{Errc::io, files_[file] + " has changed while it was used: " + std::to_string(archive.count) +
                               " batches, before " + std::to_string(counts_[file])};
  }
  Status load(std::size_t file) const {
    if (loaded_ == file) return {};
    current_ = {};
    loaded_.reset();
    if (coming_ == file) {
      coming_.reset();
      current_ = TRY(ahead_.get());
    } else {
      current_ = TRY(read(file));
    }
    loaded_ = file;
    return {};
  }
  void prefetch(std::size_t file) const {
    if (coming_ == file || loaded_ == file) return;
    if (ahead_.valid()) ahead_.wait();
    coming_ = file;
    ahead_ = std::async(std::launch::async, [this, file] { return read(file); });
  }

  const std::vector<std::string> files_;
  const std::vector<std::int64_t> counts_;  // of batches, by file
  const std::vector<InputSpec> inputs_;
  const std::uint64_t seed_;
  const DataOrder order_;
  const std::int64_t count_;
  // What was read last; a source belongs to one thread.
  mutable std::uint64_t epoch_ = 0;
  mutable std::vector<std::size_t> sequence_;  // files in the order of the epoch
  mutable std::vector<std::int64_t> starts_;   // their first batches
  mutable std::optional<std::size_t> loaded_, coming_;
  mutable Archive current_;
  mutable std::future<Result<Archive>> ahead_;  // the last member: its thread uses the others
};

class Npy : public BatchSource {
 public:
  Npy(std::uint64_t seed, DataOrder order) : seed_(seed), order_(order) {}
  Status add(const InputSpec& input, const std::string& file) {
    auto contents = TRY(open_npy_file(file));  // before what it lies with: an error leaves no half of that
    Array array{input, file, std::move(contents)};
    const Type& type = array.contents.type();
    const auto in_file = [&](const Error& error) { return with_context(error, escaped(file)); };
    if (const Status status = accept_dtype(type, input); !status) return in_file(status.error());
    const Shape& shape = input.type.shape;
    const bool whole = type.shape.size() == shape.size() + 1 &&
                       std::equal(shape.begin(), shape.end(), type.shape.begin() + 1),
               rows = !shape.empty() && type.shape.size() == shape.size() &&
                      std::equal(shape.begin() + 1, shape.end(), type.shape.begin() + 1);
    if (!whole && !rows)
      return in_file(
          misfit(input, type,
                 "that shape with another first axis, which counts samples, or with one more leading "
                 "axis, which counts batches"));
    const std::int64_t in_batch = rows ? shape[0] : 1, things = type.shape[0];
    if (!arrays_.empty() && (samples_ != rows || things_ != things || in_batch_ != in_batch))
      return in_file({Errc::bad_input, fmt::format("{} {} in batches of {}, but {} has {} in batches of {}",
                                                   things, rows ? "samples" : "batches", in_batch,
                                                   escaped(arrays_[0].file), things_, in_batch_)});
    samples_ = rows;
    things_ = things;
    in_batch_ = in_batch;
    count_ = in_batch > 0 ? things / in_batch : 0;
    if (count_ == 0) return in_file({Errc::bad_input, array_text(input, type) + ": no whole batch"});
    arrays_.push_back(std::move(array));
    return {};
  }
  std::int64_t count() const override { return count_; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    std::map<std::string, Tensor> out;
    for (const Array& array : arrays_) {
      auto one = part(array, i);
      if (!one) return with_context(one.error(), escaped(array.file));
      out[array.input.name] = std::move(one).value();
    }
    return out;
  }

 private:
  struct Array {
    InputSpec input;
    std::string file;
    Tensor contents;  // in the file
  };
  // Samples that follow each other are read at once.
  Result<Tensor> part(const Array& array, std::int64_t i) const {
    const auto [epoch, at] = place_of(i, count_);
    const Permutation permutation(things_, seed_, epoch);  // what an epoch leaves out is another each time
    Tensor raw(array.contents.dtype(), array.input.type.shape);
    const std::int64_t pieces = order_.shuffle ? in_batch_ : 1;
    const std::size_t bytes = raw.bytes() / static_cast<std::size_t>(pieces);
    auto* to = static_cast<std::byte*>(raw.mutable_data());
    for (std::int64_t row = 0; row < pieces; ++row, to += bytes) {
      const std::int64_t place = order_.shuffle ? permutation(at * in_batch_ + row) : at;
      TRY(array.contents.read(static_cast<std::size_t>(place) * bytes, to, bytes));
    }
    auto accepted = accept_contents(raw, array.input, order_.shuffle ? 0 : at * raw.count());
    if (accepted || !order_.shuffle) return accepted;
    return with_context(accepted.error(), "shuffled batch " + std::to_string(i));
  }
  std::uint64_t seed_;
  DataOrder order_;
  std::vector<Array> arrays_;
  bool samples_ = false;  // the first axis counts samples, of which `in_batch_` make a batch
  std::int64_t things_ = 0, in_batch_ = 1, count_ = 0;
};

}  // namespace

Batches open_npz(const std::string& file, const std::vector<InputSpec>& inputs, std::uint64_t seed,
                 DataOrder order) {
  Archive archive = TRY(read_archive(file, inputs, true));
  return std::unique_ptr<BatchSource>(new Npz(std::move(archive), seed, order));
}

Batches open_npz_folder(const std::string& folder, const std::vector<InputSpec>& inputs, std::uint64_t seed,
                        DataOrder order) {
  std::vector<std::string> files;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".") || !name.ends_with(".npz")) continue;
    files.push_back(it->path().string());
    if (files.size() > kMostFiles)
      return Error{Errc::limit, escaped(folder) + ": more than " + std::to_string(kMostFiles) + " files"};
  }
  if (failed) return Error{Errc::io, "cannot read " + escaped(folder) + ": " + failed.message()};
  if (files.empty()) return Error{Errc::bad_input, escaped(folder) + ": no .npz files in this folder"};
  std::sort(files.begin(), files.end());
  std::vector<std::int64_t> counts;
  for (const std::string& file : files) counts.push_back(TRY(read_archive(file, inputs, false)).count);
  return std::unique_ptr<BatchSource>(
      new NpzFolder(std::move(files), std::move(counts), inputs, seed, order));
}

Result<std::vector<std::pair<std::string, std::string>>> npy_files(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> files;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size())
      return Error{Errc::usage, "npy: expects INPUT=FILE,INPUT=FILE, got '" + escaped(part) + "'"};
    files.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    at = comma + 1;
  }
  return files;
}

Batches open_npy(const std::string& text, const std::vector<InputSpec>& inputs, std::uint64_t seed,
                 DataOrder order) {
  const auto files = TRY(npy_files(text));
  std::vector<std::string> known;
  for (const InputSpec& input : inputs) known.push_back(input.name);
  for (const auto& [name, file] : files) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      return Error{Errc::usage, "npy: " + unknown_name("input", name, known)};
    if (std::count_if(files.begin(), files.end(),
                      [&, wanted = name](const auto& f) { return f.first == wanted; }) > 1)
      return Error{Errc::usage, "npy: input " + escaped(name) + " has two files"};
  }
  auto source = std::make_unique<Npy>(seed, order);
  for (const InputSpec& input : inputs) {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.first == input.name; });
    if (found == files.end()) return Error{Errc::usage, "npy: no file for " + input_text(input)};
    TRY(source->add(input, found->second));
  }
  return std::unique_ptr<BatchSource>(std::move(source));
}

}  // namespace gradloom
