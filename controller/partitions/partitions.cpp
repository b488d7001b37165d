#include "controller/partitions/partitions.h"

#include <grp.h>
#include <pwd.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/numbers.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"

namespace partitions {
namespace {

// Entries of a directory service may be large: the buffer grows up to a megabyte.
constexpr std::size_t kFirstBuffer = 4096;
constexpr std::size_t kLargestBuffer = 1 << 20;

template <typename Ask>
void with_buffer(Ask ask) {
  for (std::vector<char> buffer(kFirstBuffer); buffer.size() <= kLargestBuffer; buffer.resize(2 * buffer.size())) {
    if (ask(buffer) != ERANGE) return;
  }
}

std::string group_name(gid_t id) {
  std::string name;
  with_buffer([&](std::vector<char>& buffer) {
    struct group entry {};
    struct group* found = nullptr;
    const int error = ::getgrgid_r(id, &entry, buffer.data(), buffer.size(), &found);
    if (error == 0 && found != nullptr) name = found->gr_name;
    return error;
  });
  return name;
}

// People wait for these, at most ten seconds in all.
constexpr std::chrono::milliseconds kListPatience{5000};
constexpr std::chrono::milliseconds kSubmitPatience{2000};
constexpr std::uint32_t kAuditDefault = 100;
constexpr std::uint32_t kAuditMost = 1000;

bool lacks(const executors::ClusterFacts& facts, const std::string& partition) {
  return !partition.empty() && facts.find(partition) == nullptr;
}

/// Slurm's words for what no waiting mends; they don't say what is wrong.
bool may_never_start(std::string_view reason) {
  constexpr std::string_view kWords[]{"PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints"};
  return std::ranges::find(kWords, reason) != std::end(kWords) || reason.starts_with("ReqNodeNotAvail") ||
         reason.starts_with("Nodes required for job are");
}

}  // namespace

std::vector<std::string> groups_of(const std::string& user) {
  gid_t own = 0;
  bool known = false;
  with_buffer([&](std::vector<char>& buffer) {
    struct passwd entry {};
    struct passwd* found = nullptr;
    const int error = ::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found);
    known = error == 0 && found != nullptr;
    if (known) own = found->pw_gid;
    return error;
  });
  if (!known) return {};
  std::vector<gid_t> ids(kMostGroups);
  int count = kMostGroups;
  if (::getgrouplist(user.c_str(), own, ids.data(), &count) < 0) count = kMostGroups;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (auto name = group_name(ids[static_cast<std::size_t>(i)]); !name.empty()) names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> UserGroups::of(const std::string& user) {
  const auto now = clock_.monotonic();
  {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(user);
    if (found != known_.end() && now < found->second.until) return found->second.groups;
  }
  auto groups = ask_(user);
  std::lock_guard lock(mutex_);
  if (known_.size() >= kMostUsers) known_.clear();
  known_[user] = {now + kRemembered, groups};
  return groups;
}

ClusterWatch::ClusterWatch(executors::Executor& executor, common::Clock& clock, bool threads,
                           std::function<bool()> in_use)
    : executor_(executor),
      clock_(clock),
      threads_(threads),
      in_use_(std::move(in_use)),
      loop_("cluster", "what Slurm says of its partitions could not be used", threads, [this] { return step(); }) {}

void ClusterWatch::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  news_.notify_all();
  loop_.close();
}

std::optional<core::Millis> ClusterWatch::step() {
  const auto in_use = [this] { return in_use_ && in_use_(); };
  bool wanted = false, looked = false;
  {
    std::lock_guard lock(mutex_);
    wanted = std::exchange(wanted_, false);
    looked = std::exchange(looked_, false);
  }
  // The attempts that the facts were in use for may be gone.
  if (wanted || ((looked || in_use()) && clock_.monotonic() - tried_at_ >= kInterval)) refresh();
  {
    // Before the question: who begins to use them meanwhile ends the rest.
    std::lock_guard lock(mutex_);
    rests_ = true;
  }
  if (!in_use()) return std::nullopt;
  std::lock_guard lock(mutex_);
  rests_ = false;
  return std::max(tried_at_ + kInterval - clock_.monotonic(), core::Millis(0));
}

void ClusterWatch::refresh() {
  std::uint64_t round = 0;
  {
    std::lock_guard lock(mutex_);
    round = ++begun_;
  }
  const auto asked_at = clock_.monotonic();
  tried_at_ = asked_at;
  auto heard = executor_.cluster();
  std::lock_guard lock(mutex_);
  answered_ = round;
  auto next = heard ? *std::move(heard) : executors::ClusterFacts{};
  if (!next.unreachable.empty() && !next.known()) {
    next.partitions = facts_->partitions;
    next.nodes = facts_->nodes;
  }
  if (next.unreachable.empty()) asked_at_ = asked_at;
  facts_ = std::make_shared<const executors::ClusterFacts>(std::move(next));
  news_.notify_all();
}

ClusterWatch::Facts ClusterWatch::known() {
  if (!threads_) refresh();
  std::lock_guard lock(mutex_);
  end_rest();
  return facts_;
}

ClusterWatch::Facts ClusterWatch::ask(std::chrono::milliseconds patience, core::Millis fresh_for) {
  if (!threads_) return known();
  std::unique_lock lock(mutex_);
  const bool fresh = answered_ > 0 && facts_->unreachable.empty() && clock_.monotonic() - asked_at_ < fresh_for;
  if (fresh || !loop_.is_running() || closed_) return facts_;
  wanted_ = true;
  loop_.wake();
  // One that is under way may have begun before the change that somebody wants to see.
  const auto begun = begun_;
  const bool told = news_.wait_for(lock, patience, [&] { return closed_ || answered_ > begun; });
  if (told) return facts_;
  auto late = *facts_;
  late.unreachable = "no answer yet";
  return std::make_shared<const executors::ClusterFacts>(std::move(late));
}

Partitions::Partitions(Parts parts, std::filesystem::path file, bool threads)
    : parts_(std::move(parts)),
      keeper_(parts_.store, parts_.clock, std::move(file), threads, parts_.policies_changed),
      cluster_(parts_.executor, parts_.clock, threads, parts_.in_use),
      groups_(parts_.clock) {}

std::string Partitions::place_of(const muster::v1::JobSpec& spec) const {
  return is_for_slurm(spec) ? jobfile::slurm_text(spec, "partition") : std::string();
}

std::optional<common::Refusal> Partitions::admit(muster::v1::JobSpec& spec, const std::string& user) {
  if (!is_for_slurm(spec)) return std::nullopt;
  const auto book = keeper_.book();
  auto facts = cluster_.known();
  // It may be younger than what is known.
  if (book->empty() && facts->known() && lacks(*facts, jobfile::slurm_text(spec, "partition")))
    facts = cluster_.ask(kSubmitPatience);
  // Groups may cost a question to a directory service.
  const auto who = book->empty() ? Applicant{user, {}} : applicant(user);
  return book->admit(who, *facts, spec);
}

Partitions::Turn Partitions::take_turn(const std::map<std::string, std::uint32_t>& more, const std::string& user) {
  Turn turn;
  const auto book = keeper_.book();
  for (const auto& [partition, count] : more) {
    const auto* policy = book->find(partition);
    if (policy == nullptr || !policy->has_max_queued_jobs_per_user()) continue;
    if (!turn.lock) turn.lock = std::unique_lock(turn_);
    turn.refusal = book->judge_waiting(partition, user, parts_.count_jobs(partition, user).waiting, count);
    if (turn.refusal) break;
  }
  return turn;
}

std::optional<common::Wait> Partitions::why_never(const core::Job& job, const std::string& scheduler_reason) {
  if (job.state != core::JobState::kQueued || job.held || !may_never_start(scheduler_reason)) return std::nullopt;
  const auto spec = parts_.specs.get(job.id);
  const auto facts = cluster_.known();
  if (spec == nullptr || !facts->known()) return std::nullopt;
  const auto never = never_starts(*spec, job.time_limit, *facts);
  if (!never) return std::nullopt;
  const auto id = std::to_string(job.id);
  return common::Wait{
      "It can't start as it is: " + never->why + ".",
      (never->limit ? "muster limit " + id + " " + base::print_duration_ms(never->limit->count()) + "; or "
                    : std::string()) +
          "muster cancel " + id + ", and submit it with " + never->instead + ", or to another partition"};
}

void Partitions::equip(executors::LaunchRequest& request) {
  const auto book = keeper_.book();
  if (book->empty() || !parts_.executor.has_queue(request.executor)) return;
  auto partition = request.slurm.option("partition");
  if (partition.empty()) partition = book->default_partition(*cluster_.known());
  const auto* policy = book->find(partition);
  if (policy == nullptr) return;
  auto& wishes = request.slurm;
  if (!policy->health_check().empty()) {
    wishes.health_check = policy->health_check() + (wishes.health_check.empty() ? "" : "\n" + wishes.health_check);
  }
  wishes.setup.insert(wishes.setup.begin(), policy->setup().begin(), policy->setup().end());
}

common::Outcome<muster::v1::ListPartitionsResponse> Partitions::list(const muster::v1::ListPartitionsRequest& request) {
  if (!has_slurm()) return common::no_slurm(parts_.why_no_slurm);
  const auto facts = cluster_.ask(kListPatience);
  const auto book = keeper_.book();
  const auto who = applicant(request.user());
  std::set<std::string> names;
  for (const auto& [name, policy] : book->policies()) names.insert(name);
  for (const auto& partition : facts->partitions) names.insert(partition.name);
  muster::v1::ListPartitionsResponse response;
  for (const auto& name : names) {
    auto& view = *response.add_partitions();
    view = partition_view(name, book->find(name), *facts);
    view.set_why_not(book->why_not(who, name));
    view.set_may_use(view.why_not().empty());
    const auto counts = parts_.count_jobs(name, request.user());
    view.set_jobs_handed_over(counts.handed_over);
    view.set_jobs_waiting(counts.waiting);
  }
  response.set_file(keeper_.file().string());
  response.set_file_problem(keeper_.problem());
  response.set_slurm_problem(slurm_problem(*facts));
  return response;
}

common::Outcome<muster::v1::PartitionView> Partitions::set(const muster::v1::SetPartitionRequest& request) {
  if (!has_slurm()) return common::no_slurm(parts_.why_no_slurm);
  const auto facts = cluster_.ask(kListPatience, core::Millis(0));
  const auto policy = keeper_.set(request, *facts);
  if (!policy.ok()) return policy.refusal();
  spdlog::info("partition {} was changed by {}", policy.value().name(), core::plain_words(request.user()));
  return partition_view(policy.value().name(), &policy.value(), *facts);
}

common::Outcome<muster::v1::RemovePartitionResponse> Partitions::remove(
    const muster::v1::RemovePartitionRequest& request) {
  if (!has_slurm()) return common::no_slurm(parts_.why_no_slurm);
  const auto removed = keeper_.remove(request);
  if (!removed.ok()) return removed.refusal();
  spdlog::info("partition {} was removed by {}", request.name(), core::plain_words(request.user()));
  muster::v1::RemovePartitionResponse response;
  response.set_jobs(parts_.count_jobs(request.name(), {}).open);
  response.set_was_last(keeper_.book()->empty());
  return response;
}

common::Outcome<muster::v1::ListNodesResponse> Partitions::nodes() {
  if (!has_slurm()) return common::no_slurm(parts_.why_no_slurm);
  const auto facts = cluster_.ask(kListPatience);
  const auto losses = parts_.store.node_losses(parts_.clock.wall() - parts_.excluded_for, executors::kMostExcluded);
  muster::v1::ListNodesResponse response;
  for (auto& view : node_views(facts->nodes, losses, parts_.excluded_for)) *response.add_nodes() = std::move(view);
  response.set_slurm_problem(slurm_problem(*facts));
  return response;
}

muster::v1::ListAuditResponse Partitions::audit(const muster::v1::ListAuditRequest& request) {
  muster::v1::ListAuditResponse response;
  const auto limit = std::min(request.limit() == 0 ? kAuditDefault : request.limit(), kAuditMost);
  for (const auto& row : parts_.store.audit(request.before_id(), request.partition(), limit)) {
    *response.add_entries() = audit_view(row);
  }
  return response;
}

std::vector<std::string> Partitions::problems() {
  std::vector<std::string> found;
  if (auto problem = keeper_.problem(); !problem.empty()) found.push_back(std::move(problem));
  const auto book = keeper_.book();
  const auto facts = cluster_.known();
  if (!facts->known()) return found;
  for (const auto& [name, policy] : book->policies()) {
    for (auto& problem : misfits(policy, facts->find(name))) found.push_back(std::move(problem));
  }
  return found;
}

}  // namespace partitions
