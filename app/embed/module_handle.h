// What a gradloom_module is, for the functions that take one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "app/module.h"

struct gradloom_module {
  std::unique_ptr<gradloom::ModelModule> module;
  std::string notes;
  std::vector<std::int64_t> extents;
  mutable std::atomic<bool> broken{false};
};
