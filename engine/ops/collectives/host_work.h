// What the host does for kernels of GPUs that exchange numbers with other ranks, where no library of the device does it: the kernel
// of the CPU on copies of the operands in pinned memory. The device copies them there, lets `run` run when they are there, and
// copies what it made back (engine/device/host_calls.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/owned_parts.h"

namespace gradloom {

// The same, for a library of the device that exchanges between ranks.
struct DeviceExchange {
  enum class Kind : std::uint8_t { none, mean, reduce, share };  // none: no library makes it
  struct Piece {
    std::size_t input = 0, output = 0;
    std::int64_t input_begin = 0, output_begin = 0;  // bytes
    std::int64_t count = 0;                          // elements
    int owner = 0;                                   // of reduce and share
    bool has_output = true;                          // the mean of reduce goes to the owner alone
    // Pieces from this one on that one call makes: of one tensor, of all ranks in their order, as many elements each, side by
    // side. 0: a piece before it has it.
    std::int32_t together = 1;
  };
  Kind kind = Kind::none;
  DType type = DType::f32;  // u8: bytes
  std::vector<Piece> pieces;
  std::int64_t calls() const;  // of the library
};
// `parts`: as owned_parts gives them for these tensors, of which this rank is `rank`. Reduced parts keep their type, of which all tensors
// are; shared ones are bytes.
DeviceExchange exchange_of_parts(DeviceExchange::Kind kind, std::span<const OwnedPart> parts,
                                 std::span<const Type> tensors, std::int64_t ranks, std::int64_t rank);

// Whether a GPU's host may have to do the operator's work.
bool may_run_on_host(const OpDef& op);

struct HostWork {
  struct Copy {
    std::size_t operand = 0;         // of the node's inputs, or of its outputs
    std::int64_t at = 0, bytes = 0;  // in the host's memory
  };
  std::vector<Copy> down, up;  // of inputs, of outputs; none is empty
  std::int64_t bytes = 0;      // of the host's memory, workspace with it
  bool meets_ranks = false;    // it waits for other ranks: nothing else may be exchanged meanwhile
  std::function<Status(std::byte* memory)> run;
  DeviceExchange on_device;
};

// Nothing: kernels of the device do all of it.
Result<std::optional<HostWork>> host_work(const OpDef& op, const NodeTypes& types);

}  // namespace gradloom
