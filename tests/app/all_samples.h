// Every operator's samples on a device, against the float64 reference of the CPU (app/check_samples.h).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "app/check_samples.h"

namespace gradloom {

// None fails, and most have kernels on the device in this precision.
inline void expect_samples_to_pass(const std::string& device, const std::string& precision) {
  CheckOptions options;
  options.device = device;
  options.precision = precision;
  const auto results = check_samples("*", options);
  ASSERT_TRUE(results.ok()) << results.error().message;
  int passed = 0;
  for (const CheckResult& r : *results) {
    EXPECT_NE(r.status, CheckStatus::fail) << r.name << ": " << r.reason;
    passed += r.status == CheckStatus::pass;
  }
  EXPECT_GT(passed, 500) << device << " " << precision;
}

}  // namespace gradloom
