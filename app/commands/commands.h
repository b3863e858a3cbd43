// The declare functions of all commands, one file each.
#pragma once

#include "app/command.h"

namespace gradloom {

CommandRun declare_open(CLI::App& app);
CommandRun declare_inspect(CLI::App& app);
CommandRun declare_plan(CLI::App& app);
CommandRun declare_check(CLI::App& app);
CommandRun declare_verify(CLI::App& app);
CommandRun declare_train(CLI::App& app);
CommandRun declare_compare(CLI::App& app);
CommandRun declare_tune(CLI::App& app);
CommandRun declare_advise(CLI::App& app);
CommandRun declare_what_if(CLI::App& app);
CommandRun declare_trends(CLI::App& app);
CommandRun declare_runs(CLI::App& app);
CommandRun declare_show(CLI::App& app);
CommandRun declare_trace(CLI::App& app);
CommandRun declare_report(CLI::App& app);
CommandRun declare_export(CLI::App& app);            // what libgradloom.so has of it
CommandRun declare_export_and_views(CLI::App& app);  // and --view
CommandRun declare_import(CLI::App& app);
CommandRun declare_background(CLI::App& app);
CommandRun declare_update_session(CLI::App& app);
CommandRun declare_serve(CLI::App& app);
CommandRun declare_recipe(CLI::App& app);
CommandRun declare_passes(CLI::App& app);
CommandRun declare_ops(CLI::App& app);
CommandRun declare_devices(CLI::App& app);
CommandRun declare_help(CLI::App& app);

}  // namespace gradloom
