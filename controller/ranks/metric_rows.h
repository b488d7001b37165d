#pragma once

#include <vector>

#include "muster/v1/rank_service.pb.h"
#include "store/store.h"

namespace ranks {

/// A reported step, as the store has it. Values whose names are no names of series are left out.
store::MetricRow row_of(const core::AttemptKey& key, core::RankNumber rank, const muster::v1::StepMetric& m);

/// What the heartbeat declares; nothing of a series whose name is none.
std::vector<store::DeclaredSeries> declared_of(const core::AttemptKey& key,
                                               const muster::v1::HeartbeatRequest& request);

}  // namespace ranks
