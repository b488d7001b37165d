#pragma once

#include "core/job.h"
#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// Where an attempt stands when one of its ranks speaks.
struct AttemptStanding {
  bool current = false;   // recorded and not ended
  bool upcoming = false;  // launched, but that is not recorded yet
  muster::v1::Directive directive = muster::v1::DIRECTIVE_STOP;
  core::Cause cause = core::Cause::kNone;  // why it ends, of a current one
  bool operator==(const AttemptStanding&) const = default;
};

AttemptStanding standing_of(const core::Job& job, core::AttemptNumber number);

}  // namespace ranks
