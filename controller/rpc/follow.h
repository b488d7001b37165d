#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "service/controller.h"

namespace rpc {

/// Counts the open streams that hold a thread, and ends them all. Thread-safe.
class Streams {
 public:
  explicit Streams(int most) : most_(most) {}

  /// Runs `body` as a stream. Returns RESOURCE_EXHAUSTED if `most` streams are open.
  grpc::Status run(const std::function<grpc::Status()>& body);
  std::size_t open() const;

  /// Lets every stream end soon.
  void stop();
  /// Waits for `time`, or until stop(). Returns false after stop().
  bool pause(core::Millis time);
  bool stopping() const;

 private:
  const int most_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  int open_ = 0;
  bool stopping_ = false;
};

/// Lets a stream wait for changes of a job (0: of any job), as long as the client is connected and the server runs. For
/// one thread.
class Follow {
 public:
  Follow(service::Controller& controller, Streams& streams, const grpc::ServerContext& context, core::JobId job);

  /// Waits until something may have changed since the last call, or since the construction. Waits at least kMinTurn, so
  /// that a busy job does not keep its watchers busy, and at most kMaxTurn. If it returns false, the stream must end
  /// with status().
  bool next();
  /// If it returns false, the stream must end with status().
  bool alive() const;
  grpc::Status status() const;

  static constexpr core::Millis kMinTurn{100};
  /// A client that has left is noticed within this time.
  static constexpr core::Millis kMaxTurn{250};

 private:
  service::Controller& controller_;
  Streams& streams_;
  const grpc::ServerContext& context_;
  core::JobId job_;
  std::uint64_t seen_;
};

}  // namespace rpc
