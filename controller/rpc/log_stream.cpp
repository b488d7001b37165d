#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "logs/log_tail.h"
#include "rpc/call.h"
#include "rpc/follow.h"
#include "wire/logs.h"

namespace rpc {
namespace {

using Send = std::function<bool(const muster::v1::LogChunk&)>;

/// How many chunks of one rank are sent in a row, so that a rank with a long log does not delay the others.
constexpr int kChunksATurn = 16;
constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

/// The log file of one rank.
struct RankLog {
  core::RankNumber rank = 0;
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t end = kNoEnd;  // where the stream stops, if it does not follow
};

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::uint32_t world_size(const muster::v1::Job& job) {
  const auto& r = job.spec().resources();
  return std::max(1u, r.nodes()) * std::max(1u, r.ranks_per_node());
}

const muster::v1::LogPosition* position_of(const muster::v1::LogsRequest& request, core::AttemptNumber attempt,
                                           core::RankNumber rank) {
  const auto found = std::ranges::find_if(request.from(), [&](const muster::v1::LogPosition& position) {
    return position.attempt() == attempt && position.rank() == rank;
  });
  return found == request.from().end() ? nullptr : &*found;
}

/// The attempt that a stream begins with; 0: the job has no attempt yet.
core::AttemptNumber first_attempt(const muster::v1::Job& job, const muster::v1::LogsRequest& request) {
  if (request.attempt() != 0 || job.attempts_size() == 0) return request.attempt();
  core::AttemptNumber broken_off = 0;
  for (const auto& position : request.from()) broken_off = std::max(broken_off, position.attempt());
  return find_attempt(job, broken_off) != nullptr ? broken_off : job.attempts().rbegin()->number();
}

/// The logs of one attempt.
class AttemptLogs {
 public:
  AttemptLogs(service::Controller& controller, const muster::v1::Job& job, core::AttemptNumber attempt,
              const muster::v1::LogsRequest& request, bool first)
      : attempt_(attempt) {
    const auto add = [&](core::RankNumber rank) {
      RankLog log{rank,
                  rank == proto::kSchedulerLog ? controller.scheduler_log_path(job.id(), attempt)
                                               : controller.log_path(job.id(), attempt, rank),
                  0, kNoEnd};
      if (const auto* from = position_of(request, attempt, rank)) {
        log.offset = from->offset();
      } else if (first && request.tail_lines() > 0) {
        log.offset = logs::last_lines_offset(log.path, request.tail_lines());
      }
      if (!request.follow()) log.end = logs::last_lines_offset(log.path, 0);
      logs_.push_back(std::move(log));
    };
    if (request.has_rank()) {
      add(request.rank());
    } else {
      for (core::RankNumber rank = 0; rank < world_size(job); ++rank) add(rank);
    }
  }

  /// Sends an empty chunk with the first offset of each log.
  bool send_beginnings(const Send& send) const {
    return std::ranges::all_of(logs_, [&](const RankLog& log) { return send(chunk_of(log, {})); });
  }

  /// Sends everything that can be read now. `finished`: no process writes any more. `live`: the text was written since
  /// the last call. Returns false if the stream must end.
  bool send_all(bool finished, bool live, const Follow& follow, const Send& send) {
    live_ = live;
    bool more = true;
    while (more) {
      more = false;
      for (auto& log : logs_) {
        if (!follow.alive() || !send_some(log, finished, send, more)) return false;
      }
    }
    return true;
  }

 private:
  muster::v1::LogChunk chunk_of(const RankLog& log, std::string text) const {
    muster::v1::LogChunk chunk;
    chunk.set_attempt(attempt_);
    chunk.set_rank(log.rank);
    chunk.set_data(std::move(text));
    chunk.set_next_offset(log.offset);
    if (live_) chunk.set_seen_at_ms(now_ms());
    return chunk;
  }

  bool send_some(RankLog& log, bool finished, const Send& send, bool& more) const {
    for (int i = 0; i < kChunksATurn && log.offset < log.end; ++i) {
      auto piece = logs::read_from(log.path, log.offset, logs::kChunkBytes, finished);
      if (piece.text.empty()) return true;
      log.offset = piece.next_offset;
      if (!send(chunk_of(log, std::move(piece.text)))) return false;
      more = true;
    }
    return true;
  }

  core::AttemptNumber attempt_;
  bool live_ = false;
  std::vector<RankLog> logs_;
};

/// Checks a request for the scheduler's log.
grpc::Status check_scheduler(const muster::v1::Job& job, const muster::v1::LogsRequest& request) {
  const auto* attempt = find_attempt(job, first_attempt(job, request));
  if (attempt == nullptr || !attempt->scheduler_job().empty()) return grpc::Status::OK;
  return failure(grpc::StatusCode::FAILED_PRECONDITION,
                 "attempt " + std::to_string(attempt->number()) + " of job " + std::to_string(job.id()) +
                     " has no Slurm log: Slurm did not start it; leave --slurm out");
}

grpc::Status check_request(const muster::v1::Job& job, const muster::v1::LogsRequest& request) {
  const auto name = "job " + std::to_string(job.id());
  if (const auto status = check_attempt(job, request.attempt()); !status.ok()) return status;
  if (request.rank() == proto::kSchedulerLog) return check_scheduler(job, request);
  if (request.has_rank() && request.rank() >= world_size(job)) {
    return failure(grpc::StatusCode::INVALID_ARGUMENT, name + " has no rank " + std::to_string(request.rank()) +
                                                           "; its ranks are 0 to " +
                                                           std::to_string(world_size(job) - 1));
  }
  return grpc::Status::OK;
}

}  // namespace

grpc::Status stream_logs(service::Controller& controller, Follow& follow, const muster::v1::LogsRequest& request,
                         const Send& send) {
  std::optional<AttemptLogs> logs;
  core::AttemptNumber attempt = request.attempt();
  bool live = false;  // all older text was sent, so text that is found now is new
  bool first = true, say_beginnings = request.follow() && request.tail_lines() > 0;
  while (true) {
    // The state is read before the files. So if the attempt has ended, everything it wrote is read below.
    const auto job = controller.get(request.job_id());
    if (!job.ok()) return failure(job.refusal());
    if (first) {
      if (const auto status = check_request(job.value(), request); !status.ok()) return status;
      attempt = first_attempt(job.value(), request);
    }
    // Null before the first attempt exists.
    const auto* now = find_attempt(job.value(), attempt == 0 ? 1 : attempt);
    const bool job_ended = is_ended_job(job.value().state());
    if (now != nullptr) {
      attempt = now->number();
      const bool finished = job_ended || now->state() == "ended";
      if (!logs) {
        logs.emplace(controller, job.value(), attempt, request, first);
        if (std::exchange(say_beginnings, false) && !logs->send_beginnings(send)) return follow.status();
      }
      if (!logs->send_all(finished || !request.follow(), live, follow, send)) return follow.status();
      if (!request.follow() || (finished && request.attempt() != 0)) return grpc::Status::OK;
      if (finished && find_attempt(job.value(), attempt + 1) != nullptr) {
        ++attempt;
        logs.reset();
        first = false;
        continue;
      }
    }
    if (!request.follow() || job_ended) return grpc::Status::OK;
    first = false;
    if (!follow.next()) return follow.status();
    live = true;
  }
}

}  // namespace rpc
