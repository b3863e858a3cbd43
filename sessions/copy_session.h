// A session as it is at one moment, as a file of its own, while others may write it.
#pragma once

#include <string>

#include "engine/base/result.h"

namespace gradloom {

// Pages keep their places, so two copies differ where the session does. `to` is overwritten. Errors: as Store::open; Errc::io for
// what cannot be written, or a session that never stood still.
Status copy_session(const std::string& from, const std::string& to);
// Changes when the session does: sizes and times of its file and its log. Empty: there is no such file, or nothing in it yet.
std::string session_stamp(const std::string& path);

}  // namespace gradloom
