#include "rank/grpc_unsent_file.h"

#include <fcntl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace worker {
namespace {

std::string delimited(const muster::v1::HeartbeatRequest& request) {
  std::ostringstream out;
  google::protobuf::util::SerializeDelimitedToOstream(request, &out);
  return out.str();
}

/// Empty, or what went wrong.
std::string write_all(int fd, const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto count = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::strerror(errno);
    at += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

std::string UnsentFile::collect(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news) {
  std::string bytes;
  if (path_.empty() || !problem_.empty()) return bytes;
  for (bool more = true; more;) {
    auto request = news;
    const auto batch = outbox.fill(request, kept_steps_, kept_checkpoints_);
    bytes += delimited(request);
    kept_steps_ = batch.first_step + batch.steps;
    kept_checkpoints_ = batch.first_checkpoint + batch.checkpoints;
    more = batch.steps == GrpcOutbox::kBatch || batch.checkpoints == GrpcOutbox::kBatch;
  }
  return bytes;
}

// Opened anew each time: on a network folder, closing is what makes it visible to others.
void UnsentFile::append(const std::string& bytes) {
  if (bytes.empty()) return;
  bytes_ += static_cast<std::int64_t>(bytes.size());
  if (bytes_ > kMostBytes) {
    problem_ = "it has grown to " + std::to_string(kMostBytes >> 20) + " MiB";
    return;
  }
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) {
    problem_ = std::strerror(errno);
    return;
  }
  problem_ = write_all(fd, bytes);
  if (::close(fd) != 0 && problem_.empty()) problem_ = std::strerror(errno);
}

void UnsentFile::drop() {
  if (bytes_ == 0) return;
  ::unlink(path_.c_str());
  bytes_ = 0;
  problem_.clear();
}

}  // namespace worker
