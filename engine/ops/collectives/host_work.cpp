#include "engine/ops/collectives/host_work.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/ops/collectives/own_world.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/collectives/reduce_gradients.h"
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

// What is reduced keeps its type, what is shared is bytes.
Result<DeviceExchange> exchange_of_parts(DeviceExchange::Kind kind, const NodeTypes& types) {
  DeviceExchange exchange{kind, kind == DeviceExchange::Kind::share ? DType::u8 : types.inputs[0].dtype, {}};
  const std::int64_t own = types.attrs.integer("rank", 0);
  std::size_t results = 0;
  for (const OwnedPart& part : TRY(owned_parts(types.attrs, types.inputs))) {
    const auto width = static_cast<std::int64_t>(dtype_bytes(types.inputs[part.tensor].dtype));
    DeviceExchange::Piece piece{part.tensor,        part.tensor, part.begin * width,
                                part.begin * width, part.count,  part.owner};
    if (kind == DeviceExchange::Kind::share) piece.count *= width;
    if (kind == DeviceExchange::Kind::reduce) {
      piece.has_output = part.owner == own;
      piece.output = piece.has_output ? results++ : 0;
      piece.output_begin = 0;
    }
    exchange.pieces.push_back(piece);
  }
  return exchange;
}

Result<DeviceExchange> device_exchange(const OpDef& op, const NodeTypes& types) {
  if (op.exchange == RankExchange::begin_reduce)
    return exchange_of_parts(DeviceExchange::Kind::reduce, types);
  if (op.exchange == RankExchange::share) return exchange_of_parts(DeviceExchange::Kind::share, types);
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

bool may_run_on_host(const OpDef& op) { return op.exchanges() || &op == &norm_of_squares_op(); }

// Results take the place of the inputs that they replace, as the kernels allow it.
Result<std::optional<HostWork>> host_work(const OpDef& op, const NodeTypes& types) {
  const bool meets_ranks = op.exchanges(), begins = op.begins_exchange(),
             replaces = meets_ranks && op.exchange != RankExchange::begin_reduce;
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
