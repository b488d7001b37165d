#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace rpc {

/// musterd's own calls among those of the ranks. A word goes the whole way of a heartbeat: through a socket, and
/// through the threads that read from all ranks. So it is read when the heartbeats that came before it have been read.
/// See common::Reading. Thread-safe.
class ReadingProbe {
 public:
  /// `connect` hands one end of a pair of sockets to the server.
  ReadingProbe(common::Reading& reading, std::function<void(int socket)> connect);
  ~ReadingProbe() { stop(); }

  /// Sends words from now on. Call it when the server takes connections.
  void start();
  /// No word is under way when this returns; again is a no-op.
  void stop();
  /// The server's side, in the thread that reads the word: notes it. False: the call is a rank's.
  bool took(const grpc::CallbackServerContext& context, const muster::v1::HeartbeatRequest& word);

 private:
  void send();
  bool connect_if_broken();

  common::Reading& reading_;
  const std::function<void(int)> connect_;
  const std::string secret_;
  std::unique_ptr<muster::v1::RankService::Stub> stub_;  // of the loop's thread; null: there is no connection
  std::mutex mutex_;
  std::uint64_t next_ = 0;  // the word to be sent; 0: none
  bool stopping_ = false;
  grpc::ClientContext* sent_ = nullptr;  // of the word under way
  common::Loop loop_;
};

}  // namespace rpc
