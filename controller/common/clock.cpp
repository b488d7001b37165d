#include "controller/common/clock.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace common {

std::string time_text(core::Time time) {
  const auto ms = time.time_since_epoch().count();
  const std::time_t seconds = static_cast<std::time_t>(ms >= 0 ? ms / 1000 : (ms - 999) / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 48> out{};
  std::snprintf(out.data(), out.size(), "%s.%03dZ", day.data(), static_cast<int>(ms - seconds * 1000));
  return out.data();
}

std::string time_text(const std::optional<core::Time>& time) {
  return time ? time_text(*time) : std::string();
}

}  // namespace common
