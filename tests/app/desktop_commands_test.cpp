// The key map promises what the list of commands keeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "app/desktop/ui.h"
#include "viz/draw/keys.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

TEST(DesktopCommands, EveryGlobalKeyHasItsCommand) {
  HostOptions options;
  options.headless = true;
  options.width = 400;
  options.height = 300;
  auto host = Host::create(options);
  if (!host.ok()) GTEST_SKIP() << host.error().message;
  Controller controller(GRADLOOM_COMMAND, Settings(), nullptr);
  Ui ui(controller, **host);
  const std::vector<Command> commands = make_commands(ui);
  std::set<std::string> ids;
  for (const Command& command : commands)
    EXPECT_TRUE(ids.insert(command.id).second) << command.id << " twice";
  for (const KeyBinding& binding : key_map()) {
    if (binding.chord[0] == '\0') continue;  // a gesture
    const std::string action = binding.action, where = binding.where;
    const bool canvas = (where == "Graph" && action.rfind("graph.", 0) == 0 && action != "graph.diff") ||
                        where == "Timeline" || where == "Icicle" || where == "Roofline" ||
                        action == "app.menu";  // the canvases and tables hear these themselves
    EXPECT_EQ(ids.count(action), canvas ? 0u : 1u) << action;
  }
}

}  // namespace
}  // namespace gradloom
