// Traces that the tests of every format write.
#pragma once

#include <string>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

inline KernelInfo info(std::int32_t plan_step, const char* op, const char* phase,
                       std::vector<std::uint32_t> sources) {
  KernelInfo k;
  k.plan_step = plan_step;
  k.kernel = std::string(op) + " avx512";
  k.node = "node" + std::to_string(plan_step);
  k.op = op;
  k.phase = phase;
  k.scope = "layers.0/attn";
  k.passes = plan_step == 0 ? "fuse-gelu,fuse-elementwise" : "";
  for (const std::uint32_t source : sources) k.onnx_nodes.push_back("/n" + std::to_string(source));
  k.sources = std::move(sources);
  k.flops = 1e9;
  k.bytes_read = 100;
  k.bytes_written = 28;
  return k;
}

// Two steps of two micro-batches: forward 0 (nodes 0 1), forward 1 (node 2), backward of 2, backward of 1,
// backward of 0; optimizer.
inline TraceDocument document(const std::string& device = "cpu") {
  TraceDocument d;
  d.run_id = 5;
  d.model = "m \"quoted\" \x01\xff.onnx";
  d.device = device;
  d.environment = {{"cpu_model", "test"}};
  d.kernels = {info(0, "Gelu", "forward", {0, 1}), info(1, "Mul", "loss", {2}),
               info(2, "Mul", "backward", {2}),    info(3, "Gelu", "backward", {1}),
               info(4, "Erf", "backward", {0}),    info(5, "Optimizer", "optimizer", {})};
  d.live_bytes = {10, 20, 30, 20, 10, 0};
  std::int64_t now = 1'700'000'000'123'456'789;
  for (std::int64_t step : {2, 5}) {
    std::vector<KernelSample> samples;
    const std::int64_t start = now;
    for (std::int32_t micro = 0; micro < 2; ++micro) {
      for (std::int32_t k = 0; k < 5; ++k, now += 1501) samples.push_back({k, micro, now, 1501});
    }
    samples.push_back({5, 0, now, 999});
    now += 1'000'000;
    append_samples(samples, d.kernels, step, d.rows);
    d.steps.push_back({step, start, 17'000});
  }
  return d;
}

// Per micro-batch: the batch goes up on stream 1 and over on stream 0, then one launch starts its five
// kernels; the optimizer has its own.
inline TraceDocument gpu_document() {
  TraceDocument d = document("cuda:0");
  for (const TraceRow& row : d.rows) {
    const bool first = row.plan_step == 0;
    if (first || row.plan_step == 5)
      d.activities.push_back({Activity::Kind::api, -1, row.plan_step, row.micro, row.step, row.start_ns - 100,
                              50, 0, "launch of the recorded step"});
    if (!first) continue;
    d.activities.push_back({Activity::Kind::copy, 1, -1, 0, row.step, row.start_ns - 900, 300, 4096, "copy"});
    if (row.micro > 0) continue;  // before the second one the stream is busy
    d.activities.push_back({Activity::Kind::fill, 0, -1, 0, row.step, row.start_ns - 30, 30, 64, "fill"});
  }
  d.activities.push_back(
      {Activity::Kind::api, -1, 77, 0, 2, d.rows[0].start_ns + 10, 5, 0, "launch of what was not traced"});
  return d;
}

inline TraceDocument ranks_document() {
  TraceDocument d = document();
  d.ranks = {{"a"}, {"b"}};
  for (TraceRow row : d.rows) {
    row.rank = 1;
    row.start_ns -= 700;
    d.other_ranks.push_back(row);
  }
  const std::int64_t start = d.rows[0].start_ns;
  d.exchanges = {{0, 3, 0, 2, start + 5000, 900, 300, 64}, {1, 3, 0, 2, start + 5300, 600, 0, 64}};
  return d;
}

}  // namespace gradloom
