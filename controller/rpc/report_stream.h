#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
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

/// The longest text of a rank or a task: last words, node names, endpoints.
inline constexpr std::size_t kMaxText = 4096;

grpc::Status invalid(const std::string& text);
/// Too many calls of ranks wait.
grpc::Status busy();
/// Refuses requests that no rank and no task sends.
grpc::Status check_key(bool has_key, const muster::v1::RankKey& key);
grpc::Status check(const muster::v1::HeartbeatRequest& request);
grpc::Status check(const muster::v1::TaskRequest& request);

template <typename Request, typename Response>
class ReportStreams;

/// The stream of one rank, or of the task beside it, from its opening to its end.
///
/// States: kFirst -> kOpening -> kReading -> kEnding. The thread that reads a request notes it: no other thread takes
/// part, unless something must be written. Opening and writing go through the pool. One answer is under way at a time;
/// of the others only the newest waits.
template <typename Request, typename Response>
class ReportStream final : public grpc::ServerBidiReactor<Request, Response>,
                           public std::enable_shared_from_this<ReportStream<Request, Response>> {
 public:
  ReportStream(ReportStreams<Request, Response>& streams, const grpc::CallbackServerContext& context)
      : streams_(streams), context_(context) {}
  /// `self` keeps this alive until gRPC is done with it.
  void begin(std::shared_ptr<ReportStream> self);
  /// Ends the stream; again is a no-op.
  void end(grpc::Status status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void open(const std::string& token);
  void take();
  void tell(const Response& answer);
  void finish(std::unique_lock<std::mutex>& lock);

  ReportStreams<Request, Response>& streams_;
  const grpc::CallbackServerContext& context_;
  std::shared_ptr<ReportStream> self_;
  std::shared_ptr<ranks::StreamOf<Request>> taker_;  // of the reading thread, once it is open
  Request request_;

  std::mutex mutex_;
  bool is_writing_ = false;
  bool is_finished_ = false;
  Response writing_;
  std::optional<Response> next_;
  std::optional<grpc::Status> ending_;
};

/// All streams of one kind that are open, and what they share. Thread-safe.
template <typename Request, typename Response>
class ReportStreams {
 public:
  /// Opens the controller's end of a stream.
  using Open = std::function<base::Outcome<std::shared_ptr<ranks::StreamOf<Request>>>(
      const muster::v1::RankKey& key, const std::string& token, ranks::Tell<Response> tell)>;

  ReportStreams(Open open, const Callers& callers, Pool& pool)
      : open_taker_(std::move(open)), callers_(callers), pool_(pool) {}
  grpc::ServerBidiReactor<Request, Response>* open(const grpc::CallbackServerContext& context);
  /// Ends all, and every later one at once.
  void stop();

 private:
  friend class ReportStream<Request, Response>;
  const Open open_taker_;
  const Callers& callers_;
  Pool& pool_;
  std::mutex mutex_;
  std::set<std::shared_ptr<ReportStream<Request, Response>>> open_;
  bool stopping_ = false;
};

using BeatStreams = ReportStreams<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
using TaskStreams = ReportStreams<muster::v1::TaskRequest, muster::v1::TaskResponse>;

}  // namespace rpc
