#pragma once

#include <string>

#include "store/store.h"

namespace store {

// Rules that both stores share.

/// Throws kConflict unless the job's version is one more than the stored one.
void require_next(const core::Job& job, std::int64_t stored_version);
/// The kConflict error for a request id that was used before.
Error request_taken(const std::string& request_id);

/// The job's row in lists.
JobRow row_of(const core::Job& job);

}  // namespace store
