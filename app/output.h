// What a command says: human text on stdout, or with --json one JSON object per line and nothing else. Errors
// are one line on stderr.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

using Json = nlohmann::ordered_json;

class Output {
 public:
  explicit Output(bool json = false) : json_(json) {}
  bool json() const { return json_; }
  void set_json(bool on) { json_ = on; }
  void object(const Json& value) const;  // only with --json: one line, flushed; NaN and Inf become strings
  // Only without --json. Control characters other than the ends of lines are escaped, here and in notes.
  void text(const std::string& line) const;
  void note(const std::string& line) const;  // stderr, both modes: "note: ...", one line
  bool terminal() const;                     // progress bars are drawn only there, on stderr
  // Progress 0..1 of something long; overwrites the line on a terminal, silent otherwise. `done` clears it.
  void progress(const std::string& what, double fraction, const std::string& detail) const;
  void progress_done() const;

 private:
  bool json_ = false;
};

// Columns padded to their widest cell; the first column and those named in `left` are left-aligned, others
// right-aligned.
std::string table_text(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows, const std::vector<int>& left = {});

// Doubles that JSON cannot hold: "NaN", "Infinity", "-Infinity".
Json json_number(double value);

}  // namespace gradloom
