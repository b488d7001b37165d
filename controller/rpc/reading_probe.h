#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/hearing.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace rpc {

/// musterd's own stream among those of the ranks. A word goes the whole way of a heartbeat: through a socket, and
/// through the threads that read from all ranks. So it is read when the heartbeats that came before it have been read.
/// See base::Reading. Thread-safe.
class ReadingProbe {
 public:
  /// `connect` hands one end of a pair of sockets to the server.
  ReadingProbe(base::Reading& reading, std::function<void(int socket)> connect);
  ~ReadingProbe() { stop(); }
  ReadingProbe(const ReadingProbe&) = delete;
  ReadingProbe& operator=(const ReadingProbe&) = delete;

  /// The stream has ended when this returns; again is a no-op.
  void stop();

  /// The server's side, if this call is the probe's; null: it is a rank's.
  grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>* accept(
      const grpc::CallbackServerContext& context);

 private:
  class Sender;
  class Receiver;
  void send(std::uint64_t n);

  base::Reading& reading_;
  const std::function<void(int)> connect_;
  const std::string secret_;
  std::mutex mutex_;
  std::shared_ptr<Sender> sender_;  // null: there is no stream
};

}  // namespace rpc
