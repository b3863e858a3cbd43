// The near end: a copy of another machine's session, with the model of its newest run beside it, that follows the session as it grows
// (protocol.h). What the far end says is not trusted: no file is written outside the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/remote/address.h"
#include "app/output.h"
#include "engine/base/result.h"

namespace gradloom {

// Takes the messages of the far end, in order, and keeps the files.
class Mirror {
 public:
  // `folder` is there, and nobody else's.
  explicit Mirror(std::string folder);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Bytes as they arrive. Errors: what the far end says it failed with, as it says it; Errc::bad_input: what is no such message.
  Status take(const char* bytes, std::size_t count);
  // What is to be said to the far end once it has said who it is; then never again.
  std::optional<std::string> answer();

  std::int64_t states() const { return states_; }          // of the session that are whole here
  double fraction() const;                                 // of the file that is arriving; 1: none is
  const std::string& session() const { return session_; }  // here
  const std::string& session_there() const { return session_there_; }
  const std::string& model() const { return model_; }  // here; empty: none came
  const std::string& model_there() const { return model_there_; }

 private:
  struct File;
  Status line(const std::string& text);
  Status hello(const Json& message, const std::string& text);
  Status begin_file(const std::string& name, std::int64_t size);
  Status begin_session(std::int64_t size);
  Status end_file(const std::string& name);

  std::string folder_, session_, session_there_, model_, model_there_, line_, answer_;
  std::unique_ptr<File> file_;  // that is arriving
  std::int64_t part_at_ = 0, part_left_ = 0, states_ = 0;
};

}  // namespace gradloom
