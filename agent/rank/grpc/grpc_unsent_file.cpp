#include "agent/rank/grpc/grpc_unsent_file.h"

#include <fcntl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/room.h"

namespace agent::rank {
namespace {

std::string delimited(const muster::v1::HeartbeatRequest& request) {
  std::ostringstream out;
  google::protobuf::util::SerializeDelimitedToOstream(request, &out);
  return out.str();
}

/// Writes from the front of `bytes`, as far as it goes, and takes that away. Returns 0 or an errno.
int write_some(int fd, std::string& bytes) {
  while (!bytes.empty()) {
    const auto count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.erase(0, static_cast<std::size_t>(count));
  }
  return 0;
}

int open_for_append(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

void UnsentFile::reserve() {
  if (path_.empty()) return;
  const int fd = open_for_append(path_);
  if (fd < 0) return;
  reserved_ = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, kReservedBytes) == 0;
  ::close(fd);
  if (!reserved_ && empty()) ::unlink(path_.c_str());
}

std::string UnsentFile::collect(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news) {
  std::string bytes;
  if (path_.empty() || given_up_) return bytes;
  for (bool more = true; more;) {
    auto request = news;
    const auto batch = outbox.fill(request, kept_steps_, kept_checkpoints_);
    // Nothing new would only fill the disk.
    if (batch.empty() && !news.leaving() && !empty()) break;
    bytes += delimited(request);
    kept_steps_ = batch.first_step + batch.steps;
    kept_checkpoints_ = batch.first_checkpoint + batch.checkpoints;
    more = batch.full;
  }
  return bytes;
}

void UnsentFile::append(const std::string& bytes) {
  pending_ += bytes;
  if (pending_.empty() || given_up_) return;
  if (bytes_ + static_cast<std::int64_t>(pending_.size()) > kMostBytes) {
    problem_ = "it has grown to " + std::to_string(kMostBytes >> 20) + " MiB";
    given_up_ = true;
  } else {
    write_pending();
  }
  if (given_up_) pending_.clear();
}

// Opened anew each time: on a network folder, closing is what makes it visible to others, and tells what it refused.
void UnsentFile::write_pending() {
  const int fd = open_for_append(path_);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const std::string all = pending_;
    error = write_some(fd, pending_);
    if (::close(fd) != 0) {
      error = errno;
      pending_ = all;
      // Which part of it is there nobody knows.
      if (::truncate(path_.c_str(), bytes_) != 0) given_up_ = true;
    }
    bytes_ += static_cast<std::int64_t>(all.size() - pending_.size());
  }
  problem_ = error == 0 ? "" : std::strerror(error);
  if (error != 0 && !base::lacks_room(error)) given_up_ = true;
}

void UnsentFile::drop() {
  const bool was_written = bytes_ > 0;
  bytes_ = 0;
  pending_.clear();
  problem_.clear();
  given_up_ = false;
  if (!was_written) return;
  if (!reserved_ || ::truncate(path_.c_str(), 0) != 0) {
    ::unlink(path_.c_str());
  }
  if (reserved_) reserve();
}

void UnsentFile::remove() {
  const bool there = bytes_ > 0 || reserved_;
  reserved_ = false;
  drop();
  if (there) ::unlink(path_.c_str());
}

}  // namespace agent::rank
