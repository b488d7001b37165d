#include "controller/store/store.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include "controller/store/codec.h"

namespace store {

void require_next(const core::Job& job, std::int64_t stored_version) {
  if (job.version == stored_version + 1) return;
  throw Error(Error::Kind::kConflict, "job " + std::to_string(job.id) + " has changed meanwhile: it is at version " +
                                          std::to_string(stored_version) + ", not " + std::to_string(job.version - 1) +
                                          "; read it again and repeat");
}

Error request_taken(const std::string& request_id) {
  return Error(Error::Kind::kConflict, "request " + request_id + " has been accepted already: look it up");
}

std::string_view to_string(ActionState state) {
  switch (state) {
    case ActionState::kPending:
      return "pending";
    case ActionState::kLaunching:
      return "launching";
    case ActionState::kDone:
      break;
  }
  return "done";
}

AuditRow drain_change(const std::optional<core::Drain>& before, const std::optional<core::Drain>& after,
                      const std::string& user, core::Time at) {
  return {0, at, user, after ? "drain" : "resume", "", encode_drain(before), encode_drain(after)};
}

JobRow row_of(const core::Job& job) {
  JobRow row;
  row.id = job.id;
  row.name = job.name;
  row.user = job.user;
  row.reason = job.reason;
  row.is_command = job.is_command;
  row.state = job.state;
  row.version = job.version;
  row.last_checkpoint_step = job.last_checkpoint_step;
  row.total_steps = job.program.total_steps;
  row.program_status = job.program.status;
  row.submitted_at = job.submitted_at;
  row.ended_at = job.ended_at;
  row.next_attempt_at = job.next_attempt_at;
  row.sweep = job.sweep.sweep;
  row.sweep_index = job.sweep.index;
  row.removed_at = job.removed_at;
  const auto started =
      std::ranges::find_if(job.attempts, [](const core::Attempt& attempt) { return attempt.started_at.has_value(); });
  if (started != job.attempts.end()) row.started_at = started->started_at;
  if (job.current() != nullptr) {
    row.newest_attempt = *job.current();
    row.newest_attempt->ranks.clear();
    row.newest_attempt->trace.clear();
  }
  return row;
}

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    throw Error(Error::Kind::kOther, "the kernel gives no random bytes for the secret: check that getrandom(2) works");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace store
