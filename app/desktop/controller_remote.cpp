// The controller's session of another machine: a copy here that follows it, and runs that run there.
#include <utility>

#include "app/desktop/controller.h"
#include "app/recipe_flags.h"

namespace gradloom {

void Controller::open_remote(const std::string& address) {
  if (!leave_run()) return;
  auto parsed = parse_remote(address);
  if (!parsed) return opening_failed(parsed.error());
  if (!leave_other_machine()) return;
  parsed->program = remote_program_;
  auto started = RemoteSession::start(*parsed, notify_);
  if (!started) return opening_failed(started.error());
  close_model();  // what was open is of this machine
  state_.remote = RemoteView{parsed->text()};
  remote_ = std::move(started).value();
  remote_states_ = 0;
}

// Devices are those of the machine on which runs run.
void Controller::leave_remote() {
  if (!remote_) return;
  remote_.reset();
  state_.remote.reset();
  state_.devices.clear();
  devices_asked_ = false;
}

bool Controller::leave_other_machine() {
  if (!remote_) return true;
  close_model();  // which says what stands in its way
  return !remote_;
}

void Controller::read_remote() {
  if (!remote_ || !state_.remote) return;
  RemoteView& view = *state_.remote;
  const RemoteSession::State now = remote_->state();
  view.fraction = now.fraction;
  view.awaited = now.states == 0 && !now.session_there.empty() && now.fraction >= 1;
  if (now.states > remote_states_) {
    const bool first = remote_states_ == 0;
    remote_states_ = now.states;
    view.arrived = true;
    if (first) {
      state_.devices.clear();
      devices_asked_ = false;
      open_session(now.session, view.address);
    } else {
      // The run that is shown may have grown.
      if (state_.run && wanted_run_ == 0) wanted_run_ = state_.run->record.summary.id;
      reload_session();
    }
  }
  if (now.ended && view.problem.empty()) {
    view.problem = now.ended->message;
    const Error error{now.ended->code, view.address + ": " + view.problem};
    if (view.arrived) return notice(NoticeKind::error, error.message);
    leave_remote();
    opening_failed(error);
  }
}

std::string Controller::as_typed(const std::string& command) const {
  auto words = split_command_line(command);
  if (!remote_ || !words || words->empty()) return command;
  const std::vector<std::string> there = words_there({words->begin() + 1, words->end()}, remote_->state());
  const RemoteAddress& address = remote_->address();
  return "ssh " + (address.port > 0 ? "-p " + std::to_string(address.port) + " " : "") +
         (address.user.empty() ? "" : address.user + "@") + address.host + " " +
         shell_quoted(ssh_words(address, there).back());
}

Result<std::unique_ptr<Child>> Controller::start_child(const std::vector<std::string>& arguments) {
  if (!remote_) return Child::start(program_, arguments, notify_);
  const std::vector<std::string> words =
      ssh_words(remote_->address(), words_there(arguments, remote_->state()));
  return Child::start(words.front(), {words.begin() + 1, words.end()}, notify_);
}

}  // namespace gradloom
