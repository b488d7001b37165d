#pragma once

#include "controller/service/parts.h"

namespace service {

/// Brings the executor's truth and the store together after a start: every attempt that has not ended is watched again,
/// with time for its ranks to find the new controller, and adopted by the executor, whose facts tell what happened
/// meanwhile. Actions that were under way are the ActionRunner's: they are still in the outbox.
///
/// After Executor::start(). One job's trouble is logged and does not keep the others from being taken over. Returns
/// whether an attempt runs.
bool take_over_attempts(const Parts& parts);

}  // namespace service
