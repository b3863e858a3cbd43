// gradloom update-session: session files of older programs in the newest format, with its views and indices. Reading does not need it,
// and writing does it by itself.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "engine/base/text.h"
#include "sessions/store.h"

namespace gradloom {

CommandRun declare_update_session(CLI::App& app) {
  auto sessions = std::make_shared<std::vector<std::string>>();
  app.add_option("SESSION", *sessions, "session files")->required();
  return [sessions](CommandContext& context) -> Status {
    std::vector<std::vector<std::string>> rows;
    for (const std::string& path : *sessions) {
      // Reading first: a file that is missing, or no session, is not made one.
      const std::int64_t from = TRY(TRY(Store::open(path, StoreMode::read))->version());
      const auto store = TRY(Store::open(path, StoreMode::write));
      const std::int64_t to = TRY(store->version());
      context.out.object({{"session", path}, {"from", from}, {"to", to}});
      rows.push_back({escaped(path), "version " + std::to_string(from),
                      from == to ? "the newest already" : "now version " + std::to_string(to)});
    }
    context.out.text(table_text({"session", "was", "is"}, rows, {0, 1, 2}));
    return {};
  };
}

}  // namespace gradloom
