// The optimizer's states in a checkpoint that several ranks write: a file for each rank (a shard), with what that rank keeps alone, so that none
// ever holds or sends all. Rank 0's has what all ranks keep, too.
//   optimizer-rank-00000-of-00004.safetensors   a state that its rank has whole in its shape, else its elements as one dim; where those
//                                               belong stands in the metadata: "parts" is JSON, {name: {"shape": [dims of the
//                                               whole], "begin": first element, row-major}}
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/checked_file.h"
#include "engine/base/safetensors.h"
#include "engine/base/tensor.h"

namespace gradloom {

// What a rank has of a state: the elements from `begin` on of a tensor of this shape; as that tensor, if it has all of them.
struct StatePart {
  Tensor contents;
  Shape whole;
  std::int64_t begin = 0;
};
using StateParts = std::map<std::string, StatePart>;  // by the names of a checkpoint

std::string shard_name(int rank, int ranks);
// Into the folder of a checkpoint; `metadata`: further entries.
Result<WrittenFile> write_shard(const std::string& folder, int rank, int ranks, const StateParts& parts,
                                std::map<std::string, std::string> metadata);

class ShardedStates {
 public:
  // Of as many ranks as there are rows. Headers are read, and that all parts together are whole; contents stay in the files, unchecked.
  // Errc::bad_input, naming the file: it is missing, damaged, or of another checkpoint.
  static Result<std::shared_ptr<ShardedStates>> open(const std::string& folder,
                                                     const std::vector<WrittenFile>& rows);
  // Whole, each reads from the shards that it lies in.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  // further entries
  // That the shards with these elements of a tensor are as they were written; each is read once. Errc::bad_input, naming the file; Errc::io.
  Status check(const std::string& name, std::int64_t begin, std::int64_t count);
  Status check_all();

 private:
  struct Shard {
    std::string path;
    WrittenFile row;
    std::shared_ptr<const InputFile> file;
    bool checked = false;
  };
  struct Piece {
    std::size_t shard = 0;
    StatePart part;
  };
  ShardedStates() = default;
  Status add_shard(const std::string& path, const WrittenFile& row);
  Status read_shard(Shard& shard, std::size_t index);
  Status join();
  Status check(Shard& shard) const;
  std::vector<Shard> shards_;
  std::size_t ranks_ = 0;
  std::map<std::string, std::vector<Piece>> pieces_;  // in the order of their elements
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace gradloom
