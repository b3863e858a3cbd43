#include "sessions/loop.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"

namespace gradloom {
namespace {

std::size_t rank(const std::string& kind) {
  const std::vector<HostKind>& kinds = host_kinds();
  const auto at =
      std::find_if(kinds.begin(), kinds.end(), [&](const HostKind& known) { return kind == known.name; });
  return static_cast<std::size_t>(at - kinds.begin());
}

}  // namespace

double LoopShares::ns_of(const std::string& kind) const {
  double ns = 0;
  for (const LoopPart& part : parts)
    if (part.kind == kind) ns += part.ns;
  return ns;
}

double LoopShares::loop_speedup(double engine_speedup) const {
  const double engine = engine_share();
  return 1 / (1 - engine + engine / engine_speedup);
}

std::string LoopShares::title_of(const HostKind& kind) const {
  return !has_engine() && std::string(kind.name) == "module" ? "modules" : kind.title;
}

bool LoopShares::has_engine() const { return kernel_ns <= 0 || ns_of("engine") > 0; }

std::vector<LoopRow> loop_rows(const LoopShares& loop) {
  std::vector<LoopRow> rows;
  const auto add = [&](const std::string& title, double ns) {
    if (ns > 0) rows.push_back({title, ns, loop.share(ns)});
  };
  for (const HostKind& kind : host_kinds()) {
    const double ns = loop.ns_of(kind.name);
    if (std::string(kind.name) == "engine" && loop.kernel_ns > 0) {
      add("engine: kernels", std::min(loop.kernel_ns, ns));
      add("engine: between kernels", ns - loop.kernel_ns);
    } else {
      add(loop.title_of(kind), ns);
    }
  }
  return rows;
}

std::string loop_verdict(const LoopShares& loop) {
  if (!loop.has_engine())
    return fmt::format("the kernels' times add up to {} of a step", percent_text(loop.share(loop.kernel_ns)));
  std::string text =
      fmt::format("the engine computes {} of a step: twice as fast would make the loop {:.2f}x",
                  percent_text(loop.engine_share()), loop.loop_speedup(2));
  if (loop.torch_share() >= 0.01)
    text += "; PyTorch computes " + percent_text(loop.torch_share()) + " in modules and autograd";
  return text;
}

void LoopSums::add(const std::vector<HostSpan>& step) {
  if (step.empty()) return;
  ++steps_;
  step_ns_ += static_cast<double>(step.front().duration_ns);
  const std::vector<std::int64_t> own = own_ns(step);
  for (std::size_t i = 0; i < step.size(); ++i) {
    auto part = std::find_if(parts_.begin(), parts_.end(), [&](const LoopPart& known) {
      return known.kind == step[i].kind && known.name == step[i].name;
    });
    if (part == parts_.end()) part = parts_.insert(part, {step[i].kind, step[i].name});
    part->ns += static_cast<double>(own[i]);
    ++part->spans;
  }
}

LoopShares LoopSums::shares(double kernel_ns) const {
  LoopShares shares;
  if (steps_ == 0) return shares;
  const auto steps = static_cast<double>(steps_);
  shares.steps = steps_;
  shares.step_ns = step_ns_ / steps;
  shares.kernel_ns = kernel_ns / steps;
  shares.parts = parts_;
  for (LoopPart& part : shares.parts) {
    part.ns /= steps;
    part.spans /= steps;
  }
  std::stable_sort(shares.parts.begin(), shares.parts.end(), [](const LoopPart& a, const LoopPart& b) {
    return rank(a.kind) != rank(b.kind) ? rank(a.kind) < rank(b.kind) : a.ns > b.ns;
  });
  return shares;
}

}  // namespace gradloom
