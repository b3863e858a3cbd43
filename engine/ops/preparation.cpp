#include "engine/ops/preparation.h"

#include <cmath>

#include "engine/base/hash.h"
#include "kernels/launcher.h"

namespace gradloom {

Error no_kernel(const std::string& message) { return Error{Errc::device, message}; }

Status require_kernel_type(kernels::Target target, DType dtype, bool takes_bf16) {
  if (dtype == DType::f32 || dtype == DType::f64) return {};
  if (dtype == DType::bf16 && takes_bf16) return {};
  if (kernels::computes_halves(target) && is_half(dtype)) return {};
  return no_kernel(std::string("no ") + kernels::target_name(target) + " kernel for " + dtype_name(dtype));
}

Kernel elementwise_kernel(std::string name, kernels::EwProgram program) {
  kernels::ew_collapse_dims(program);
  Kernel kernel;
  kernel.name = std::move(name);
  const auto shared = std::make_shared<const kernels::EwProgram>(std::move(program));
  kernel.programs = {shared};
  kernel.run = [shared](const LaunchArgs& args) {
    args.on.elementwise({shared.get(), args.inputs, args.outputs, args.random});
  };
  return kernel;
}

Kernel no_work(std::string name) {
  return Kernel{std::move(name) + " (empty)", 0, [](const LaunchArgs&) {}};
}

std::shared_ptr<const kernels::EwProgram> conversion(DType from, DType to, std::int64_t count) {
  kernels::EwProgram program;
  program.rank = 1;
  program.dims[0] = count;
  program.inputs = {{from, {1}}};
  program.code = {{kernels::EwOp::Cast, from, to, {0, -1, -1}, 0}};
  program.outputs = {{1, to}};
  kernels::ew_collapse_dims(program);
  return std::make_shared<const kernels::EwProgram>(std::move(program));
}

FlatProgram::FlatProgram(DType dtype, std::int64_t count, std::size_t inputs,
                         const std::vector<double>& constants)
    : dtype_(dtype) {
  program_.rank = 1;
  program_.dims[0] = count;
  program_.inputs.assign(inputs, {dtype, {1}});
  for (const double value : constants) program_.constants.push_back({dtype, value});
}

int FlatProgram::add(kernels::EwOp op, int a, int b, int c) {
  const auto reg = [](int r) { return static_cast<std::int16_t>(r); };
  program_.code.push_back({op, dtype_, dtype_, {reg(a), reg(b), reg(c)}, 0});
  return static_cast<int>(program_.inputs.size() + program_.constants.size() + program_.code.size()) - 1;
}

std::shared_ptr<const kernels::EwProgram> FlatProgram::finish(int result) {
  program_.outputs = {{static_cast<std::int16_t>(result), dtype_}};
  kernels::ew_collapse_dims(program_);
  return std::make_shared<const kernels::EwProgram>(std::move(program_));
}

double kept_finite(DType type, double x) {
  if (!is_half(type) || !std::isfinite(x)) return x;
  const double largest = type == DType::f16 ? 65504 : 0x1.fep127;  // 0x7bff, 0x7f7f
  return std::clamp(x, -largest, largest);
}

std::uint64_t random_key(const Attrs& attrs, const std::string& node_name) {
  return attrs.has("key") ? static_cast<std::uint64_t>(attrs.integer("key")) : fnv1a64(node_name);
}

}  // namespace gradloom
