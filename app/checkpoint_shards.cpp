#include "app/checkpoint_shards.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {
namespace {

using ShardJson = nlohmann::json;

constexpr const char *kParts = "parts", *kRank = "rank", *kRanks = "ranks";

std::int64_t count_of(const StatePart& part) { return part.contents.count(); }

bool is_whole(const StatePart& part) { return count_of(part) == element_count(part.whole); }

// {"shape": [2, 3], "begin": 4}, as somebody may have written it.
Status read_place(const ShardJson& place, StatePart& part) {
  const auto is_size = [](const ShardJson& number) {
    return number.is_number_unsigned() &&
           number.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
  };
  const bool fits = place.is_object() && place.contains("shape") && place.contains("begin") &&
                    place["shape"].is_array() && is_size(place["begin"]) &&
                    std::all_of(place["shape"].begin(), place["shape"].end(), is_size);
  if (!fits) return Error{Errc::bad_input, "\"parts\" needs \"shape\" and \"begin\""};
  part.whole = place["shape"].get<Shape>();
  part.begin = place["begin"].get<std::int64_t>();
  const auto whole = TRY(checked_element_count(part.whole, dtype_bytes(part.contents.dtype())));
  if (part.contents.shape().size() != 1 || part.begin > whole || count_of(part) > whole - part.begin)
    return Error{Errc::bad_input, "elements from " + std::to_string(part.begin) + " on, " +
                                      to_string(part.contents.type()) + ", are none of " +
                                      to_string(part.whole)};
  return {};
}

}  // namespace

std::string shard_name(int rank, int ranks) {
  char text[64];
  std::snprintf(text, sizeof text, "optimizer-rank-%05d-of-%05d.safetensors", rank, ranks);
  return text;
}

Result<WrittenFile> write_shard(const std::string& folder, int rank, int ranks, const StateParts& parts,
                                std::map<std::string, std::string> metadata) {
  Safetensors contents{{}, std::move(metadata)};
  ShardJson places = ShardJson::object();
  for (const auto& [name, part] : parts) {
    contents.tensors[name] = is_whole(part) ? part.contents.reshaped(part.whole) : part.contents;
    if (!is_whole(part)) places[name] = {{"shape", part.whole}, {"begin", part.begin}};
  }
  contents.metadata[kRank] = std::to_string(rank);
  contents.metadata[kRanks] = std::to_string(ranks);
  contents.metadata[kParts] = places.dump(-1, ' ', false, ShardJson::error_handler_t::replace);
  return write_hashed(folder + "/" + shard_name(rank, ranks),
                      [&](const SafetensorsSink& sink) { return write_safetensors(sink, contents); });
}

Result<std::shared_ptr<ShardedStates>> ShardedStates::open(const std::string& folder,
                                                           const std::vector<WrittenFile>& rows) {
  const std::shared_ptr<ShardedStates> states(new ShardedStates());
  states->ranks_ = rows.size();
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const std::string name = shard_name(static_cast<int>(rank), static_cast<int>(rows.size()));
    TRY(states->add_shard(folder + "/" + name, rows[rank]));
  }
  if (const Status joined = states->join(); !joined.ok()) {
    TRY(states->check_all());  // what does not fit together may be damaged
    return joined.error();
  }
  return states;
}

Status ShardedStates::add_shard(const std::string& path, const WrittenFile& row) {
  auto file = open_written(path, row);
  if (!file) return with_context(file.error(), escaped(path));
  shards_.push_back({path, row, std::move(file).value()});
  Shard& shard = shards_.back();
  const Status read = read_shard(shard, shards_.size() - 1);
  if (!read.ok()) TRY(check(shard));
  return read;
}

Status ShardedStates::read_shard(Shard& shard, std::size_t index) {
  Safetensors contents = TRY(read_safetensors(shard.file, shard.path));
  const auto refuse = [&](const std::string& what) {
    return Error{Errc::bad_input, escaped(shard.path) + ": " + what};
  };
  if (contents.metadata[kRank] != std::to_string(index) ||
      contents.metadata[kRanks] != std::to_string(ranks_))
    return refuse("is not what rank " + std::to_string(index) + " of " + std::to_string(ranks_) + " wrote");
  const ShardJson places = ShardJson::parse(contents.metadata[kParts], nullptr, false);
  if (!places.is_object()) return refuse("its metadata has no \"parts\"");
  for (auto& [name, tensor] : contents.tensors) {
    Piece piece{index, {tensor, tensor.shape(), 0}};
    if (const auto place = places.find(name); place != places.end())
      if (const Status read = read_place(*place, piece.part); !read.ok())
        return refuse("'" + escaped(name) + "': " + read.error().message);
    pieces_[name].push_back(std::move(piece));
  }
  for (const char* own : {kRank, kRanks, kParts}) contents.metadata.erase(own);
  if (index == 0) metadata_ = std::move(contents.metadata);
  return {};
}

// Each tensor is what its parts are, one behind the other.
Status ShardedStates::join() {
  for (auto& [name, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::pair(a.part.begin, a.shard) < std::pair(b.part.begin, b.shard);
    });
    const StatePart& first = pieces[0].part;
    const Type type{first.contents.dtype(), first.whole};
    std::int64_t end = 0;
    std::vector<InputFile::Piece> sources;
    for (const Piece& piece : pieces) {
      const StatePart& part = piece.part;
      if (part.begin != end || part.whole != type.shape || part.contents.dtype() != type.dtype)
        return Error{Errc::bad_input, escaped(shards_[piece.shard].path) + ": '" + escaped(name) +
                                          "' does not fit to what other ranks have of it"};
      end += count_of(part);
      sources.push_back({static_cast<std::int64_t>(part.contents.bytes()),
                         [contents = part.contents](std::int64_t from, void* to, std::int64_t bytes) {
                           return contents.read(static_cast<std::size_t>(from), to,
                                                static_cast<std::size_t>(bytes));
                         }});
    }
    if (end != element_count(type.shape))
      return Error{Errc::bad_input, escaped(shards_[pieces.back().shard].path) + ": '" + escaped(name) +
                                        "' is not whole with what other ranks have of it"};
    tensors_[name] =
        pieces.size() == 1
            ? first.contents.reshaped(type.shape)
            : Tensor::in_file(type,
                              std::make_shared<const InputFile>(InputFile::joined(
                                  std::move(sources), "'" + escaped(name) + "' of several files")),
                              0);
  }
  return {};
}

Status ShardedStates::check(Shard& shard) const {
  if (shard.checked) return {};
  if (const Status same = check_contents(*shard.file, shard.row); !same.ok())
    return with_context(same.error(), escaped(shard.path));
  shard.checked = true;
  return {};
}

Status ShardedStates::check(const std::string& name, std::int64_t begin, std::int64_t count) {
  const auto found = pieces_.find(name);
  if (found == pieces_.end()) return {};
  for (const Piece& piece : found->second)
    if (piece.part.begin < begin + count && begin < piece.part.begin + count_of(piece.part))
      TRY(check(shards_[piece.shard]));
  return {};
}

Status ShardedStates::check_all() {
  for (Shard& shard : shards_) TRY(check(shard));
  return {};
}

}  // namespace gradloom
