#pragma once

#include <functional>

#include "rpc/follow.h"

namespace rpc {

/// Sends the log of a job's ranks, see LogsRequest. `send` returns false when the client is gone.
///
/// With `follow` the stream waits for an attempt or a file that does not exist yet. If the request names no attempt,
/// the stream goes on to the next attempt. It ends when no process writes any more and everything was sent. If the
/// request asks for the last lines, the stream begins with an empty chunk for each rank, so that a client that loses
/// the connection knows where these lines began. Uses one chunk of 64 KiB of memory.
grpc::Status stream_logs(service::Controller& controller, Follow& follow, const muster::v1::LogsRequest& request,
                         const std::function<bool(const muster::v1::LogChunk&)>& send);

}  // namespace rpc
