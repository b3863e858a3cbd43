// The hash of state.json is its last line, over all bytes before that: no bit of a checkpoint changes unseen.
#include "app/checkpoint.h"

#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/input_file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::int64_t kMostStateBytes = 1 << 20;
constexpr std::string_view kChecksumBegin = ",\n  \"checksum\": \"", kChecksumEnd = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;
constexpr const char* kFiles[] = {kModelFile, kOptimizerFile, kRecipeFile};

struct Written {
  std::int64_t bytes = 0;
  std::string hash;
};

// One file: what `fill` gives the sink, flushed to disk.
template <class Fill>
Result<Written> write_hashed(const std::string& path, const Fill& fill) {
  AtomicFile file = TRY(AtomicFile::create(path));
  StreamHash hash;
  Written written;
  TRY(fill([&](std::string_view piece) -> Status {
    hash.add(piece);
    written.bytes += static_cast<std::int64_t>(piece.size());
    return file.write(piece);
  }));
  TRY(file.commit());
  written.hash = hash.hex();
  return written;
}

std::string state_text(const Checkpoint& c, const std::map<std::string, Written>& files) {
  Json state = {{"gradloom_checkpoint", kFormat},
                {"written_utc", utc_timestamp()},
                {"step", c.step},
                {"data", {{"source", c.recipe.data}, {"next_batch", c.next_batch}}},
                {"random", {{"generator", "philox4x32-10"}, {"seed", c.seed}, {"step", c.step}}},
                {"optimizer", {{"rule", c.recipe.optimizer}, {"made_steps", c.made_steps}}}};
  if (c.loss_scale)
    state["loss_scale"] = {{"scale", c.loss_scale->scale},
                           {"good_steps", c.loss_scale->good_steps},
                           {"skipped_steps", c.loss_scale->skipped_steps}};
  if (c.early_stop) {
    state["evaluation"] = {{"worse", c.early_stop->worse}};
    if (c.early_stop->best_step >= 0) {
      state["evaluation"]["best_step"] = c.early_stop->best_step;
      state["evaluation"]["best_loss"] = c.early_stop->best_loss;
    }
  }
  state["recipe_hash"] = files.at(kRecipeFile).hash;
  for (const char* name : kFiles)
    state["files"][name] = {{"bytes", files.at(name).bytes}, {"xxh3_128", files.at(name).hash}};
  std::string text = state.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - 2);  // "\n}"
  return text + std::string(kChecksumBegin) + hash_hex(text) + std::string(kChecksumEnd);
}

// What stands behind a key of what a checksum vouches for: another program may have written it all the same.
template <class T>
Result<T> value_at(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || it == object.end()) return bad_input(std::string("lacks \"") + key + "\"");
  const bool fits = std::is_same_v<T, std::string> ? it->is_string()
                    : std::is_same_v<T, double>    ? it->is_number()
                    : std::is_same_v<T, Json>      ? it->is_object()
                                                   : it->is_number_unsigned();
  if (!fits) return bad_input(std::string("\"") + key + "\" is of another kind");
  if constexpr (std::is_same_v<T, std::int64_t>)
    if (it->template get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
      return bad_input(std::string("\"") + key + "\" does not fit in 63 bits");
  return it->template get<T>();
}

Result<Json> parse_state(const std::string& text) {
  const std::size_t tail = kChecksumBegin.size() + kHashDigits + kChecksumEnd.size();
  const Json state = Json::parse(text, nullptr, false);
  if (!state.is_object() || !state.contains("gradloom_checkpoint"))
    return bad_input("is not of a checkpoint, or damaged");
  if (const auto format = value_at<std::int64_t>(state, "gradloom_checkpoint"); format && *format > kFormat)
    return bad_input("was written by a newer Gradloom (checkpoint format " + std::to_string(*format) +
                     ", this one knows " + std::to_string(kFormat) + ")");
  const std::string_view body = std::string_view(text).substr(0, text.size() < tail ? 0 : text.size() - tail);
  if (text.substr(body.size()) != std::string(kChecksumBegin) + hash_hex(body) + std::string(kChecksumEnd))
    return bad_input("is damaged: its checksum is wrong");
  return state;
}

Status read_state(const Json& state, Checkpoint& c) {
  c.step = TRY(value_at<std::int64_t>(state, "step"));
  c.next_batch = TRY(value_at<std::int64_t>(TRY(value_at<Json>(state, "data")), "next_batch"));
  c.seed = TRY(value_at<std::uint64_t>(TRY(value_at<Json>(state, "random")), "seed"));
  c.made_steps = TRY(value_at<std::int64_t>(TRY(value_at<Json>(state, "optimizer")), "made_steps"));
  if (state.contains("evaluation")) {
    const Json evaluation = TRY(value_at<Json>(state, "evaluation"));
    c.early_stop.emplace().worse = TRY(value_at<std::int64_t>(evaluation, "worse"));
    if (evaluation.contains("best_step")) {
      c.early_stop->best_step = TRY(value_at<std::int64_t>(evaluation, "best_step"));
      c.early_stop->best_loss = TRY(value_at<double>(evaluation, "best_loss"));
    }
  }
  if (!state.contains("loss_scale")) return {};
  const Json scale = TRY(value_at<Json>(state, "loss_scale"));
  c.loss_scale =
      LossScaleState{TRY(value_at<double>(scale, "scale")), TRY(value_at<std::int64_t>(scale, "good_steps")),
                     TRY(value_at<std::int64_t>(scale, "skipped_steps"))};
  return {};
}

using SharedFile = std::shared_ptr<const InputFile>;

// A file of the checkpoint, once its size and hash are those of the state.
Result<SharedFile> open_checked(const std::string& path, const Json& files, const char* name) {
  const auto row = value_at<Json>(files, name);
  if (!row) return with_context(row.error(), "files");
  const auto bytes = TRY(value_at<std::int64_t>(*row, "bytes"));
  const auto hash = TRY(value_at<std::string>(*row, "xxh3_128"));
  if (::access(path.c_str(), F_OK) != 0) return bad_input("is missing");
  auto file = std::make_shared<const InputFile>(TRY(InputFile::open(path)));
  if (file->size() != bytes)
    return bad_input("is damaged: it has " + std::to_string(file->size()) + " bytes, the checkpoint says " +
                     std::to_string(bytes));
  StreamHash seen;
  std::vector<char> block(1 << 20);
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(block.size())) {
    const std::int64_t count = std::min(bytes - at, static_cast<std::int64_t>(block.size()));
    TRY(file->read_unchanged(at, block.data(), count));
    seen.add({block.data(), static_cast<std::size_t>(count)});
  }
  if (seen.hex() != hash) return bad_input("is damaged: its checksum is wrong");
  return file;
}

Result<Recipe> read_checked_recipe(const InputFile& file) {
  if (file.size() > static_cast<std::int64_t>(kMaxRecipeBytes))
    return Error{Errc::limit, "is longer than a recipe may be"};
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  TRY(file.read_unchanged(0, text.data(), file.size()));
  return parse_recipe(text);
}

}  // namespace

Status write_checkpoint(const std::string& folder, const Checkpoint& checkpoint) {
  std::map<std::string, Written> files;
  for (const auto& [name, contents] :
       {std::pair(kModelFile, &checkpoint.model), std::pair(kOptimizerFile, &checkpoint.optimizer)})
    files[name] = TRY(write_hashed(folder + "/" + name, [contents = contents](const SafetensorsSink& sink) {
      return write_safetensors(sink, *contents);
    }));
  files[kRecipeFile] = TRY(write_hashed(folder + "/" + kRecipeFile, [&](const SafetensorsSink& sink) {
    return sink(recipe_json(checkpoint.recipe));
  }));
  return atomic_write_file(folder + "/" + kStateFile, state_text(checkpoint, files));
}

Result<Checkpoint> read_checkpoint(const std::string& folder) {
  const auto path = [&](const char* name) { return folder + "/" + name; };
  const auto in = [&](const char* name, const Error& error) {
    return with_context(error, escaped(path(name)));
  };
  if (::access(path(kStateFile).c_str(), F_OK) != 0)
    return bad_input(escaped(folder) + ": no whole checkpoint: " + kStateFile + " is missing");
  const std::string text = TRY(read_file_limited(path(kStateFile), kMostStateBytes));
  const auto state = parse_state(text);
  if (!state) return in(kStateFile, state.error());
  Checkpoint c;
  c.path = folder;
  if (const Status read = read_state(*state, c); !read) return in(kStateFile, read.error());
  const auto rows = value_at<Json>(*state, "files");
  if (!rows) return in(kStateFile, rows.error());
  std::map<std::string, SharedFile> files;
  for (const char* name : kFiles) {
    auto file = open_checked(path(name), *rows, name);
    if (!file) return in(name, file.error());
    files[name] = std::move(file).value();
  }
  c.model = TRY(read_safetensors(files[kModelFile], path(kModelFile)));
  c.optimizer = TRY(read_safetensors(files[kOptimizerFile], path(kOptimizerFile)));
  auto recipe = read_checked_recipe(*files[kRecipeFile]);
  if (!recipe) return in(kRecipeFile, recipe.error());
  c.recipe = std::move(recipe).value();
  return c;
}

}  // namespace gradloom
