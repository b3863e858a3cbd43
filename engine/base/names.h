// Tables keyed by names out of files. Their hash has a seed that is new in every process: no file can be
// written whose names all fall together, which would make reading it take the square of its length. Never
// iterate over them: the order differs from run to run.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace gradloom {

struct NameHash {
  std::size_t operator()(std::string_view name) const;
};

template <class T>
using NameMap = std::unordered_map<std::string, T, NameHash>;
using NameSet = std::unordered_set<std::string, NameHash>;
// Keys that live elsewhere.
template <class T>
using NameViewMap = std::unordered_map<std::string_view, T, NameHash>;
using NameViewSet = std::unordered_set<std::string_view, NameHash>;

}  // namespace gradloom
