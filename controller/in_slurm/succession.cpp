#include "controller/in_slurm/succession.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/durable_file.h"
#include "base/host_name.h"
#include "base/words.h"
#include "controller/common/ready_file.h"

namespace in_slurm {
namespace {

constexpr std::size_t kMostScriptBytes = std::size_t{1} << 20, kMostClaimBytes = 4096;
/// A musterd looks at the claim every kLookEvery, and a disk takes its time.
constexpr core::Millis kOthersLeaveWithin = 4 * Succession::kLookEvery;

std::filesystem::path claim_file(const std::filesystem::path& data_folder) {
  return data_folder / "musterd.claim";
}

std::string claim_of(const OwnJob& own) {
  return to_string(own.id) + " " + base::host_name() + " " + std::to_string(::getpid()) + "\n";
}

std::string why_not_taken(const slurm::SubmitAnswer& answer) {
  if (const auto* no = std::get_if<slurm::Refused>(&answer)) return no->why;
  if (const auto* none = std::get_if<slurm::Unreachable>(&answer)) return none->why;
  if (const auto* unsure = std::get_if<slurm::Unsure>(&answer)) return unsure->why;
  return {};
}

}  // namespace

Succession::Succession(slurm::Scheduler& slurm, OwnJob own, Leave leave, bool threads)
    : slurm_(slurm),
      own_(std::move(own)),
      leave_(std::move(leave)),
      loop_("succession", "the successor could not be looked for", threads, [this] { return step(); }) {}

void Succession::start() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(has_started_, true)) return;
  }
  loop_.start();
}

void Succession::queue_and_stop() {
  loop_.close();
  looks_until_listing_ = 0;
  step();
}

std::string Succession::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

void Succession::set_problem(std::string problem) {
  std::lock_guard lock(mutex_);
  if (!problem.empty() && problem != problem_) spdlog::warn(problem);
  problem_ = std::move(problem);
}

std::optional<core::Millis> Succession::step() {
  const auto claimed = base::read_small_file(claim_file(own_.data_folder), kMostClaimBytes);
  std::string why;
  if (!claimed.empty() && claimed != claim_of(own_)) {
    why = "another musterd has claimed " + own_.data_folder.native() + " (Slurm job, host and process " +
          std::string(base::trimmed(claimed)) + ")";
  } else if (looks_until_listing_-- <= 0) {
    looks_until_listing_ = kLooksAListing;
    why = look_at_slurm();
  }
  if (why.empty()) return kLookEvery;
  leave_(why);
  return std::nullopt;
}

std::string Succession::look_at_slurm() {
  const auto jobs = slurm_.list(own_.user);
  if (!jobs) {
    set_problem("whether a successor of Slurm job " + to_string(own_.id) + " is queued is not known: " + jobs.why() +
                "; musterd asks again");
    return {};
  }
  const auto own = std::ranges::find(*jobs, own_.id, &slurm::ListedJob::id);
  // A slurmctld that has lost its last seconds gives the number to another job.
  if (own != jobs->end() && own->comment == comment_of(own_.data_folder)) {
    const auto phase = slurm::classify(own->state.state);
    if (phase == slurm::JobPhase::kEnded || phase == slurm::JobPhase::kQueued) {
      return "Slurm says that job " + to_string(own_.id) + ", in which this musterd runs, is " + own->state.text;
    }
  }
  set_problem(keep_one(standing_of(*jobs, comment_of(own_.data_folder))));
  return {};
}

std::string Succession::keep_one(const Standing& standing) {
  const auto& queued = standing.queued;
  if (queued.size() > 1) {
    std::vector<slurm::JobId> surplus;
    for (auto job = queued.begin() + 1; job != queued.end(); ++job) surplus.push_back(job->id);
    slurm_.cancel(surplus);
  }
  if (!queued.empty()) return {};
  const auto none = "no successor of Slurm job " + to_string(own_.id) + " is queued, so musterd ends with this job: ";
  const auto file = script_file(own_.data_folder);
  const auto script = base::read_small_file(file, kMostScriptBytes);
  if (script.empty()) return none + file.native() + " is not there; muster up --in-slurm writes it again";
  const auto answer =
      slurm_.submit(script, {"--begin=now+" + std::to_string(kNotBefore.count())}, {}, environment_of_job());
  if (const auto* id = std::get_if<slurm::JobId>(&answer)) {
    spdlog::info("the successor of Slurm job {} is job {}", to_string(own_.id), to_string(*id));
    return {};
  }
  return none + why_not_taken(answer) + "; musterd tries again";
}

void claim(const OwnJob& own) {
  base::write_file_durably(claim_file(own.data_folder), claim_of(own));
}

core::Millis wait_after_claim(const std::filesystem::path& data_folder) {
  const auto running = common::who_runs(data_folder);
  return running.kind == common::Running::Kind::kElsewhere ? kOthersLeaveWithin : core::Millis(0);
}

std::string address_of_node(slurm::Scheduler& slurm, const std::string& node) {
  const auto nodes = slurm.nodes();
  if (!nodes) return {};
  const auto found = std::ranges::find(*nodes, node, &slurm::Node::name);
  return found == nodes->end() ? std::string() : found->address;
}

}  // namespace in_slurm
