#pragma once

#include <cstdint>
#include <functional>

#include "controller/store/sqlite_metrics.h"

namespace store {

/// Hours since 1970.
std::int64_t hour_of(core::Time time);

/// Whether an attempt has ended, so that it will tell no further step.
using IsOver = std::function<bool(core::JobId, core::AttemptNumber)>;

/// As Store::age_metrics(), in the transaction of the caller.
///
/// An hour of an attempt ages twice: first its rows of ranks are deleted, and then its step rows, as far as buckets
/// hold them: of an attempt that is over all of them, and of others all but the newest. What may be deleted is noted
/// before the first row is, in the same transaction: a row that is sent again meanwhile is left out, and never counted
/// twice.
bool age_metrics(Connection& connection, MetricBuckets& buckets, core::Time now, const MetricsKeep& keep,
                 std::uint32_t most, const IsOver& is_over);

/// Gives some free pages at the end of the file back to the disk, if so many are free that the next rows need them not.
/// Returns true if there are more.
bool give_back_pages(Connection& connection);

}  // namespace store
