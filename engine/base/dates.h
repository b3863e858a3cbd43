// Points in time as text.
#pragma once

#include <ctime>
#include <string>

namespace gradloom {

std::string utc_text(std::time_t time);         // "2026-11-20T04:31:05Z"
std::string local_time_text(std::time_t time);  // to the minute: "2026-11-20 05:31"

}  // namespace gradloom
