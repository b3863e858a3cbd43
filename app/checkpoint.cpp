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

constexpr int kFormat = 1, kShardedFormat = 2;  // what older programs know, as long as it is that
constexpr std::int64_t kMostStateBytes = 1 << 20;
constexpr std::string_view kChecksumBegin = ",\n  \"checksum\": \"", kChecksumEnd = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;
constexpr std::int64_t kMostShards = 65'536;

using Files = std::map<std::string, WrittenFile>;

std::string state_text(const Checkpoint& c, const Files& files, std::size_t shards) {
  Json state = {{"gradloom_checkpoint", shards > 0 ? kShardedFormat : kFormat},
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
    if (c.early_stop->last_step >= 0) state["evaluation"]["step"] = c.early_stop->last_step;
    if (c.early_stop->best_step >= 0) {
      state["evaluation"]["best_step"] = c.early_stop->best_step;
      state["evaluation"]["best_loss"] = c.early_stop->best_loss;
    }
  }
  state["recipe_hash"] = files.at(kRecipeFile).hash;
  if (shards > 0) state["shards"] = shards;
  for (const auto& [name, file] : files)
    state["files"][name] = {{"bytes", file.bytes}, {"xxh3_128", file.hash}};
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
  if (const auto format = value_at<std::int64_t>(state, "gradloom_checkpoint");
      format && *format > kShardedFormat)
    return bad_input("was written by a newer Gradloom (checkpoint format " + std::to_string(*format) +
                     ", this one knows " + std::to_string(kShardedFormat) + ")");
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
    if (evaluation.contains("step"))
      c.early_stop->last_step = TRY(value_at<std::int64_t>(evaluation, "step"));
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

// What the state says of a file.
Result<WrittenFile> file_row(const Json& files, const std::string& name) {
  const auto row = value_at<Json>(files, name.c_str());
  if (!row) return with_context(row.error(), "files");
  return WrittenFile{TRY(value_at<std::int64_t>(*row, "bytes")),
                     TRY(value_at<std::string>(*row, "xxh3_128"))};
}

// A file of the checkpoint, once its size and hash are those of the state.
Result<SharedFile> open_checked(const std::string& path, const WrittenFile& row) {
  SharedFile file = TRY(open_written(path, row));
  TRY(check_contents(*file, row));
  return file;
}

// 0: the states of the optimizer are in one file.
Result<std::int64_t> shards_of(const Json& state) {
  if (!state.contains("shards")) return 0;
  const auto count = TRY(value_at<std::int64_t>(state, "shards"));
  if (count < 1 || count > kMostShards) return bad_input("\"shards\" is no number of ranks");
  return count;
}

Result<Recipe> read_checked_recipe(const InputFile& file) {
  if (file.size() > static_cast<std::int64_t>(kMaxRecipeBytes))
    return Error{Errc::limit, "is longer than a recipe may be"};
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  TRY(file.read_unchanged(0, text.data(), file.size()));
  return parse_recipe(text);
}

}  // namespace

Status write_checkpoint(const std::string& folder, const Checkpoint& checkpoint,
                        const std::vector<WrittenFile>& shards) {
  Files files;
  const auto write = [&](const char* name, const Safetensors& contents) -> Status {
    files[name] = TRY(write_hashed(
        folder + "/" + name, [&](const SafetensorsSink& sink) { return write_safetensors(sink, contents); }));
    return {};
  };
  TRY(write(kModelFile, checkpoint.model));
  if (shards.empty()) TRY(write(kOptimizerFile, checkpoint.optimizer));
  for (std::size_t rank = 0; rank < shards.size(); ++rank)
    files[shard_name(static_cast<int>(rank), static_cast<int>(shards.size()))] = shards[rank];
  files[kRecipeFile] = TRY(write_hashed(folder + "/" + kRecipeFile, [&](const SafetensorsSink& sink) {
    return sink(recipe_json(checkpoint.recipe));
  }));
  return atomic_write_file(folder + "/" + kStateFile, state_text(checkpoint, files, shards.size()));
}

namespace {

// What the files hold that the state lists. Errors say which.
Status read_files(const Json& state, Checkpoint& c) {
  const std::string here = escaped(c.path + "/");
  const auto shards = shards_of(state);
  if (!shards) return with_context(shards.error(), here + kStateFile);
  const auto rows = value_at<Json>(state, "files");
  if (!rows) return with_context(rows.error(), here + kStateFile);
  c.hash = hash_hex(rows->dump());
  const auto open = [&](const char* name) -> Result<SharedFile> {
    const auto row = file_row(*rows, name);
    auto file = row ? open_checked(c.path + "/" + name, *row) : row.error();
    if (!file) return with_context(file.error(), here + name);
    return file;
  };
  c.model = TRY(read_safetensors(TRY(open(kModelFile)), c.path + "/" + kModelFile));
  if (*shards == 0) {
    c.optimizer = TRY(read_safetensors(TRY(open(kOptimizerFile)), c.path + "/" + kOptimizerFile));
  } else {
    std::vector<WrittenFile> all;
    for (int rank = 0; rank < static_cast<int>(*shards); ++rank) {
      const std::string name = shard_name(rank, static_cast<int>(*shards));
      const auto row = file_row(*rows, name);
      if (!row) return with_context(row.error(), here + name);
      all.push_back(*row);
    }
    c.shards = TRY(ShardedStates::open(c.path, all));
    c.optimizer = {c.shards->tensors(), c.shards->metadata()};
  }
  auto recipe = read_checked_recipe(*TRY(open(kRecipeFile)));
  if (!recipe) return with_context(recipe.error(), here + kRecipeFile);
  c.recipe = std::move(recipe).value();
  return {};
}

}  // namespace

Result<Checkpoint> read_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + kStateFile;
  if (::access(path.c_str(), F_OK) != 0)
    return bad_input(escaped(folder) + ": no whole checkpoint: " + kStateFile + " is missing");
  const std::string text = TRY(read_file_limited(path, kMostStateBytes));
  const auto state = parse_state(text);
  if (!state) return with_context(state.error(), escaped(path));
  Checkpoint c;
  c.path = folder;
  if (const Status read = read_state(*state, c); !read) return with_context(read.error(), escaped(path));
  TRY(read_files(*state, c));
  return c;
}

}  // namespace gradloom
