// Proof of a device: every operator's samples and their gradients run there, planned and executed like a
// model, against the CPU in f64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/check.h"

namespace gradloom {

// One result per sample, "Softmax/last-axis": PASS; FAIL with the worst element; UNSUPPORTED with the reason
// why the device has no kernel. `ops`: glob over operator names, or, with a slash, over
// names of samples ("Softmax/last-*"). Computation in `options.precision` (f32,
// f64, f16, bf16); tolerance rtol 1e-5, gradients 1e-4, atol 1e-5 of the root mean square of the result when
// that is above 1; bf16: 2e-2 for all, on inputs rounded to bf16; f16, whose rounding unit is an eighth of
// that: 2.5e-3, on inputs rounded to f16 (options override). All samples are one graph: they are planned,
// compiled and run together, twice, and must give the same bits both times.
Result<std::vector<CheckResult>> check_samples(const std::string& ops, const CheckOptions& options);

}  // namespace gradloom
