#include "ranks/liveness_rules.h"

namespace ranks {

LivenessRules liveness_rules(const muster::v1::JobSpec& spec) {
  const auto& l = spec.liveness();
  LivenessRules rules;
  rules.silent_after = core::Millis(l.silent_after_ms());
  rules.silent_after_vouched = core::Millis(l.silent_after_vouched_ms());
  rules.hung_after = core::Millis(l.hung_after_ms());
  rules.join_within = core::Millis(l.join_within_ms());
  rules.stop_grace = core::Millis(spec.resources().stop_grace_ms());
  rules.time_limit = core::Millis(spec.resources().time_limit_ms());
  rules.heartbeats = spec.has_recipe();
  return rules;
}

}  // namespace ranks
