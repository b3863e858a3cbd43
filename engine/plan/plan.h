// Plan: the lowered graph for one device and one binding of dims.
// Pure data: ordered steps, arena offsets, lifetimes.
//
// Steps run on streams (PlanStep::stream), of which only stream 0, the compute stream, has most of them. Steps of one stream
// run one after another in the plan's order, which is also the order in which the host queues all of them; steps of
// different streams run at the same time but where one waits for the other:
//   - a step waits for the steps that it names (PlanStep::waits), and so for all before those on their streams;
//   - a stream begins after what the compute stream had before the micro-batch;
//   - the micro-batch, and what comes once after the last, end when all streams have: in between nothing is under way.
// So a step i of another stream than the compute stream occupies its operands from i up to the step before the first one of
// the compute stream that waits for it, directly or through others (last_busy_steps, streams.h), and lifetimes of
// buffers are made of that. What a step is does not matter: copies have streams of their own, and so may collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/plan/launches.h"
#include "kernels/target.h"

namespace gradloom {

class KnownKernels;

enum class Place : std::uint8_t {
  none,      // not materialized (dead or folded)
  arena,     // offset into the arena, reused over the step
  state,     // offset into the state block: parameters, optimizer state, statistics, accumulators
  input,     // offset into the input block, written by the data source before the step
  constant,  // offset into the constant block, written once
  result,    // of a plan in two parts: offset into the results, each of which the caller has memory for
  host,      // offset into a block of pinned host memory: results of copies to the host, read by copies back
};
constexpr std::size_t kPlaces = static_cast<std::size_t>(Place::host) + 1;

// Storage shared by values that alias (views, in-place updates, state and its next), and by a tensor and its parts.
struct Buffer {
  Place place = Place::none;
  std::int64_t offset = 0, bytes = 0;          // bytes rounded up to kAlignmentBytes
  std::int32_t first_step = 0, last_step = 0;  // lifetime in steps, inclusive; arena only
};

// Where in its buffer a value lies that is a part of another one: `rows` rows of `row_bytes`, `pitch_bytes` from one to
// the next. One row: the part is dense, as every kernel takes it, and begins at a multiple of kAlignmentBytes.
struct BufferPart {
  std::int64_t offset_bytes = 0, rows = 1, row_bytes = 0, pitch_bytes = 0;
  bool dense() const { return rows == 1; }
};

// A Slice, Split or Concat, and whether it needs no kernel because its parts lie in the whole; why it needs one, or what
// its kernel would have copied.
struct PieceChoice {
  NodeId node = kNone;
  bool taken = false;
  std::string why;
};

struct PlanStep {
  NodeId node = kNone;
  std::string kernel;                                       // name reported by the kernel
  std::int64_t workspace_offset = -1, workspace_bytes = 0;  // arena; -1: none
  std::int32_t stream = 0;
  bool micro = true;  // runs once per micro-batch; false: once per optimizer step
  double flops = 0, bytes_read = 0, bytes_written = 0;
  std::vector<LaunchKind> launches{};  // of a GPU, what adds up to these numbers; empty: one kernel does it
  // Steps of other streams, before this one and in the same range (micro), that are over when it begins; ascending.
  std::vector<std::int32_t> waits{};
};

struct Plan {
  std::vector<PlanStep> steps;
  std::vector<Buffer> buffers;
  std::vector<std::int32_t> buffer_of;  // by ValueId; -1: none
  // Values that have a part of their buffer; all others begin where it does
  std::map<ValueId, BufferPart> pieces;
  std::vector<PieceChoice> choices;  // in the order of the nodes; of PlanOptions::pieces
  std::int64_t arena_bytes = 0, state_bytes = 0, input_bytes = 0, constant_bytes = 0, result_bytes = 0;
  std::int64_t host_bytes = 0;  // pinned, of the host; no part of the peak, which is the device's
  // A plan in two parts (PlanOptions::forward_outputs): steps below it are the first part, which makes so many of the
  // outputs. -1: one part.
  std::int32_t first_backward_step = -1;
  std::size_t forward_outputs = 0;
  std::int64_t lower_bound_bytes = 0;  // of the arena: the largest sum of simultaneously live buffers
  std::int32_t peak_step = 0;          // where live bytes are largest
  kernels::Target target = kernels::Target::cpu;
  bool dnn_library = false;  // PlanOptions
  std::string planner;
  double plan_ms = 0;
  std::string hash;  // of everything above except plan_ms and the reasons of choices
  std::int64_t offset_in_buffer(ValueId v) const {
    const auto at = pieces.find(v);
    return at == pieces.end() ? 0 : at->second.offset_bytes;
  }
  std::int64_t peak_bytes() const {
    return arena_bytes + state_bytes + input_bytes + constant_bytes + result_bytes;
  }
  // No plan of these buffers can need less: only the arena's contents can share memory.
  std::int64_t peak_lower_bound_bytes() const { return peak_bytes() - arena_bytes + lower_bound_bytes; }
  double fragmentation() const {  // wasted share of the arena at its peak
    return arena_bytes > 0 ? 1.0 - static_cast<double>(lower_bound_bytes) / static_cast<double>(arena_bytes)
                           : 0.0;
  }
};

// A buffer to place: bytes and lifetime in steps, inclusive.
struct Request {
  std::int64_t bytes = 0;
  std::int32_t first_step = 0, last_step = 0;
};
// Assigns offsets (aligned) to requests; returns the arena size. Planners live in passes/ and are passed in.
using PlannerFn = std::int64_t (*)(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets);
std::int64_t lower_bound_bytes(const std::vector<Request>& requests, std::int32_t* peak_step = nullptr);

// By which it is decided when copies between a GPU and the host begin, and when they are over.
struct StepSpeeds {
  // Bytes per ns, one way, of pinned memory: what a link of PCI Express 4.0 with 16 lanes carries (31.5 GB/s on the wire;
  // NVIDIA's bandwidthTest shows 24 to 26 on an A100). What is queued there waits for `latency_ns` first.
  double link = 25, latency_ns = 10'000;
  // Of kernels, without `step_ns`: memory of an A100 (1555 GB/s), and FLOPs that take as long as moving a byte.
  double memory = 1500, flops_per_byte = 100;
  // For how long a copy may hold memory of the device, beside the time that it takes itself, so that kernels need not wait for
  // it: where a link is slower than the kernels are, less of it is less memory and more waiting.
  double hold_ns = 1e300;
  // ns by plan step, as far as they are known of the machine.
  std::function<std::vector<double>(const Graph& graph, const Plan& plan)> step_ns{};
};

struct PlanOptions {
  PlannerFn planner = nullptr;
  std::string planner_name;
  bool in_place = true;
  kernels::Target target = kernels::Target::cpu;  // the processor to plan for; none need be here
  // Workspace is left for a GPU's library of convolutions and attention (device_has_dnn_library).
  bool dnn_library = false;
  // A plan in two parts that run apart (module_executor.h): the first makes so many of the graph's outputs and all
  // updates, and nothing else; the second the other outputs. Results are written where the caller wants them,
  // but for those that the second part reads: it finds them in the arena, whatever the caller did with his.
  std::optional<std::size_t> forward_outputs{};
  // Shared by those who make many plans of much the same graph, one after the other; may be null.
  std::shared_ptr<KnownKernels> known_kernels{};
  // Parts of tensors are read and written where they lie, without the copies of Slice, Split and Concat (pieces.h).
  bool pieces = true;
  StepSpeeds speeds{};
};

// Nodes whose inputs have known shapes and whose outputs do not: how large they are only the data tells, so
// that no plan can hold them.
std::vector<NodeId> nodes_sized_by_data(const Graph& graph);

// Orders the nodes, asks each operator for its kernel's name and workspace, computes lifetimes and aliases,
// places buffers. With pieces the arena is no larger than without: copies stay where it would be.
// Errors: unbound dims; operators without a kernel on the device (all listed).
Result<Plan> make_plan(const Graph& graph, const PlanOptions& options);

// Independent of the planner: simulates the steps over bytes and checks that no step reads what another one
// overwrote, that live buffers do not overlap, offsets are aligned and inside, in-place only at last use, and that
// what a Slice, Split or Concat without a kernel gives is what lies there.
// Error names step and values.
Status check_plan(const Graph& graph, const Plan& plan);

// The largest values in the arena while the peak step runs, largest first: name and bytes of their storage.
std::vector<std::pair<std::string, std::int64_t>> largest_at_peak(const Graph& graph, const Plan& plan,
                                                                  std::size_t limit);

// Whether the plan's memory is there. Error (exit 6): needed and available bytes, the five largest values at
// the peak, what would help.
Status check_fits(const Graph& graph, const Plan& plan, const std::string& device,
                  std::int64_t available_bytes);

// Live arena bytes at each step (for the memory view).
std::vector<std::int64_t> live_bytes(const Plan& plan);

}  // namespace gradloom
