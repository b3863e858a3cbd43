// What the window can do, without a window: opening, editing the recipe with undo, re-planning in the
// background, running and comparing in child processes, exporting. Every action returns at once; `tick`
// publishes what finished.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/desktop/child.h"
#include "app/desktop/state.h"
#include "app/desktop/worker.h"

namespace gradloom {

class Controller {
 public:
  // `program` runs commands: the same executable. `notify` is called from background threads when `tick` has
  // something to do.
  Controller(std::string program, Settings settings, std::function<void()> notify);
  ~Controller();

  const AppState& state() const { return state_; }
  AppState& edit_state() { return state_; }  // selections and settings only
  void tick();
  bool busy() const;  // background work or a child process

  void open(const std::string& path);                                     // by its kind
  void open_recipe(Recipe recipe, const std::string& session_path = {});  // and its model
  void open_session(const std::string& path);
  void close_model();
  void reload_session();
  void show_run(std::int64_t id);

  // One undoable change. What only concerns running (steps, data, ...) is not re-planned.
  void edit(const std::string& what, const std::function<void(Recipe&)>& change);
  void undo();
  void redo();
  bool can_undo() const { return !undo_.empty(); }
  bool can_redo() const { return !redo_.empty(); }
  void set_passes(const Pipeline& pipeline);  // named by what differs
  void set_pass(const std::string& name, bool on);
  void set_all_passes(bool on);
  void set_session(const std::string& path);

  std::map<std::string, std::string> problems()
      const;                        // by field, see field_problems; "plan" and "data" from background checks
  std::string run_command() const;  // what Start runs and the window shows
  std::string compare_command(bool stored) const;  // runs A and B of the session
  std::string compare_passes_command() const;      // passes off against the recipe's
  void start_run();
  void start_compare(const std::string& command);
  void stop_run();  // finish the step and keep what is recorded; again: kill
  // Writes the recipe; with what to expect of a replay when the shown run was recorded with it.
  void export_recipe(const std::string& path);
  bool export_has_expectations() const;
  void save(const Settings& settings, const std::string& path);
  bool planning() const { return worker_->busy_with("plan") || worker_->busy_with("model"); }
  std::string running_job() const { return worker_->running(); }

  void notice(NoticeKind kind, const std::string& text);

 private:
  void load_model_of(Recipe recipe, bool keep_history);
  void model_loaded(Recipe recipe, std::shared_ptr<const ModelSnapshot> model);
  void refresh_passes();
  void replan();
  void plan_baseline();
  void check_data();
  void retime();
  void apply_recipe(Recipe recipe, const std::string& what);
  void session_loaded(std::shared_ptr<const SessionSnapshot> session);
  void spawn(RunKind kind, const std::string& command);
  void read_child();
  void on_line(const std::string& line);
  void child_ended();

  AppState state_;
  std::string program_, change_what_;
  std::function<void()> notify_;
  std::vector<Recipe> undo_, redo_;
  std::string baseline_key_;
  std::int64_t wanted_run_ = 0;  // to show once the session is read again; 0: keep, -1: the newest
  std::unique_ptr<Child> child_;
  std::unique_ptr<Worker> worker_;  // last: its jobs publish into everything above
};

}  // namespace gradloom
