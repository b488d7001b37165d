#pragma once

#include <filesystem>

#include "beside/fence.h"
#include "core/types.h"

namespace actions {

/// A checkpoint folder belongs to the attempt that `<folder>/FENCE` names ("attempt 3\n"); ranks of an older one find
/// that out before they make a checkpoint valid, under a shared flock on `<folder>/FENCE.lock`.
///
/// Raises it to `attempt`, never lowers it, under an exclusive flock waited for at most `patience`: an old rank that
/// hangs inside its save must not keep the next attempt from starting. Creates the folder. Returns false if the lock
/// was not to be had. The fence is raised all the same: that rank looks at it again when it has published, and
/// withdraws what it has. Throws std::system_error when the folder takes no writes.
bool raise_fence(const std::filesystem::path& folder, core::AttemptNumber attempt, core::Millis patience);

using beside::read_fence;

}  // namespace actions
