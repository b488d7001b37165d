#include "agent/program/agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "agent/program/before_start.h"
#include "agent/program/script.h"
#include "agent/protocol/attempt_folder.h"
#include "agent/rank/jsonl_reporter.h"
#include "agent/watch/agent_files.h"
#include "base/host_name.h"
#include "base/numbers.h"
#include "base/process_table.h"
#include "spec/exit_codes.h"
#include "spec/variables.h"

namespace agent::program {
namespace {

using std::chrono::milliseconds;
namespace v1 = muster::v1;
namespace variable = spec::variable;

constexpr milliseconds kLastWord{5'000};
/// On Slurm, after the attempt is over, between asking a program to leave and killing it. musterd cancels Slurm's job a
/// moment later.
constexpr milliseconds kLeaveWithin{1'500};
constexpr milliseconds kLongestGrace = std::chrono::hours(24 * 365);
/// Between two looks at what Slurm, a stop or a limit does to a rank.
constexpr milliseconds kLook{250};
/// Between two looks while the news of an end is held back.
constexpr milliseconds kLookForNews{20};
/// Slurm signals a step's processes one by one, with some plugins the children first: a signal that made the program
/// leave may reach the agent this much later.
constexpr milliseconds kLateSignal{500};
constexpr milliseconds kLookForLeft{200};  // each look reads all of /proc
/// A controller not heard for this long is away.
constexpr milliseconds kAway{3'000};
/// The longest that a relay takes to end if nothing was reported.
constexpr milliseconds kQuickRelay{5};
constexpr std::chrono::hours kGiveUpRecording{1};  // after the last rank's end

std::string own_node(bool is_local) {
  if (!is_local) return base::node_name();
  const auto name = base::host_name();
  return name.empty() ? "localhost" : name;
}

}  // namespace

Agent::Agent(AgentSetup setup)
    : setup_(std::move(setup)),
      place_{setup_.launch, setup_.inherited, own_node(setup_.launch.local.has_value())},
      // The user's own variables come first in everything, RANK and the like included.
      environment_(rank::read_environment([this](const char* name) { return variable_of(place_, name); })),
      log_(setup_.attempt_folder, has_all_ranks() ? 0 : static_cast<std::uint32_t>(environment_.rank),
           has_all_ranks() ? launch_.local->ranks : 1),
      counts_alone_(!has_all_ranks() && base::OomWatch::is_slurm_tasks(setup_.oom_counter)),
      oom_(setup_.oom_counter, Clock::now()) {
  for (auto& place : ranks_beside(place_, environment_)) ranks_.emplace_back().place = std::move(place);
  if (setup_.has_keeper) {
    const auto folder = launch_.env.find(variable::kAttemptFolder);
    const auto files = watch::rank_files(launch_.log_folder, ranks_.front().place.rank);
    process::keep_rank({folder == launch_.env.end() ? std::string() : folder->second, files.report, files.log});
  }
  catch_signals();
  start_reporting();
}

int Agent::run(const std::function<void()>& running) {
  try {
    start();
  } catch (const std::exception& error) {
    if (has_all_ranks()) throw;
    return finish_unstarted(error.what());
  }
  running();
  while (any_alive() || !leaving_.empty()) turn();
  finish();
  const auto& exit = ranks_.front().exit;
  return exit.signal != 0 ? 128 + exit.signal : exit.code;
}

// On musterd's own machine ranks get their own SIGTERM at a shutdown, and a second one would spoil their saving.
void Agent::catch_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (!has_all_ranks()) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGPIPE}) sigaddset(&set, number);
    parent_id_ = ::getppid();
    parent_ = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, parent_id_, 0)));
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = base::Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  directives_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_ || !directives_) protocol::throw_errno("cannot watch for the ends of ranks");
}

void Agent::start_reporting() {
  const auto slurm_job = place_.inherited.find("SLURM_JOB_ID");
  for (auto& rank : ranks_) {
    auto* key = rank.told.mutable_key();
    key->set_job_id(base::whole_number<std::int64_t>(environment_.job_id).value_or(0));
    key->set_attempt(static_cast<std::uint32_t>(environment_.attempt));
    key->set_rank(rank.place.rank);
    rank.told.set_node(place_.node);
    if (!has_all_ranks() && slurm_job != place_.inherited.end()) rank.told.set_slurm_job(slurm_job->second);
  }
  if (!environment_.controller) {
    throw std::runtime_error(std::string(variable::kController) + " is not set in " + protocol::kLaunchFile);
  }
  link_ = setup_.connect({*environment_.controller, environment_.controller_file}, environment_.token,
                         ranks_.front().told, [this](const v1::TaskResponse& answer) { heard(answer); });
  stacks_.emplace([this](auto number, auto rank, const auto& text) { link_->give_stack(number, rank, text); });
}

// In the link's thread.
void Agent::heard(const v1::TaskResponse& answer) {
  {
    const std::lock_guard lock(answer_mutex_);
    answer_ = answer;
  }
  directive_ = answer.directive();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto wrote = ::write(directives_.get(), &one, sizeof one);
}

void Agent::start() {
  if (has_all_ranks()) {
    const auto& local = *launch_.local;
    meeting_point_ = rank::Endpoint{local.master_addr, local.master_port};
  } else {
    if (launch_.is_command && !launch_.batch && !environment_.master) meeting_point_ = meet(*link_, environment_);
    const auto is_over = [this] { return directive_ == v1::DIRECTIVE_STOP; };
    const auto tell = [this](const std::string& words) { say(ranks_.front(), words); };
    if (is_over() || is_fenced(launch_, environment_) ||
        !end_earlier(place_, environment_, setup_.ending, is_over, tell)) {
      throw std::runtime_error("its attempt is over already");
    }
  }
  process::GangPlan plan{.program = has_all_ranks() ? launch_.local->program : launch_.argv.front(),
                         .as_a_shell_would = !has_all_ranks(),
                         .argv = launch_.argv,
                         .working_folder = launch_.working_folder,
                         .open_files = has_all_ranks() ? launch_.local->open_files : 0,
                         .ranks = {}};
  for (const auto& rank : ranks_) {
    plan.ranks.push_back({rank.place.rank, rank_environment(place_, rank.place, meeting_point_),
                          watch::rank_files(launch_.log_folder, rank.place.rank).log.string()});
  }
  if (launch_.batch && has_all_ranks()) make_stand_ins(setup_.attempt_folder);
  make_sidecars();
  gang_ = std::make_unique<process::Gang>(plan);
  step("forked");
  // Started late, and by a musterd that is no more.
  if (has_all_ranks() && directive_ == v1::DIRECTIVE_STOP) throw std::runtime_error("its attempt is over already");
  record_start();
  for (auto& rank : ranks_) rank.is_alive = true;
  if (const auto failure = gang_->open_gate()) {
    abandon(*failure);
    throw *failure;
  }
  record(protocol::Running{});
  if (launch_.batch) {
    link_log(launch_, environment_, rank_environment(place_, ranks_.front().place, meeting_point_));
  } else if (!has_all_ranks()) {
    link_log(launch_, environment_, setup_.inherited);
  }
  follow_ranks();
  plan_save();
  step("running");
}

void Agent::make_sidecars() {
  const auto until = Clock::now() + beside::kFilePatience;
  for (auto& rank : ranks_) {
    rank.sidecar.emplace(beside::SidecarSetup{.rank = rank.place.rank,
                                              .files = watch::rank_files(launch_.log_folder, rank.place.rank),
                                              .working_folder = launch_.working_folder,
                                              .is_command = launch_.is_command,
                                              .report = launch_.report,
                                              .environment = rank_environment(place_, rank.place, meeting_point_),
                                              .reporters = agents_environment(place_, rank.place, meeting_point_),
                                              .connect = setup_.report});
    rank.sidecar->look_before_start(until);
  }
}

/// On musterd's own machine nothing runs before the start is on disk: it tells the next launch() that the attempt was
/// started. On Slurm the batch script has seen to that, and the disk may be one that other nodes keep busy.
void Agent::record_start() {
  const auto line = protocol::to_line(
      protocol::Started{base::boot_id(), place_.node, static_cast<std::int64_t>(::getsid(0)), gang_->ranks()});
  if (has_all_ranks()) {
    log_.add(line);
    if (!log_.flush()) {
      const int error = errno;
      log_.erase();
      throw std::system_error(error, std::generic_category(), "cannot write " + protocol::status_file(0));
    }
    step("recorded");
  }
  writer_.emplace(log_);
  if (!has_all_ranks()) writer_->add(line);
}

/// Some program can't be executed: the others end.
void Agent::abandon(const process::LaunchError& failure) {
  failed_ = true;
  record(protocol::LaunchFailed{failure.what(), failure.retryable, place_.node});
  signal_living(SIGKILL);
  while (any_alive()) turn();
  if (!has_all_ranks()) return;
  for (const auto give_up = Clock::now() + setup_.ending.longest; Clock::now() < give_up;) {
    if (setup_.ending.children(setup_.ending.told_after).empty()) break;
  }
  record(protocol::Ended{});
  for (const auto give_up = Clock::now() + kGiveUpRecording; !writer_->recorded() && Clock::now() < give_up;) turn();
}

void Agent::follow_ranks() {
  std::vector<use::Rank> seen;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    auto& rank = ranks_[i];
    const auto pid = static_cast<pid_t>(gang_->ranks()[i].pid);
    rank.told.set_pid(pid);
    tell(rank, v1::PROCESS_RUNNING);
    rank.sidecar->follow(pid);
    seen.push_back(rank.sidecar->seen_as(pid));
  }
  try {
    sampler_.emplace(std::move(seen), setup_.use);
  } catch (const std::system_error& error) {  // the ranks run on without
    std::fprintf(stderr, "muster-agent: nobody sees what the ranks use: %s\n", error.what());
  }
}

// A moment later than the controller would ask.
void Agent::plan_save() {
  if (launch_.time_limit_ms <= 0) return;
  const auto started_at = place_.inherited.find(variable::kStartedAt);
  const auto started =
      started_at == place_.inherited.end() ? 0 : base::whole_number<std::int64_t>(started_at->second).value_or(0);
  const auto ran = milliseconds(started > 0 ? rank::now_ms() - started * 1000 : 0);
  const auto grace = std::min(milliseconds(launch_.stop_grace_ms), milliseconds(launch_.time_limit_ms / 2));
  limit_at_ = Clock::now() + milliseconds(launch_.time_limit_ms) - std::max(ran, milliseconds(0));
  save_at_ = limit_at_ - grace + grace / 10;
}

int Agent::finish_unstarted(const std::string& why) {
  auto& rank = ranks_.front();
  std::fprintf(stderr, "muster-agent: rank %u: %s\n", rank.place.rank, why.c_str());
  if (!writer_) writer_.emplace(log_);
  if (!std::exchange(failed_, true)) record(protocol::LaunchFailed{why, true, place_.node});
  signal_living(SIGKILL);
  while (any_alive()) turn();
  rank.told.set_exit_code(spec::kExitCannotStart);
  rank.told.set_trouble(why);
  tell(rank, v1::PROCESS_EXITED);
  finish();
  return spec::kExitCannotStart;
}

/// Waits for the next event and handles it.
void Agent::turn() {
  pollfd waits[4] = {{signals_.get(), POLLIN, 0},
                     {directives_.get(), POLLIN, 0},
                     {sampler_ ? sampler_->fd() : -1, POLLIN, 0},
                     {parent_ && any_alive() && !step_lost_ ? parent_.get() : -1, POLLIN, 0}};
  ::poll(waits, std::size(waits), static_cast<int>(patience().count()));
  read_signals();
  reap();
  take_directive();
  look_at_parent();
  look_at_limit();
  look_at_use();
  look_at_stopped();
  if (kill_at_ && Clock::now() >= *kill_at_) kill();
  record_told_ends();
  oom_.tick(Clock::now());
}

/// Until something is due.
milliseconds Agent::patience() const {
  milliseconds wait = has_all_ranks() ? milliseconds(base::OomWatch::kWindow) : kLook;
  if (!any_alive() || !leaving_.empty()) wait = kLookForNews;
  if (kill_at_) wait = std::min(wait, std::chrono::ceil<milliseconds>(*kill_at_ - Clock::now()));
  return std::max(wait, milliseconds(0));
}

void Agent::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD || number == SIGCONT || number == SIGPIPE) continue;
    if (launch_.batch && is_scripts_own(number)) {
      if (ranks_.front().is_alive) ::kill(static_cast<pid_t>(gang_->ranks().front().pid), number);
      continue;
    }
    note_signal(number);
    if (launch_.forward_signals && !launch_.batch) signal_living(number);
    for (auto& rank : ranks_) {
      if (rank.is_alive) tell(rank, rank.told.state());
    }
  }
}

/// A message has room for 64. A user may send one every minute for days.
void Agent::note_signal(int number) {
  constexpr std::ptrdiff_t kMostOfOne = 8;
  if (std::ranges::count(signals_seen_, number) < kMostOfOne) signals_seen_.push_back(number);
}

void Agent::reap() {
  while (gang_) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto& processes = gang_->ranks();
    const auto found = std::ranges::find(processes, std::int64_t{info.si_pid}, &protocol::RankProcess::pid);
    const auto index = static_cast<std::size_t>(found - processes.begin());
    // Not yet reaped, so its group's number is still its own.
    if (found != processes.end()) gang_->signal(index, SIGKILL);
    ::waitpid(info.si_pid, nullptr, 0);
    if (found == processes.end()) continue;  // left behind by a rank and inherited
    rank_ended(index,
               info.si_code == CLD_EXITED ? spec::ExitStatus{info.si_status, 0} : spec::ExitStatus{0, info.si_status});
  }
}

void Agent::take_directive() {
  std::uint64_t count = 0;
  if (::read(directives_.get(), &count, sizeof count) != sizeof count) return;
  v1::TaskResponse answer;
  {
    const std::lock_guard lock(answer_mutex_);
    answer = answer_;
  }
  if (answer.stacks() != 0) {
    std::vector<stacks::Rank> living;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].is_alive) living.push_back({ranks_[i].place.rank, static_cast<pid_t>(gang_->ranks()[i].pid)});
    }
    stacks_->ask(answer.stacks(), std::move(living));
  }
  if (answer.directive() != v1::DIRECTIVE_CONTINUE) stop(answer);
}

void Agent::stop(const v1::TaskResponse& how) {
  const bool save = how.directive() == v1::DIRECTIVE_SAVE_AND_LEAVE;
  // On Slurm a muster-worker hears of a stop itself, and its node may have a signal of Slurm's for it.
  const bool hears_itself = !launch_.is_command && !has_all_ranks();
  if (save && hears_itself) return;
  const auto grace =
      save || has_all_ranks() ? std::min(milliseconds(how.stop_grace_ms()), kLongestGrace) : kLeaveWithin;
  if (!asked_) {
    peer_failed_ = how.stop_why() == watch::kPeerFailed;
    const auto at_step = how.has_stop_at_step() ? std::optional(how.stop_at_step()) : std::nullopt;
    const auto know = tell_why({how.stop_why(), save, rank::now_ms() + grace.count(), at_step});
    // Slurm's own SIGTERM has reached the program as well: asking twice would mean "at once".
    const bool was_asked = save && !signals_seen_.empty();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const bool needs_signal = !hears_itself && !was_asked && !know.contains(ranks_[i].place.rank);
      if (ranks_[i].is_alive && needs_signal) ask_to_leave(i);
    }
  }
  asked_ = true;
  // On Slurm the job's end is that of a rank that does not leave in time.
  if (killed_ || (save && !has_all_ranks())) return;
  const auto at = Clock::now() + grace;
  kill_at_ = kill_at_ ? std::min(*kill_at_, at) : at;
}

std::set<std::uint32_t> Agent::tell_why(const watch::StopNotice& how) const {
  std::vector<const beside::Sidecar*> living;
  for (const auto& rank : ranks_) {
    if (rank.is_alive) living.push_back(&*rank.sidecar);
  }
  return beside::Sidecar::tell_stop(living, how);
}

// Slurm has lost sight of this process: a rank that went on would run beside its successor.
void Agent::look_at_parent() {
  if (has_all_ranks() || step_lost_ || !any_alive() || ::getppid() == parent_id_) return;
  step_lost_ = true;
  kill();
}

// The controller asks for a save in time before the limit. If the controller is away then, each agent asks by itself,
// and the ranks agree on the step as with any signal. A limit that has passed was changed, and only the controller
// knows to what.
void Agent::look_at_limit() {
  if (!save_at_ || asked_ || !any_alive() || Clock::now() < *save_at_) return;
  if (Clock::now() >= limit_at_) return save_at_.reset();
  if (link_->unheard_for() < kAway) return;
  asked_ = true;
  note_signal(SIGUSR2);
  const auto left = std::chrono::duration_cast<milliseconds>(limit_at_ - Clock::now());
  const auto know = tell_why({"time_limit", true, rank::now_ms() + left.count(), std::nullopt});
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    auto& rank = ranks_[i];
    if (!rank.is_alive) continue;
    if (!launch_.is_command || !know.contains(rank.place.rank)) {
      if (launch_.is_command) {
        ask_to_leave(i);
      } else {
        gang_->signal(i, SIGUSR2);
      }
    }
    tell(rank, rank.told.state());
  }
}

void Agent::look_at_use() {
  if (!sampler_) return;
  const auto samples = sampler_->newest();
  for (auto& rank : ranks_) {
    const auto found = samples.find(rank.place.rank);
    if (found == samples.end() || !rank.is_alive || found->second.at_ms == rank.told.use().at_ms()) continue;
    const auto& sample = found->second;
    auto& use = *rank.told.mutable_use();
    use.Clear();
    use.set_at_ms(sample.at_ms);
    if (sample.cores) use.set_cores(*sample.cores);
    use.set_memory_bytes(sample.memory_bytes);
    use.set_memory_peak_bytes(sample.memory_peak_bytes);
    use.set_processes(sample.processes);
    if (sample.gpu_percent) use.set_gpu_percent(*sample.gpu_percent);
    if (sample.gpu_memory_bytes) use.set_gpu_memory_bytes(*sample.gpu_memory_bytes);
    link_->tell_later(rank.told);
  }
}

// On musterd's own machine musterd looks at the ranks itself.
void Agent::look_at_stopped() {
  if (has_all_ranks()) return;
  for (auto& rank : ranks_) {
    if (!rank.is_alive) continue;
    bool is_stopped = rank.is_stopped;
    try {
      const auto stat = base::read_stat(rank.told.pid());
      is_stopped = stat && stat->is_stopped();
    } catch (const std::exception&) {  // the kernel cannot be asked
    }
    if (std::exchange(rank.is_stopped, is_stopped) != is_stopped) {
      tell(rank, is_stopped ? v1::PROCESS_STOPPED : v1::PROCESS_RUNNING);
    }
  }
}

void Agent::kill() {
  killed_ = true;
  kill_at_.reset();
  signal_living(SIGKILL);
}

void Agent::signal_living(int number) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].is_alive) gang_->signal(i, number);
  }
}

void Agent::ask_to_leave(std::size_t index) const {
  if (!launch_.batch) return gang_->signal(index, SIGTERM);
  const auto slurm_job = place_.inherited.find("SLURM_JOB_ID");
  const bool on_slurm = !has_all_ranks() && slurm_job != place_.inherited.end();
  ask_script(static_cast<pid_t>(gang_->ranks()[index].pid), on_slurm ? slurm_job->second : std::string());
}

void Agent::rank_ended(std::size_t index, spec::ExitStatus exit) {
  auto& rank = ranks_[index];
  if (!std::exchange(rank.is_alive, false)) return;
  rank.exit = exit;
  if (failed_) return;
  if (sampler_) sampler_->ended(rank.place.rank);
  const bool for_memory = may_be_for_memory(exit) && oom_.killed_lately(Clock::now());
  // The controller takes a rank's reports before it learns that the rank has ended: the attempt may be over then. A
  // word meanwhile would say that the rank is alive.
  if (rank.sidecar->follows()) link_->hold(rank.place.rank);
  const auto ended_at = rank::now_ms();
  rank.sidecar->ended(exit);
  leaving_.push_back(
      {index, {rank.place.rank, exit, for_memory, ended_at, last_words(rank), {}, step_lost_}, Clock::now()});
  rank.sidecar->wait(Clock::now() + kQuickRelay);
  record_told_ends();
}

/// A program may fail because the kernel killed another one that it had started. The agent knows of that only where the
/// counter counts no processes of others.
bool Agent::may_be_for_memory(const spec::ExitStatus& exit) const {
  if (killed_) return false;
  if (exit.signal == SIGKILL) return true;
  return counts_alone_ && exit.code != 0 && !asked_ && signals_seen_.empty();
}

std::string Agent::last_words(const Rank& rank) {
  if (!files_answer_) return {};
  const bool was_asked = asked_ || killed_ || !signals_seen_.empty();
  const auto asked = peer_failed_ ? beside::Asked::kBecauseAPeerFailed
                     : was_asked  ? beside::Asked::kToLeave
                                  : beside::Asked::kNo;
  const auto words = rank.sidecar->last_words(rank.exit, asked);
  files_answer_ = words.has_value();
  return words.value_or("");
}

/// The controller is told of ends in the order in which they came, since the first to fail is the culprit.
void Agent::record_told_ends() {
  while (!leaving_.empty() && may_be_told(leaving_.front())) {
    if (!any_alive() && leaving_.size() == 1 && !is_nothing_left()) return;
    auto& [index, end, since] = leaving_.front();
    end.signals_seen = signals_seen_;
    record(end);
    auto& rank = ranks_[index];
    rank.told.set_exit_code(end.exit.code);
    rank.told.set_signal(end.exit.signal);
    rank.told.set_out_of_memory(end.out_of_memory);
    rank.told.set_ended_at_ms(end.at_ms);
    rank.told.set_error(end.error);
    tell(rank, end.step_lost ? v1::PROCESS_STEP_LOST : v1::PROCESS_EXITED);
    leaving_.pop_front();
    step("exited");
  }
}

/// A command that leaves in good order when it is asked to would pass for one that is done: Slurm's signal may reach
/// this process after the program's end. muster-worker says by its exit code that it is not done.
bool Agent::may_be_told(const Leaving& leaving) {
  const bool hears_late = launch_.is_command && !has_all_ranks() && !launch_.forward_signals && !asked_ && !killed_ &&
                          leaving.end.exit.signal == 0 && signals_seen_.empty();
  if (hears_late && Clock::now() < leaving.since + kLateSignal) return false;
  return ranks_[leaving.index].sidecar->wait_before_end(Clock::now());
}

/// Ends what ranks have left behind in sessions of their own. What SIGKILL does not end at once, such as a process that
/// waits for a disk, is named where people look. False: the last end is to wait for it.
bool Agent::is_nothing_left() {
  if (!left_.empty() && !has_all_ranks()) return true;
  if (give_up_ending_at_ && Clock::now() < look_for_left_at_) return false;
  left_ = setup_.ending.children(give_up_ending_at_ ? milliseconds{0} : setup_.ending.told_after);
  if (left_.empty() || !has_all_ranks()) return true;
  look_for_left_at_ = Clock::now() + kLookForLeft;
  const auto& rank = ranks_[leaving_.back().index];
  if (!give_up_ending_at_) {
    give_up_ending_at_ = Clock::now() + setup_.ending.longest;
    say(rank, left_ + " that the ranks left behind does not end by SIGKILL; the end of the attempt waits for it");
    return false;
  }
  if (Clock::now() < *give_up_ending_at_) return false;
  say(rank, left_ + " is there still, and is not waited for any more");
  return true;
}

/// To the controller and to the disk at once: a disk that takes its time, or stands still, holds no news back.
void Agent::finish() {
  if (has_all_ranks() && !give_up_ending_at_) setup_.ending.children(setup_.ending.told_after);
  record(protocol::Ended{});
  if (!has_all_ranks()) controller_knows_end_ = link_->flush(kLastWord);
  // A disk that refuses keeps a node of Slurm's no longer.
  const auto is_recorded = [this] { return writer_->recorded() || (!has_all_ranks() && !writer_->refusal().empty()); };
  for (const auto give_up = Clock::now() + kGiveUpRecording; !is_recorded() && Clock::now() < give_up;) turn();
  if (const auto why = writer_->refusal(); !why.empty()) {
    std::fprintf(stderr, "muster-agent: the end is not written down: %s\n", why.c_str());
  }
  on_over();
  tell_what_is_left();
  if (!left_.empty() && !has_all_ranks()) stay_beside();
}

/// The news of a failure does not wait until the controller has taken all that a program has reported. On Slurm a
/// controller that has not heard the news does not end the other ranks. Slurm does, once this process has ended.
void Agent::tell_what_is_left() {
  const bool waits = has_all_ranks() || controller_knows_end_;
  for (auto& rank : ranks_) {
    if (!rank.sidecar) continue;
    const auto left_out = rank.sidecar->finish(waits ? Clock::time_point::max() : Clock::now());
    if (!left_out.empty()) say(rank, left_out);
  }
}

/// Slurm's job is not over while this process is there, and the next attempt does not begin.
void Agent::stay_beside() {
  const auto& rank = ranks_.front();
  say(rank, left_ + " that rank " + std::to_string(rank.place.rank) +
                " left behind does not end by SIGKILL; this agent stays until it does");
  for (const auto give_up = Clock::now() + setup_.ending.longest; Clock::now() < give_up;) {
    if (setup_.ending.children(kLookForLeft).empty()) return;
  }
  say(rank, "it is there still, and this agent gives up");
}

void Agent::record(const protocol::Fact& fact) {
  writer_->add(protocol::to_line(fact));
}

void Agent::tell(Rank& rank, v1::ProcessState state) {
  rank.told.set_state(state);
  rank.told.mutable_signals_seen()->Assign(signals_seen_.begin(), signals_seen_.end());
  link_->tell(rank.told);
}

/// Into the rank's log, where people look first, and into the agent's own.
void Agent::say(const Rank& rank, const std::string& words) const {
  process::say_in_log(watch::rank_files(launch_.log_folder, rank.place.rank).log, "muster-agent: " + words + "\n");
}

bool Agent::any_alive() const {
  return std::ranges::any_of(ranks_, &Rank::is_alive);
}

}  // namespace agent::program
