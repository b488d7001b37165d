#pragma once

#include <functional>

#include "rpc/follow.h"

namespace rpc {

/// Sends the log of a job's ranks, see LogsRequest. `send` returns false when the client is gone.
///
/// Following waits for what does not exist yet (attempt, file), goes on to the next attempt when none was asked for,
/// and ends when nobody writes any more and everything was sent. Following the last lines begins with an empty chunk a
/// rank, so that a client which loses the connection knows where they began. Memory: one chunk of 64 KiB, whatever the
/// logs hold.
grpc::Status stream_logs(runtime::Controller& controller, Follow& follow, const muster::v1::LogsRequest& request,
                         const std::function<bool(const muster::v1::LogChunk&)>& send);

}  // namespace rpc
