#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "muster/v1/rank_service.grpc.pb.h"
#include "rpc/call.h"
#include "rpc/pool.h"
#include "service/controller.h"

namespace rpc {

/// Too many calls of ranks wait.
grpc::Status busy();
/// Refuses requests that no rank sends.
grpc::Status check_key(bool has_key, const muster::v1::RankKey& key);
grpc::Status check(const muster::v1::HeartbeatRequest& request);

class BeatStreams;

/// One rank's stream of heartbeats, from its opening to its end.
///
/// States: kFirst -> kOpening -> kReading -> kEnding. The thread that reads a request notes it: no other thread takes
/// part, unless something must be written. Opening and writing go through the pool. One answer is under way at a time;
/// of the others only the newest waits.
class BeatStream final : public grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>,
                         public std::enable_shared_from_this<BeatStream> {
 public:
  BeatStream(BeatStreams& streams, const grpc::CallbackServerContext& context) : streams_(streams), context_(context) {}
  /// `self` keeps this alive until gRPC is done with it.
  void begin(std::shared_ptr<BeatStream> self);
  /// Ends the stream; again is a no-op.
  void end(grpc::Status status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void open(const std::string& token);
  void take();
  void tell(const muster::v1::BeatResponse& answer);
  void finish(std::unique_lock<std::mutex>& lock);

  BeatStreams& streams_;
  const grpc::CallbackServerContext& context_;
  std::shared_ptr<BeatStream> self_;
  std::shared_ptr<ranks::RankStream> rank_;  // of the reading thread, once it is open
  muster::v1::HeartbeatRequest request_;

  std::mutex mutex_;
  bool is_writing_ = false;
  bool is_finished_ = false;
  muster::v1::BeatResponse writing_;
  std::optional<muster::v1::BeatResponse> next_;
  std::optional<grpc::Status> ending_;
};

/// All streams that are open, and what they share. Thread-safe.
class BeatStreams {
 public:
  BeatStreams(service::Controller& controller, const Callers& callers, Pool& pool)
      : controller_(controller), callers_(callers), pool_(pool) {}
  grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>* open(
      const grpc::CallbackServerContext& context);
  /// Ends all, and every later one at once.
  void stop();

 private:
  friend class BeatStream;
  service::Controller& controller_;
  const Callers& callers_;
  Pool& pool_;
  std::mutex mutex_;
  std::set<std::shared_ptr<BeatStream>> open_;
  bool stopping_ = false;
};

}  // namespace rpc
