#include "worker/train/hooks/progress.h"

#include <cstdio>
#include <utility>

namespace worker {

Progress::Progress(Options options) : options_(std::move(options)) {}

void Progress::step(const agent::rank::StepReport& report, bool /*evaluated*/) {
  const auto now = options_.now();
  if (first_ < 0) {
    first_ = report.step;
    began_ = said_ = now;
    return;
  }
  if (now - said_ < kPause || report.step >= options_.steps) return;
  said_ = now;
  const double each = std::chrono::duration<double>(now - began_).count() / static_cast<double>(report.step - first_);
  const auto left = static_cast<double>(options_.steps - report.step) * each;
  char text[128];
  std::snprintf(text, sizeof text, "%.0f %% of %lld steps, epoch %.2f, about ",
                100.0 * static_cast<double>(report.step) / static_cast<double>(options_.steps),
                static_cast<long long>(options_.steps), static_cast<double>(report.step) * options_.epochs_a_step);
  options_.say(text + time_text(std::chrono::seconds(static_cast<std::int64_t>(left))) + " left");
}

std::string time_text(std::chrono::seconds time) {
  constexpr std::int64_t kMinute = 60, kHour = 3600;
  const std::int64_t s = time.count();
  char text[48];
  if (s < kMinute) {
    std::snprintf(text, sizeof text, "%llds", static_cast<long long>(s));
  } else if (s < kHour) {
    std::snprintf(text, sizeof text, "%lldm%02llds", static_cast<long long>(s / kMinute),
                  static_cast<long long>(s % kMinute));
  } else {
    std::snprintf(text, sizeof text, "%lldh%02lldm", static_cast<long long>(s / kHour),
                  static_cast<long long>(s % kHour / kMinute));
  }
  return text;
}

}  // namespace worker
