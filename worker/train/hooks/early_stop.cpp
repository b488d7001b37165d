#include "worker/train/hooks/early_stop.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "worker/train/step_measures.h"

namespace worker {

EarlyStop::EarlyStop(spec::Series series, std::int64_t patience, double least)
    : series_(std::move(series)), patience_(patience), least_(least) {}

void EarlyStop::step(const agent::rank::StepReport& report, bool evaluated) {
  const auto value = evaluated ? value_of(report.values, series_.name) : std::nullopt;
  if (!value) return;
  const double by = !best_ ? 0 : series_.better == spec::Better::kHigher ? *value - *best_ : *best_ - *value;
  if (std::isfinite(*value) && (!best_ || by > least_)) {
    best_ = *value;
    best_step_ = report.step;
    without_ = 0;
  } else {
    ++without_;
  }
}

std::string EarlyStop::wants_stop() const {
  if (without_ < patience_) return {};
  char text[160];
  if (!best_) {
    std::snprintf(text, sizeof text, "%lld validation%s found no value", static_cast<long long>(without_),
                  without_ == 1 ? " has" : "s have");
  } else {
    char by[40] = "";
    if (least_ > 0) std::snprintf(by, sizeof by, "more than %.6g ", least_);
    std::snprintf(text, sizeof text, "%lld validation%s found nothing %sbetter than %.6g at step %lld",
                  static_cast<long long>(without_), without_ == 1 ? " has" : "s in a row have", by, *best_,
                  static_cast<long long>(best_step_));
  }
  return "stopped early: " + std::string(text) + " (" + series_.name + ")";
}

void EarlyStop::save(fsdp::Json& extra) const {
  fsdp::Json& own = extra["early_stop"];
  own["series"] = series_.name;
  own["without"] = without_;
  if (!best_) return;
  own["best"] = *best_;
  own["step"] = best_step_;
}

/// The count of another series begins anew.
void EarlyStop::load(const fsdp::Json& extra) {
  const fsdp::Json* own = extra.find("early_stop");
  if (own == nullptr || own->at("series").as_string() != series_.name) return;
  without_ = own->at("without").as_int();
  if (const fsdp::Json* best = own->find("best")) {
    best_ = best->as_double();
    best_step_ = own->at("step").as_int();
  }
}

}  // namespace worker
