#include "engine/base/dates.h"

namespace gradloom {
namespace {

std::string formatted(const char* format, const std::tm& parts) {
  char text[32];
  return std::strftime(text, sizeof text, format, &parts) > 0 ? text : "";
}

}  // namespace

std::string utc_text(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  return formatted("%Y-%m-%dT%H:%M:%SZ", parts);
}

std::string local_time_text(std::time_t time) {
  std::tm parts{};
  localtime_r(&time, &parts);
  return formatted("%Y-%m-%d %H:%M", parts);
}

}  // namespace gradloom
