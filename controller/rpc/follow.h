#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "service/controller.h"

namespace rpc {

/// Counts the open streams of a server and ends them all. Thread-safe.
class Streams {
 public:
  explicit Streams(int most) : most_(most) {}

  /// Runs `body` as one of at most `most` streams; beyond, RESOURCE_EXHAUSTED.
  grpc::Status run(const std::function<grpc::Status()>& body);
  std::size_t open() const;

  /// Every stream ends soon.
  void stop();
  /// Waits for `time`, or until stop(). False when stopping.
  bool pause(core::Millis time);
  bool stopping() const;

 private:
  const int most_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  int open_ = 0;
  bool stopping_ = false;
};

/// What a stream waits with: for news of a job (0: any), while client and server are there. Used by one thread.
class Follow {
 public:
  Follow(runtime::Controller& controller, Streams& streams, const grpc::ServerContext& context, core::JobId job);

  /// Waits until something may have changed since the last call (or the construction), at least kMinTurn so that a
  /// busy job costs its watchers a bounded number of looks, at most kMaxTurn. False: the stream must end with status().
  bool next();
  /// False: the stream must end with status().
  bool alive() const;
  grpc::Status status() const;

  static constexpr core::Millis kMinTurn{100};
  /// Also how soon the client's leaving is noticed.
  static constexpr core::Millis kMaxTurn{250};

 private:
  runtime::Controller& controller_;
  Streams& streams_;
  const grpc::ServerContext& context_;
  core::JobId job_;
  std::uint64_t seen_;
};

}  // namespace rpc
