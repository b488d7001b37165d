#include "worker/train/fence.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "agent/protocol/files.h"

namespace worker {
namespace {

/// The reason why `attempt` of `job` may not write; empty when it may.
std::string objection(const std::filesystem::path& fence, std::int64_t job, std::int64_t attempt) {
  std::error_code error;
  if (!std::filesystem::exists(fence, error)) {
    return error ? "cannot look at " + fence.native() + ": " + error.message() : std::string();
  }
  std::ifstream in(fence);
  std::string text(64, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  const auto newest = agent::protocol::parse_fence(text);
  if (!newest) return fence.native() + " does not say \"job J attempt N\"; only musterd writes it";
  if (newest->lets(job, attempt)) return {};
  if (newest->job != 0 && newest->job != job) {
    return "job " + std::to_string(newest->job) + " owns this folder now (" + fence.native() + "), this is job " +
           std::to_string(job);
  }
  return "attempt " + std::to_string(newest->attempt) + " owns this job now (" + fence.native() +
         "), this is attempt " + std::to_string(attempt);
}

}  // namespace

Fence::Fence(std::filesystem::path folder, std::int64_t job, std::int64_t attempt)
    : folder_(std::move(folder)), job_(job), attempt_(attempt) {}

std::string Fence::may_write() const {
  return attempt_ == 0 ? std::string() : objection(folder_ / agent::protocol::kFenceFile, job_, attempt_);
}

std::string Fence::may_commit() {
  if (attempt_ == 0) return {};
  release();
  const auto path = folder_ / agent::protocol::kFenceLock;
  lock_ = base::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) return "cannot open " + path.native() + ": " + std::strerror(errno);
  while (::flock(lock_.get(), LOCK_SH) != 0) {
    if (errno == EINTR) continue;
    const std::string why = std::strerror(errno);
    release();
    return "cannot lock " + path.native() + ": " + why;
  }
  std::string against = objection(folder_ / agent::protocol::kFenceFile, job_, attempt_);
  if (!against.empty()) release();
  return against;
}

}  // namespace worker
