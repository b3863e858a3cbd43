// What a command says: human text on stdout, or with --json one JSON object per line and nothing else. Errors
// are one line on stderr.
//
// What could not be written is kept as a state, looked at once, at the command's end (run_command_line): no
// command can forget to. After the first failure nothing more is written. Safe from several threads.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

using Json = nlohmann::ordered_json;

enum class Said : std::uint8_t { text, note, error, json };

class Output {
 public:
  // Instead of stdout and stderr: hears every line, without its end. Progress is not told.
  using Listener = std::function<void(Said kind, const std::string& line)>;
  explicit Output(bool json = false) : json_(json) {}
  bool json() const { return json_; }
  void set_json(bool on) { json_ = on; }
  // From then on errors and progress alone are told: of a part of a command whose result the command tells itself.
  void set_quiet(bool on) { quiet_ = on; }
  void set_listener(Listener listener) { listener_ = std::move(listener); }
  // From then on a reader that takes nothing is waited for only until a stop is requested.
  void set_stop(std::stop_token stop) { stop_ = std::move(stop); }
  void object(const Json& value) const;  // only with --json: one line; NaN and Inf become strings
  // Only without --json. Control characters other than the ends of lines are escaped, here and in notes.
  void text(const std::string& line) const;
  void document(std::string_view bytes) const;  // both modes: a file's contents that go to stdout
  void note(const std::string& line) const;     // stderr, both modes: "note: ...", one line
  // stderr, both modes: "gradloom: ...", an error that the command goes on after. Ending with an error of the
  // same text later does not print it again.
  void error(const std::string& message) const;
  bool terminal() const;  // progress bars are drawn only there, on stderr
  // Progress 0..1 of something long; overwrites the line on a terminal, silent otherwise. `done` clears it.
  void progress(const std::string& what, double fraction, const std::string& detail) const;
  void progress_done() const;

  // The reader of stdout has gone away (`train --json | head -1`): what is still said, nobody hears.
  bool reader_gone() const;
  // True for the first who asks: the end of a command is told once, by itself or by the signal that ends it.
  bool claim_end() const { return !ended_.exchange(true); }
  // Errc::io with the system's reason when stdout could not be written, Errc::interrupted without a text when
  // its reader went away or a stop was requested while it took nothing.
  Status written() const;

 private:
  bool json_ = false, quiet_ = false;
  std::stop_token stop_;
  Listener listener_;
  mutable std::mutex mutex_;  // lines stay whole when a signal ends the command from its own thread
  mutable std::atomic<int> failure_{0};  // errno of the first write that failed
  mutable std::set<std::string> told_;   // errors
  mutable std::atomic<bool> ended_{false};
};

// Columns padded to their widest cell; the first column and those named in `left` are
// left-aligned, others right-aligned.
std::string table_text(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows, const std::vector<int>& left = {});

// Doubles that JSON cannot hold: "NaN", "Infinity", "-Infinity".
Json json_number(double value);
// {"error":{"code":3,"message":"..."}}: with --json the last line of a command that failed.
Json error_json(const Error& error);

}  // namespace gradloom
