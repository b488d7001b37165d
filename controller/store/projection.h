#pragma once

#include <string>

#include "store/store.h"

namespace store {

// What both stores derive from events and metrics in the same way.

/// Throws kConflict unless `job` is one version ahead of what is stored.
void require_next(const core::Job& job, std::int64_t stored_version);
/// The kConflict of a request id that was used before.
Error request_taken(const std::string& request_id);

/// A job's row in lists, from the whole job.
JobRow row_of(const core::Job& job);

}  // namespace store
