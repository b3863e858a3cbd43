// The far end of a window that shows a session of this machine (`gradloom serve`, which ssh starts): the session and the model of its
// newest run go to `out`, and every later state of the session as the blocks that changed (protocol.h).
#pragma once

#include <stop_token>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

// Until nobody holds the other end of `in`. A session that is not there yet is waited for. Errors: the session's; Errc::io where `out`
// takes nothing more.
Status serve_session(const std::string& session, int in, int out, std::stop_token stop);

}  // namespace gradloom
