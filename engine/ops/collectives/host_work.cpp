#include "engine/ops/collectives/host_work.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/ops/collectives/own_world.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/preparation.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

constexpr std::int64_t kBoundaryBytes = 64;

// Where operands and workspace lie.
struct HostLayout {
  Kernel kernel;
  std::vector<std::int64_t> inputs, outputs;
  std::int64_t workspace = 0;
  bool begins = false;
};

Status run_kernel(const HostLayout& layout, std::byte* memory) {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const std::int64_t at : layout.inputs) inputs.push_back(memory + at);
  for (const std::int64_t at : layout.outputs) outputs.push_back(memory + at);
  const kernels::NoSignals::Pause handlers_run;  // it may wait long
  try {
    layout.kernel.run(
        {inputs.data(), outputs.data(), memory + layout.workspace, nullptr, kernels::cpu_launcher()});
    World* const world = World::current();
    if (layout.begins && world != nullptr) return world->wait_for(outputs.back());
  } catch (const KernelFailed& failed) {
    return failed.error;
  }
  return {};
}

Result<DeviceExchange> exchange_of_node(DeviceExchange::Kind kind, const NodeTypes& types) {
  return exchange_of_parts(kind, TRY(owned_parts(types.attrs, types.inputs)), types.inputs,
                           types.attrs.integer("ranks"), types.attrs.integer("rank", 0));
}

// A tensor that is cut into as many elements for every rank. Every rank decides so: parts are the same on all.
void join_equal_parts(std::vector<DeviceExchange::Piece>& pieces, std::int64_t ranks) {
  const auto all = static_cast<std::size_t>(ranks);
  for (std::size_t first = 0; ranks > 1 && first + all <= pieces.size();) {
    std::size_t count = 0;  // in the order of ranks each once, so that there is none between them
    while (count < all && pieces[first + count].input == pieces[first].input &&
           pieces[first + count].count == pieces[first].count)
      ++count;
    if (count == all && pieces[first].count > 0) {
      pieces[first].together = static_cast<std::int32_t>(all);
      for (std::size_t i = 1; i < all; ++i) pieces[first + i].together = 0;
      first += all;
    } else {
      ++first;
    }
  }
}

Result<DeviceExchange> device_exchange(const OpDef& op, const NodeTypes& types) {
  if (gives_parameters(op)) return exchange_of_node(DeviceExchange::Kind::share, types);
  if (op.exchange == RankExchange::begin_reduce) return exchange_of_node(DeviceExchange::Kind::reduce, types);
  DeviceExchange exchange;
  const bool of_all = !types.attrs.has("world"),  // the library's ranks are all of them
      mean = op.exchange == RankExchange::mean || op.exchange == RankExchange::begin_mean;
  if (!mean || !of_all) return exchange;
  exchange.kind = DeviceExchange::Kind::mean;
  exchange.type = types.inputs[0].dtype;
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    exchange.pieces.push_back({i, i, 0, 0, element_count(types.inputs[i].shape)});
  return exchange;
}

}  // namespace

std::int64_t DeviceExchange::calls() const {
  return std::count_if(pieces.begin(), pieces.end(),
                       [](const Piece& piece) { return piece.together > 0 && piece.count > 0; });
}

DeviceExchange exchange_of_parts(DeviceExchange::Kind kind, std::span<const OwnedPart> parts,
                                 std::span<const Type> tensors, std::int64_t ranks, std::int64_t rank) {
  const bool share = kind == DeviceExchange::Kind::share;
  DeviceExchange exchange{kind, share ? DType::u8 : tensors[0].dtype, {}};
  std::size_t results = 0;
  for (const OwnedPart& part : parts) {
    const auto width = static_cast<std::int64_t>(dtype_bytes(tensors[part.tensor].dtype));
    DeviceExchange::Piece piece{part.tensor,        part.tensor, part.begin * width,
                                part.begin * width, part.count,  part.owner};
    if (share) piece.count *= width;
    if (kind == DeviceExchange::Kind::reduce) {
      piece.has_output = part.owner == rank;
      piece.output = piece.has_output ? results++ : 0;
      piece.output_begin = 0;
    }
    exchange.pieces.push_back(piece);
  }
  join_equal_parts(exchange.pieces, ranks);
  return exchange;
}

bool may_run_on_host(const OpDef& op) { return op.exchanges() || &op == &norm_of_squares_op(); }

// Results take the place of the inputs that they replace, as the kernels allow it.
Result<std::optional<HostWork>> host_work(const OpDef& op, const NodeTypes& types) {
  const bool meets_ranks = op.exchanges(), begins = op.begins_exchange(),
             replaces = meets_ranks && (op.exchange != RankExchange::begin_reduce || gives_parameters(op));
  if (!may_run_on_host(op)) return std::optional<HostWork>();
  NodeTypes on_cpu = types;
  on_cpu.target = kernels::Target::cpu;
  auto layout = std::make_shared<HostLayout>();
  layout->kernel = TRY(op.cpu(on_cpu));
  layout->begins = begins;
  HostWork work;
  work.meets_ranks = meets_ranks;
  const auto take = [&](std::size_t bytes) {
    const std::int64_t at = work.bytes;
    work.bytes += (static_cast<std::int64_t>(bytes) + kBoundaryBytes - 1) / kBoundaryBytes * kBoundaryBytes;
    return at;
  };
  const auto add = [](std::vector<HostWork::Copy>& copies, std::size_t operand, std::int64_t at,
                      std::size_t bytes) {
    if (bytes > 0) copies.push_back({operand, at, static_cast<std::int64_t>(bytes)});
  };
  // The last result of what begins an exchange is its workspace; inputs that ShareParameters has no results for only order it.
  const std::size_t results = types.outputs.size() - (begins ? 1 : 0);
  const std::size_t read = op.exchange == RankExchange::share ? results : types.inputs.size();
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const std::size_t bytes = i < read ? byte_size(types.inputs[i]) : 0;
    layout->inputs.push_back(take(bytes));
    add(work.down, i, layout->inputs.back(), bytes);
  }
  for (std::size_t i = 0; i < types.outputs.size(); ++i) {
    const std::size_t bytes = byte_size(types.outputs[i]);
    const bool in_place = replaces && i < results;
    layout->outputs.push_back(in_place ? layout->inputs[i] : take(bytes));
    if (i < results) add(work.up, i, layout->outputs.back(), bytes);
  }
  layout->workspace = take(layout->kernel.workspace_bytes);
  work.bytes = std::max(work.bytes, kBoundaryBytes);
  work.on_device = TRY(device_exchange(op, types));
  work.run = [layout](std::byte* memory) { return run_kernel(*layout, memory); };
  return std::optional(std::move(work));
}

}  // namespace gradloom
