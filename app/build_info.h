// What this program is: version, build and the libraries it runs with. Of the commit it tells what the build knows; no time of building.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/output.h"

namespace gradloom {

struct BuildInfo {
  std::string version, commit, commit_date, compiler, isas, isa, license;  // commit: empty outside a checkout
  std::vector<std::pair<std::string, std::string>> libraries;              // name and version, as loaded
};

const BuildInfo& build_info();
Json build_info_json();

}  // namespace gradloom
