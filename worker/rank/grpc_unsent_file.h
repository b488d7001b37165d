#pragma once

#include <cstdint>
#include <string>

#include "muster/v1/rank_service.pb.h"
#include "rank/grpc_outbox.h"

namespace worker {

/// What the controller could not be told while it was away, kept on disk: a rank may end, or be killed, before it is
/// back. The controller reads it when it learns that the rank has ended.
///
/// The file holds HeartbeatRequests, each behind its length (protobuf's delimited form), oldest first. What stands in
/// it twice, or was sent after all, is no harm. Not thread-safe; nothing throws: a disk that takes no more costs only
/// this.
class UnsentFile {
 public:
  /// "" keeps nothing. The folder is made when there is something to keep.
  explicit UnsentFile(std::string path) : path_(std::move(path)) {}

  /// What `outbox` holds and the file does not, in batches, each in a copy of `news`: to be appended at once.
  std::string collect(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news);
  /// May take as long as the disk does.
  void append(const std::string& bytes);
  /// All of it has been sent.
  void drop();
  /// Empty, or why nothing more is kept.
  const std::string& problem() const { return problem_; }

  /// A file does not grow beyond this: about half a million steps.
  static constexpr std::int64_t kMostBytes = 64 << 20;

 private:
  const std::string path_;
  std::uint64_t kept_steps_ = 0, kept_checkpoints_ = 0;  // as the outbox counts them
  std::int64_t bytes_ = 0;
  std::string problem_;
};

}  // namespace worker
