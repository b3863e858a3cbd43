#include "sessions/rank_lines.h"

#include "sessions/rank_rows.h"

namespace gradloom {

std::vector<std::string> rank_lines(const RunRecord& run) {
  std::vector<std::string> lines = other_environments(run.environment, run.ranks);
  lines.insert(lines.begin(), {reduce_text(run.recipe_json), slowest_text(run.ranks)});
  std::erase(lines, "");
  return lines;
}

}  // namespace gradloom
