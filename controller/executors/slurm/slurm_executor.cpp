#include "controller/executors/slurm/slurm_executor.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/words.h"
#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/executors/slurm/attempt_files.h"
#include "controller/executors/slurm/launcher.h"
#include "controller/executors/slurm/poller.h"
#include "slurm/pending_reason.h"

namespace executors::on_slurm {
namespace {

PartitionFacts facts_of(const ::slurm::Partition& from) {
  return {.name = from.name,
          .state = from.state,
          .node_list = from.node_list,
          .preempt_mode = from.preempt_mode,
          .is_default = from.is_default,
          .nodes = from.total_nodes,
          .cpus = from.total_cpus,
          .priority_tier = from.priority_tier,
          .max_time = from.max_time,
          .default_time = from.default_time,
          .max_nodes = from.max_nodes,
          .grace = from.grace,
          .allow_groups = from.allow_groups,
          .allow_accounts = from.allow_accounts,
          .allow_qos = from.allow_qos};
}

std::string state_of(const ::slurm::Node& node) {
  return base::joined(node.states, "+") + (node.responds ? "" : "*");
}

/// The used GPUs of "cpu=1,mem=2G,gres/gpu=1": "gpu=1".
std::string gres_of(const std::string& tres) {
  std::string text;
  for (const auto& part : base::split(tres, ',')) {
    if (part.starts_with("gres/")) text += (text.empty() ? "" : ",") + part.substr(5);
  }
  return text;
}

NodeFacts facts_of(const ::slurm::Node& from) {
  constexpr std::int64_t kMebi = 1 << 20;
  return {.name = from.name,
          .state = state_of(from),
          .reason = from.reason,
          .usable = from.usable(),
          .cpus = from.cpus,
          .cpus_used = from.cpus_used,
          .memory_bytes = static_cast<std::int64_t>(from.memory_mib) * kMebi,
          .memory_used_bytes = static_cast<std::int64_t>(from.memory_used_mib) * kMebi,
          .gres = from.gres,
          .gres_used = gres_of(from.tres_used),
          .partitions = from.partitions};
}

/// Between two looks at attempts that are there.
constexpr core::Millis kTick{50};

class SlurmExecutor : public Executor {
 public:
  SlurmExecutor(::slurm::Scheduler& scheduler, common::Clock& clock, SlurmOptions options)
      : scheduler_(scheduler),
        clock_(clock),
        options_(std::move(options)),
        listings_(scheduler, clock, table_, options_.user),
        launcher_(scheduler, clock, options_, table_, [this] { return listings_.ask(clock_.monotonic()); }),
        poller_(scheduler, clock, table_, listings_, launcher_),
        poll_pace_(options_.poll_interval, options_.urgent_interval),
        polling_("slurm-poll", "Slurm's answer could not be used", true, [this] { return poll_if_due(); }),
        telling_("slurm-tell", "what was learned from Slurm could not be told", true, [this] { return tell(); }) {
    table_.on_change([this] {
      polling_.wake();
      telling_.wake();
    });
  }
  ~SlurmExecutor() override { close(); }

  std::string name() const override { return "slurm"; }
  bool has_queue(const std::string&) const override { return true; }
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) override {
    poller_.set_history(std::move(is_over));
  }
  void set_lost_nodes(std::function<LostNodes()> lost) override { poller_.set_lost_nodes(std::move(lost)); }
  void start(FactSink sink) override {
    sink_ = std::move(sink);
    polling_.start();
    telling_.start();
  }
  void shutdown() override { close(); }

  AttemptLauncher& launcher(const LaunchRequest&) override { return launcher_; }
  void adopt(const core::AttemptKey& key, const core::Attempt& attempt) override {
    const auto folder = common::DataFolder(options_.root).attempt(key);
    const auto record = launcher_.record_to_follow(key, folder);
    table_.follow({key, static_cast<std::uint32_t>(attempt.ranks.size()), record.ranks_per_node,
                   attempt.started_at.has_value(), attempt.state == core::AttemptState::kDraining, record.stop_grace},
                  attempt.scheduler_job, folder, record, attempt.queued_at.value_or(clock_.wall()), clock_.monotonic());
  }
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests) override {
    return launcher_.scripts(requests);
  }
  ScriptCheck check_script(const std::string& script) override {
    const auto answer = scheduler_.test_only(script);
    ScriptCheck check;
    if (answer.unreachable()) check.unreachable = answer.why();
    if (answer.refused()) check.refusal = answer.why();
    if (!answer) return check;
    if (answer->start) check.start = std::chrono::time_point_cast<core::Millis>(*answer->start);
    check.partition = answer->partition;
    check.nodes = answer->node_list;
    check.cpus = answer->cpus;
    return check;
  }

  void stop(const core::AttemptKey& key, const StopRequest& how) override {
    table_.with(key, [&](Tracked& tracked) { tracked.attempt.stop(how, clock_.monotonic()); });
  }
  void task(const core::AttemptKey& key, core::RankNumber rank, const TaskReport& report) override {
    table_.with(key, [&](Tracked& tracked) { return tracked.attempt.task(rank, report, clock_.monotonic()); });
  }
  void failing(const core::AttemptKey& key, core::RankNumber rank) override {
    table_.with(key, [&](Tracked& tracked) { tracked.attempt.failing(rank); });
  }
  // Tasks hear of it with the answers to what they say.
  bool ask_stacks(const core::AttemptKey& key, std::uint64_t) override {
    return table_.locked([&](const AttemptTable::State& state) { return state.attempts.contains(key); });
  }
  void was_deaf() override {
    table_.locked([&](AttemptTable::State& state) {
      for (auto& [key, tracked] : state.attempts) tracked.attempt.was_deaf(clock_.monotonic());
    });
  }
  void tasks_read(core::Millis read_until, core::Millis missed_after) override {
    table_.locked([&](AttemptTable::State& state) {
      for (auto& [key, tracked] : state.attempts) tracked.attempt.tasks_read(read_until, missed_after);
    });
  }
  // A task that could reach nobody has left its word in a file. If the file tells no end, the node is asked whether it
  // is there, unless a task of another attempt is heard on the node.
  Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) override {
    read_file_of_silent(key, rank);
    const auto now = clock_.monotonic();
    std::string node;
    const auto word = table_.locked([&](const AttemptTable::State& state) {
      const auto found = state.attempts.find(key);
      if (found == state.attempts.end()) return Vouch::kUnknown;
      const auto own = found->second.attempt.vouch(rank, now);
      if (own != Vouch::kUnknown) return own;
      node = found->second.attempt.node_of_missed(rank, now);
      const bool heard = !node.empty() && std::ranges::any_of(state.attempts, [&](const auto& entry) {
        return entry.second.attempt.hears_on(node, now);
      });
      return heard ? Vouch::kNodeAnswers : Vouch::kUnknown;
    });
    if (word != Vouch::kUnknown || node.empty()) return word;
    const auto of_node = poller_.word_of(node, now);
    if (of_node == NodeCheck::Word::kAnswers) return Vouch::kNodeAnswers;
    if (of_node == NodeCheck::Word::kSilent) return Vouch::kUnknown;
    table_.hurry();
    return Vouch::kAsking;
  }

  HoldAnswer hold(const core::AttemptKey& key, bool hold) override {
    const auto id = id_of(key);
    if (!id) return table_.of(key, HoldAnswer::kRefused, [](const Tracked&) { return HoldAnswer::kLater; });
    const auto answer = hold ? scheduler_.hold(*id) : scheduler_.release(*id);
    if (answer.unreachable()) return HoldAnswer::kLater;
    if (!answer.refused()) return HoldAnswer::kDone;
    const auto words = std::string(hold ? "hold it: " : "release it: ") + answer.why();
    table_.with(key, [&](Tracked& tracked) {
      if (std::exchange(tracked.refused, words) == words) return;
      spdlog::warn("job {} attempt {}: Slurm will not {}", key.job, key.number, words);
    });
    return HoldAnswer::kRefused;
  }
  LimitAnswer limit(const core::AttemptKey& key, core::Millis limit) override {
    const auto id = id_of(key);
    // The attempt is not followed yet, not listed, or no more. In the last case nobody asks again.
    if (!id) return {LimitAnswer::Kind::kLater};
    const auto answer = scheduler_.update_time_limit(*id, slurm_minutes(limit));
    if (answer.unreachable()) return {LimitAnswer::Kind::kLater};
    if (!answer.refused()) return {};
    const bool forbidden = answer.refused(::slurm::Refusal::kForbidden);
    return {LimitAnswer::Kind::kRefused,
            answer.why() + (forbidden ? " (only Slurm's operators and admins may give a job more time)" : "")};
  }
  std::optional<Trouble> trouble() const override { return poller_.trouble(); }
  std::optional<QueueWord> queue_word(const core::AttemptKey& key) const override {
    const auto slurm_clock = poller_.slurm_clock();
    const auto now = clock_.monotonic();
    return table_.locked([&](const AttemptTable::State& state) -> std::optional<QueueWord> {
      const auto found = state.attempts.find(key);
      QueueWord word;
      if (found == state.attempts.end()) {
        const auto later = state.later.find(key);
        if (later == state.later.end()) return std::nullopt;
        word.sentence = "Not handed to Slurm yet: " + later->second;
        word.action = "Nothing: muster tries again by itself. If it can never be, give it up: muster cancel " +
                      std::to_string(key.job) + ".";
        return word;
      }
      word.scheduler_job = ::slurm::to_string(found->second.job.id);
      word.suspended_since = found->second.suspended_since;
      word.unheard_for = found->second.attempt.unheard_for(now);
      if (!found->second.listed) return word;
      const auto& job = *found->second.listed;
      if (::slurm::classify(job.state.state) != ::slurm::JobPhase::kQueued) return word;
      word.reason = job.reason;
      const auto text = ::slurm::explain_waiting(job);
      word.sentence = text.sentence;
      word.action = text.action;
      if (job.started) word.expected_start = slurm_clock.ours(*job.started);
      return word;
    });
  }
  std::optional<ClusterFacts> cluster() override { return ask_cluster(scheduler_); }

 private:
  void close() {
    telling_.stop();  // while polling ends
    polling_.close();
    telling_.close();
  }
  // The number, if the newest listing has this job under it. slurmctld gives numbers again that it has lost.
  std::optional<::slurm::JobId> id_of(const core::AttemptKey& key) const {
    return table_.of(key, std::optional<::slurm::JobId>(), [](const Tracked& tracked) {
      return tracked.listed ? std::optional(tracked.job.id) : std::nullopt;
    });
  }
  void read_file_of_silent(const core::AttemptKey& key, core::RankNumber rank) {
    const auto folder = table_.of(key, std::optional<std::filesystem::path>(), [&](const Tracked& tracked) {
      const auto now = clock_.monotonic();
      const auto& attempt = tracked.attempt;
      const bool silent = attempt.vouch(rank, now) == Vouch::kUnknown && attempt.has_fallen_silent(rank, now);
      return silent ? std::optional(tracked.folder) : std::nullopt;
    });
    const auto report = folder ? read_rank_status(*folder, rank) : std::nullopt;
    if (!report) return;
    table_.with(key, [&](Tracked& tracked) { tracked.attempt.file(rank, &*report, clock_.monotonic()); });
  }
  std::optional<core::Millis> poll_if_due() {
    const auto now = clock_.monotonic();
    const bool in_trouble = poller_.trouble().has_value();
    std::optional<std::uint64_t> begun;  // where nothing is there
    bool settled = false;
    const bool due = table_.locked([&](AttemptTable::State& state) {
      if (state.is_idle()) begun = state.begun;
      settled = state.is_settled();
      if (settled) return false;
      // The attempts are asked whether all are at rest only where that makes a difference.
      auto need = state.attempts.empty() ? PollPace::Need::kIdle
                  : state.urgent         ? PollPace::Need::kUrgent
                                         : PollPace::Need::kUsual;
      if (!poll_pace_.is_due(now, need)) return false;
      if (need == PollPace::Need::kUsual && !in_trouble && is_at_rest(state, now)) need = PollPace::Need::kRest;
      if (!poll_pace_.is_due(now, need)) return false;
      state.urgent = false;
      return true;
    });
    if (settled) return std::nullopt;
    if (!due) return begun ? std::max(poll_pace_.idle_for(now), kTick) : kTick;
    poll_pace_.begin(now);
    if (poller_.poll()) {
      poll_pace_.answered(poller_.listed_at());
      if (begun && !poller_.has_leftovers()) {
        table_.locked([&](AttemptTable::State& state) { state.settled = begun; });
      }
    } else {
      poll_pace_.failed(clock_.monotonic());
    }
    return core::Millis(0);
  }
  static bool is_at_rest(const AttemptTable::State& state, core::Millis now) {
    return std::ranges::all_of(state.attempts, [&](const auto& entry) {
      return entry.second.attempt.is_at_rest(now) && !entry.second.doubt.raised();
    });
  }
  std::optional<core::Millis> tell() {
    std::vector<std::pair<core::JobId, core::EventBody>> facts;
    std::map<std::size_t, std::filesystem::path> unheard;  // logs, by the facts that end an attempt of nobody heard
    std::vector<core::AttemptKey> over;
    const auto now = clock_.monotonic();
    table_.locked([&](AttemptTable::State& state) {
      for (auto& [key, tracked] : state.attempts) {
        tracked.attempt.tick(now);
        for (auto& fact : std::exchange(tracked.told, {})) facts.emplace_back(key.job, std::move(fact));
        for (auto& fact : tracked.attempt.take_facts()) {
          const auto* gone = std::get_if<core::AttemptGone>(&fact);
          const bool failed = gone != nullptr && gone->cause == core::Cause::kFailed;
          if (failed && tracked.attempt.never_heard()) unheard.emplace(facts.size(), tracked.log);
          facts.emplace_back(key.job, std::move(fact));
        }
        if (tracked.attempt.over()) over.push_back(key);
      }
    });
    for (const auto& [place, log] : unheard) {
      std::get<core::AttemptGone>(facts[place].second).reason += quote_of_log(log);
    }
    for (auto& [job, fact] : facts) sink_(job, std::move(fact));
    // Not before their end is told: liveness would call the ranks of an unknown attempt silent.
    table_.locked([&](AttemptTable::State& state) {
      for (const auto& key : over) state.attempts.erase(key);
    });
    for (const auto& key : over) launcher_.over(key);
    const bool any = table_.locked([](const AttemptTable::State& state) { return !state.attempts.empty(); });
    return any ? std::optional(kTick) : std::nullopt;
  }

  ::slurm::Scheduler& scheduler_;
  common::Clock& clock_;
  const SlurmOptions options_;
  AttemptTable table_;
  Listings listings_;
  Launcher launcher_;
  Poller poller_;
  PollPace poll_pace_;
  FactSink sink_;
  common::Loop polling_, telling_;
};

}  // namespace

ClusterFacts ask_cluster(::slurm::Scheduler& scheduler) {
  ClusterFacts facts;
  const auto partitions = scheduler.partitions();
  if (!partitions) {
    facts.unreachable = partitions.why();
    return facts;
  }
  const auto nodes = scheduler.nodes();
  if (!nodes) facts.unreachable = nodes.why();
  for (const auto& partition : *partitions) facts.partitions.push_back(facts_of(partition));
  if (!nodes) return facts;
  for (const auto& node : *nodes) facts.nodes.push_back(facts_of(node));
  return facts;
}

std::unique_ptr<Executor> make_slurm_executor(::slurm::Scheduler& scheduler, common::Clock& clock,
                                              SlurmOptions options) {
  return std::make_unique<SlurmExecutor>(scheduler, clock, std::move(options));
}

}  // namespace executors::on_slurm
