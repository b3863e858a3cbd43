// Kernel infos from graph and plan; executor samples to trace rows.
#include "profiler/trace.h"

#include "engine/ir/op.h"

namespace gradloom {

std::string implementation_text(const Implementations& implementations) {
  std::string text;
  for (const Implementation& i : implementations) {
    text += (text.empty() ? "" : "; ") + i.kernel + ": " + (i.library.empty() ? "our own" : i.library);
    if (!i.detail.empty()) text += " (" + i.detail + ")";
  }
  return text;
}

std::string result_types(const Graph& graph, const Node& node) {
  std::string text;
  for (const ValueId id : node.outputs) {
    if (id == kNone) continue;
    text += (text.empty() ? "" : " ") + to_string(graph.values[id].type);
  }
  return text;
}

std::vector<KernelInfo> kernel_infos(const Graph& graph, const Plan& plan) {
  std::vector<KernelInfo> infos;
  infos.reserve(plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    KernelInfo info;
    info.plan_step = static_cast<std::int32_t>(i);
    info.kernel = step.kernel;
    info.stream = step.stream;
    info.flops = step.flops;
    info.bytes_read = step.bytes_read;
    info.bytes_written = step.bytes_written;
    info.launches = step.launches;
    if (step.node != kNone && step.node < graph.nodes.size()) {
      const Node& node = graph.nodes[step.node];
      info.node = node.name;
      info.op = node.op != nullptr ? node.op->name : "";
      info.types = result_types(graph, node);
      info.phase = phase_name(node.origin.phase);
      info.passes = passes_text(graph, node);
      info.sources = node.origin.sources;
      for (const std::uint32_t source : node.origin.sources) {
        if (source < graph.sources.size()) info.onnx_nodes.push_back(graph.sources[source].name);
      }
      if (!info.sources.empty() && info.sources[0] < graph.sources.size())
        info.scope = graph.sources[info.sources[0]].scope;
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

void append_samples(const std::vector<KernelSample>& samples, const std::vector<KernelInfo>& kernels,
                    std::int64_t step, std::vector<TraceRow>& rows, std::int32_t rank) {
  for (const KernelSample& sample : samples) {
    TraceRow row;
    row.start_ns = sample.start_ns;
    row.duration_ns = sample.duration_ns;
    row.plan_step = sample.plan_step;
    row.micro = sample.micro;
    row.step = step;
    row.rank = rank;
    row.correlation = static_cast<std::int64_t>(rows.size());
    if (sample.plan_step >= 0 && static_cast<std::size_t>(sample.plan_step) < kernels.size()) {
      const KernelInfo& info = kernels[static_cast<std::size_t>(sample.plan_step)];
      row.stream = info.stream;
      const double bytes = info.bytes_read + info.bytes_written;  // of a file: any number
      row.bytes = bytes > 0 && bytes < 1e18 ? static_cast<std::int64_t>(bytes) : 0;
    }
    rows.push_back(row);
  }
}

TraceDocument of_rank(TraceDocument document, std::int32_t rank) {
  if (rank != document.rank) {
    document.rows = std::move(document.other_ranks);
    document.activities.clear();
    document.threads.clear();
    document.steps.clear();  // those of its own begin and end with its kernels
  }
  std::erase_if(document.rows, [&](const TraceRow& row) { return row.rank != rank; });
  std::erase_if(document.exchanges, [&](const TraceExchange& exchange) { return exchange.rank != rank; });
  document.other_ranks.clear();
  document.rank = rank;
  return document;
}

const char* activity_name(Activity::Kind kind) {
  switch (kind) {
    case Activity::Kind::kernel: return "kernel";
    case Activity::Kind::copy: return "copy";
    case Activity::Kind::fill: return "fill";
    case Activity::Kind::api: return "launch";
    case Activity::Kind::lost: return "lost";
  }
  return "kernel";
}

std::string stream_name(std::int32_t stream, const std::map<std::string, std::string>& environment) {
  constexpr const char* kUses[] = {" (compute)", " (upload)", " (download)",
                                   " (exchange)"};  // the streams of engine/device/gpu/plugin.h
  if (stream < 0) return "CPU launches";
  const std::string number = std::to_string(stream);
  const auto told = environment.find(kTraceStream + number);
  if (told != environment.end()) return "stream " + number + " (" + told->second + ")";
  return "stream " + number + (static_cast<std::size_t>(stream) < std::size(kUses) ? kUses[stream] : "");
}

TraceActivity trace_activity(const Activity& activity, std::int64_t step) {
  TraceActivity row;
  row.kind = activity.kind;
  row.stream = activity.kind == Activity::Kind::api ? -1 : activity.stream;
  row.plan_step = activity.plan_step;
  row.micro = activity.micro;
  row.step = step;
  row.start_ns = activity.start_ns;
  row.duration_ns = activity.end_ns - activity.start_ns;
  row.bytes = activity.bytes;
  row.name = activity.name;
  return row;
}

}  // namespace gradloom
