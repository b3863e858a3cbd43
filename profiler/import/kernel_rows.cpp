#include "profiler/import/kernel_rows.h"

#include <string_view>

namespace gradloom {

namespace {

// "void (anonymous namespace)::reduce<float>(int)" -> "reduce"
std::string function_name(std::string name) {
  constexpr std::string_view kVoid = "void ", kUnnamed = "(anonymous namespace)::";
  if (name.starts_with(kVoid)) name.erase(0, kVoid.size());
  for (std::size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  const std::size_t end = name.find_first_of("<(");
  return end == std::string::npos || end == 0 ? name : name.substr(0, end);
}

}  // namespace

std::uint32_t KernelRows::operator_of(const KernelPlace& place) {
  const auto [at, fresh] = operators_.try_emplace({place.scope, place.source, place.node},
                                                  static_cast<std::uint32_t>(trace_.operators.size()));
  if (!fresh) return at->second;
  const std::string &scope = texts_[place.scope], &source = texts_[place.source];
  const std::string name = (scope.empty() ? "" : scope + "/") + source;
  trace_.operators.push_back({place.node != 0 ? texts_[place.node] : name, source, "", scope});
  return at->second;
}

std::int32_t KernelRows::row(const KernelPlace& place) {
  const auto [at, fresh] = rows_.try_emplace({place.op, place.kernel, place.phase, place.scope, place.inputs,
                                              place.inside, place.source, place.node, place.stream},
                                             static_cast<std::int32_t>(trace_.kernels.size()));
  if (!fresh) return at->second;
  ImportedKernel made;
  made.info.plan_step = at->second;
  made.info.op = place.op == 0 ? function_name(texts_[place.kernel]) : texts_[place.op];
  made.info.kernel = texts_[place.kernel];
  made.info.phase = texts_[place.phase];
  made.info.scope = texts_[place.scope];
  made.info.stream = place.stream;
  made.inputs = texts_[place.inputs];
  std::string name = texts_[place.node];
  if (place.node == 0)
    for (const std::string& part : {made.info.scope, texts_[place.inside], made.info.op})
      if (!part.empty()) name += (name.empty() ? "" : "/") + part;
  const int number = ++names_[name];
  made.info.node = number == 1 ? name : name + "#" + std::to_string(number);
  if (place.source != 0) made.info.sources.push_back(operator_of(place));
  trace_.kernels.push_back(std::move(made));
  return at->second;
}

std::int32_t KernelRows::add(ImportedStep& step, const KernelPlace& place, std::int64_t start_ns,
                             std::int64_t duration_ns) {
  const std::int32_t number = row(place);
  step.samples.push_back({number, 0, start_ns, duration_ns});
  return number;
}

std::int64_t fit_steps(ImportedTrace& trace, const std::vector<std::int64_t>& executions) {
  std::size_t kept = 0;
  std::int64_t sum = 0;
  const auto most = static_cast<std::int64_t>(kMostImportExecutions);
  while (kept < executions.size() && (sum += executions[kept]) <= most) ++kept;
  const auto left_out = static_cast<std::int64_t>(trace.steps.size() - kept);
  trace.steps.resize(kept);
  return left_out;
}

}  // namespace gradloom
