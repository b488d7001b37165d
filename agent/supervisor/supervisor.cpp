#include "agent/supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "agent/beside/sidecar.h"
#include "agent/process/gang.h"
#include "agent/protocol/files.h"
#include "agent/protocol/supervisor_words.h"
#include "agent/stacks/take.h"
#include "agent/supervisor/attempt_folder.h"
#include "agent/supervisor/rank_environment.h"
#include "agent/supervisor/socket_client.h"
#include "agent/supervisor/status_log.h"
#include "agent/use/sampler.h"
#include "agent/watch/agent_files.h"
#include "base/cgroups.h"
#include "base/durable_file.h"
#include "base/host_name.h"
#include "base/process_table.h"

namespace agent::supervisor {
namespace {

using Clock = std::chrono::steady_clock;
using base::Fd;
using std::chrono::milliseconds;
using namespace protocol;

constexpr std::size_t kMaxClients = 16;
constexpr milliseconds kLookForRecord{20};         // once all ranks have ended
constexpr std::chrono::hours kGiveUpRecording{1};  // after the last rank's end
constexpr std::chrono::seconds kGiveUpKilling{5};  // until it is told that SIGKILL does not end a process
constexpr std::chrono::hours kGiveUpEnding{1};     // then
constexpr milliseconds kLookForLeft{200};          // each look reads all of /proc
/// The longest that a relay takes to end if nothing was reported.
constexpr milliseconds kQuickRelay{5};

std::int64_t wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

process::GangPlan plan_of(const LocalLaunch& launch, const std::string& node) {
  process::GangPlan plan{.program = launch.program,
                         .argv = launch.argv,
                         .working_folder = launch.working_folder,
                         .open_files = launch.open_files,
                         .ranks = {}};
  for (std::uint32_t rank = 0; rank < launch.ranks; ++rank) {
    const auto log = watch::rank_files(launch.log_folder, rank).log.string();
    plan.ranks.push_back({rank, rank_environment(launch, rank, node), log});
  }
  return plan;
}

/// Whole or not at all, for whoever looks into the folder meanwhile.
void keep_stack(const std::filesystem::path& file, const std::string& text) {
  try {
    base::make_folders(file.parent_path());
    base::write_file_durably(file, text);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "muster-supervisor: a stack is not kept: %s\n", error.what());
  }
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);
  /// Throws LaunchError or another exception; then nothing runs.
  void start();
  void run();

 private:
  void step(std::string_view name) const {
    if (options_.on_step) options_.on_step(name);
  }
  void record(const Fact& fact);
  void add_sidecars(const LocalLaunch& launch, const std::string& node);
  void follow_ranks();
  void turn();
  int patience() const;
  void accept_client();
  void obey(const std::string& line);
  void tell_use();
  void tell_that_news_waits();
  void ask_stacks(std::uint64_t number);
  void stop(const StopCommand& how);
  void signal_living(int number);
  void reap();
  void rank_ended(std::uint32_t rank, spec::ExitStatus exit);
  std::string last_words(std::uint32_t rank, spec::ExitStatus exit);
  void record_told_ends();
  bool is_told(const Exited& end);
  bool is_nothing_left();
  void tell_what_is_left();
  void say(const std::string& words) const;

  const SupervisorOptions& options_;
  Fd folder_, lock_, listener_, children_;
  std::string facts_;  // every line so far
  std::optional<StatusLog> log_;
  std::unique_ptr<process::Gang> gang_;
  std::optional<StatusWriter> writer_;  // begun after all forks
  std::set<std::uint32_t> living_;
  std::vector<beside::Sidecar> sidecars_;  // by rank
  std::optional<use::Sampler> sampler_;
  std::string used_;           // the newest line that tells what ranks use
  std::list<Exited> leaving_;  // whose last reports may be on their way
  Clock::time_point say_it_holds_at_{};
  std::list<Client> clients_;
  base::OomWatch oom_;
  bool asked_to_leave_ = false;
  bool peer_failed_ = false;  // why the ranks were asked
  std::filesystem::path log_folder_;
  bool files_answer_ = true;  // the file system of the ranks' logs has answered each time
  StopReader stops_;
  bool killed_ = false;
  std::optional<Clock::time_point> give_up_ending_at_;  // once something has not ended by SIGKILL
  Clock::time_point look_for_left_at_{};
  std::optional<Clock::time_point> kill_at_;
  stacks::Taker stacks_;
};

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      folder_(open_folder(options.folder)),
      oom_(base::OomWatch::best_counter_file(), Clock::now()),
      stacks_([folder = std::filesystem::absolute(options.folder)](auto number, auto rank, const auto& text) {
        keep_stack(protocol::stack_folder(folder, number) / protocol::stack_file_name(rank), text);
      }) {
  if (options.started_by_executor) {
    lock_ = Fd(kLockFd);
  } else if (auto lock = try_lock(folder_.get())) {
    lock_ = std::move(*lock);
  } else {
    throw process::LaunchError("another supervisor, or musterd, holds the attempt's lock", true);
  }
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  children_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children_) throw_errno("cannot watch for the ends of ranks");
}

void Supervisor::start() {
  if (read_status(folder_.get()).started) throw process::LaunchError("the attempt was started before", false);
  const auto launch = read_local_launch(folder_.get());
  if (!launch)
    throw process::LaunchError(std::string("no ") + kLocalLaunchFile + " in " + options_.folder.string(), false);
  listener_ = listen_in(folder_.get());
  log_folder_ = launch->log_folder;
  log_.emplace(folder_.get(), launch->ranks);
  const auto name = base::host_name();
  const auto node = name.empty() ? "localhost" : name;
  gang_ = std::make_unique<process::Gang>(plan_of(*launch, node));
  step("forked");

  facts_ = to_line(Started{base::boot_id(), node, ::getsid(0), gang_->ranks()});
  log_->add(facts_);
  if (!log_->flush()) {
    const int error = errno;
    log_->erase();
    throw std::system_error(error, std::generic_category(), std::string("cannot write ") + kStatusFile);
  }
  step("recorded");
  writer_.emplace(*log_);
  for (std::uint32_t rank = 0; rank < launch->ranks; ++rank) living_.insert(rank);
  add_sidecars(*launch, node);
  if (const auto failure = gang_->open_gate()) {
    record(LaunchFailed{failure->what(), failure->retryable});
    signal_living(SIGKILL);
    run();
    throw *failure;
  }
  record(Running{});
  follow_ranks();
  step("running");
}

void Supervisor::add_sidecars(const LocalLaunch& launch, const std::string& node) {
  const auto until = Clock::now() + beside::kFilePatience;
  for (std::uint32_t rank = 0; rank < launch.ranks; ++rank) {
    sidecars_.emplace_back(beside::SidecarSetup{.rank = rank,
                                                .files = watch::rank_files(log_folder_, rank),
                                                .working_folder = launch.working_folder,
                                                .is_command = launch.is_command,
                                                .report = launch.report,
                                                .environment = rank_environment(launch, rank, node),
                                                .reporters = agents_environment(launch, rank, node),
                                                .connect = options_.connect,
                                                .agent = "muster-supervisor"});
    sidecars_.back().look_before_start(until);
  }
}

void Supervisor::follow_ranks() {
  std::vector<use::Rank> seen;
  for (std::uint32_t rank = 0; rank < sidecars_.size(); ++rank) {
    const auto pid = static_cast<pid_t>(gang_->ranks()[rank].pid);
    sidecars_[rank].follow(pid);
    seen.push_back(sidecars_[rank].seen_as(pid));
  }
  try {
    sampler_.emplace(std::move(seen));
  } catch (const std::system_error& error) {  // the ranks run on without
    std::fprintf(stderr, "muster-supervisor: nobody sees what the ranks use: %s\n", error.what());
  }
}

/// Until every rank has ended, nothing is left of them, both are on disk, and the controller has taken what they have
/// reported.
void Supervisor::run() {
  while (!living_.empty() || !leaving_.empty()) turn();
  if (!give_up_ending_at_) options_.end_children(kGiveUpKilling);
  record(Ended{});
  for (const auto give_up = Clock::now() + kGiveUpRecording; !writer_->recorded() && Clock::now() < give_up;) turn();
  for (auto& client : clients_) client.tell(facts_);
  tell_what_is_left();
}

// The attempt is over, and the next one may run. What stands in the files of this one is told all the same.
void Supervisor::tell_what_is_left() {
  clients_.clear();
  listener_.reset();
  lock_.reset();
  for (auto& sidecar : sidecars_) {
    const auto left_out = sidecar.finish(Clock::time_point::max());
    if (!left_out.empty()) process::say_in_log(sidecar.files().log, "muster-supervisor: " + left_out + "\n");
  }
}

// A disk delays no news, whether it refuses although room was set aside, is slow or stands still. The other ranks of a
// rank that has died would hang meanwhile.
void Supervisor::record(const Fact& fact) {
  const auto line = to_line(fact);
  facts_ += line;
  writer_->add(line);
  for (auto& client : clients_) client.tell(facts_);
}

/// Waits for the next event and handles it.
void Supervisor::turn() {
  std::vector<pollfd> polled{
      {children_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {sampler_ ? sampler_->fd() : -1, POLLIN, 0}};
  for (const auto& client : clients_) {
    polled.push_back({client.fd(), static_cast<short>(client.is_behind(facts_) ? POLLIN | POLLOUT : POLLIN), 0});
  }
  const int ready = ::poll(polled.data(), polled.size(), patience());
  if (ready > 0) {
    std::size_t index = 3;
    for (auto& client : clients_) {
      const auto events = polled[index++].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        for (const auto& line : client.hear()) obey(line);
      }
      if ((events & POLLOUT) != 0) client.tell(facts_);
    }
    if (polled[0].revents != 0) reap();
    if (polled[1].revents != 0) accept_client();
    if (polled[2].revents != 0) tell_use();
  }
  clients_.remove_if([](const Client& client) { return client.is_gone(); });
  record_told_ends();
  tell_that_news_waits();
  oom_.tick(Clock::now());
  if (kill_at_ && Clock::now() >= *kill_at_) {
    kill_at_.reset();
    killed_ = true;
    signal_living(SIGKILL);
  }
}

/// Milliseconds until something is due.
int Supervisor::patience() const {
  milliseconds wait = base::OomWatch::kWindow;
  if (living_.empty() || !leaving_.empty()) wait = std::min(wait, kLookForRecord);
  if (kill_at_) wait = std::min(wait, std::chrono::ceil<milliseconds>(*kill_at_ - Clock::now()));
  return static_cast<int>(std::max(wait, milliseconds{0}).count());
}

void Supervisor::accept_client() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || clients_.size() >= kMaxClients) return;
  clients_.emplace_back(std::move(socket));
  clients_.back().tell(facts_);
  if (!used_.empty()) clients_.back().tell_now(facts_, used_);
}

void Supervisor::obey(const std::string& line) {
  if (const auto number = protocol::parse_stacks_line(line)) return ask_stacks(*number);
  if (const auto command = stops_.take(line)) stop(*command);
}

void Supervisor::tell_use() {
  used_ = to_line(Used{sampler_->newest()});
  for (auto& client : clients_) client.tell_now(facts_, used_);
}

void Supervisor::tell_that_news_waits() {
  if (!living_.empty() || leaving_.empty() || Clock::now() < say_it_holds_at_) return;
  say_it_holds_at_ = Clock::now() + protocol::kHoldsEvery;
  for (auto& client : clients_) client.tell_now(facts_, to_line(Holds{}));
}

void Supervisor::ask_stacks(std::uint64_t number) {
  std::vector<stacks::Rank> ranks;
  for (const auto rank : living_) ranks.push_back({rank, static_cast<pid_t>(gang_->ranks()[rank].pid)});
  stacks_.ask(number, std::move(ranks));
}

void Supervisor::stop(const StopCommand& how) {
  constexpr milliseconds kLongest = std::chrono::hours(24 * 365);
  const auto at = Clock::now() + std::min(how.grace, kLongest);
  if (!asked_to_leave_) {
    peer_failed_ = how.why == watch::kPeerFailed;
    std::vector<const beside::Sidecar*> ranks;
    for (const auto rank : living_) ranks.push_back(&sidecars_[rank]);
    const auto know =
        beside::Sidecar::tell_stop(ranks, {how.why, how.save, wall_ms() + how.grace.count(), how.at_step});
    for (const auto rank : living_) {
      if (!know.contains(rank)) gang_->signal(rank, SIGTERM);
    }
  }
  asked_to_leave_ = true;
  if (!killed_) kill_at_ = kill_at_ ? std::min(*kill_at_, at) : at;
}

void Supervisor::signal_living(int number) {
  for (const auto rank : living_) gang_->signal(rank, number);
}

void Supervisor::reap() {
  signalfd_siginfo drained;
  while (::read(children_.get(), &drained, sizeof drained) > 0) {
  }
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto& ranks = gang_->ranks();
    const auto found =
        std::find_if(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank.pid == info.si_pid; });
    const auto rank = static_cast<std::uint32_t>(found - ranks.begin());
    // Not yet reaped, so its group's number is still its own.
    if (found != ranks.end()) gang_->signal(rank, SIGKILL);
    ::waitpid(info.si_pid, nullptr, 0);
    if (found == ranks.end()) continue;  // left behind by a rank and inherited
    rank_ended(rank,
               info.si_code == CLD_EXITED ? spec::ExitStatus{info.si_status, 0} : spec::ExitStatus{0, info.si_status});
  }
}

void Supervisor::rank_ended(std::uint32_t rank, spec::ExitStatus exit) {
  if (living_.erase(rank) == 0) return;
  if (sampler_) sampler_->ended(rank);
  const bool by_others = exit.signal == SIGKILL && !killed_;
  const auto ended_at = wall_ms();
  auto& sidecar = sidecars_[rank];
  sidecar.ended(exit);
  leaving_.push_back({rank, exit, by_others && oom_.killed_lately(Clock::now()), ended_at, last_words(rank, exit)});
  sidecar.wait(Clock::now() + kQuickRelay);
  record_told_ends();
}

// The controller takes a rank's reports before it learns that the rank has ended: the attempt may be over then. It is
// told of ends in the order in which they came, since the first to fail is the culprit. With the last end the next
// attempt may start, so what ranks have left behind in sessions of their own ends before.
void Supervisor::record_told_ends() {
  while (!leaving_.empty() && is_told(leaving_.front())) {
    if (living_.empty() && leaving_.size() == 1 && !is_nothing_left()) return;
    record(leaving_.front());
    leaving_.pop_front();
    step("exited");
  }
}

/// A process that SIGKILL does not end at once, such as one that waits for a disk, holds the news of the last end back,
/// and so the next attempt. Such a process is named where people look.
bool Supervisor::is_nothing_left() {
  if (give_up_ending_at_ && Clock::now() < look_for_left_at_) return false;
  const auto left = options_.end_children(give_up_ending_at_ ? milliseconds{0} : kGiveUpKilling);
  if (left.empty()) return true;
  look_for_left_at_ = Clock::now() + kLookForLeft;
  if (!give_up_ending_at_) {
    give_up_ending_at_ = Clock::now() + kGiveUpEnding;
    say(left + " that the ranks left behind does not end by SIGKILL; the end of the attempt waits for it");
    return false;
  }
  if (Clock::now() < *give_up_ending_at_) return false;
  say(left + " is there still, and is not waited for any more");
  return true;
}

/// Into the log of the rank that ended last, where people look first, and into that of the supervisor.
void Supervisor::say(const std::string& words) const {
  process::say_in_log(sidecars_[leaving_.back().rank].files().log, "muster-supervisor: " + words + "\n");
}

bool Supervisor::is_told(const Exited& end) {
  return sidecars_[end.rank].wait_before_end(Clock::now());
}

std::string Supervisor::last_words(std::uint32_t rank, spec::ExitStatus exit) {
  if (!files_answer_) return {};
  const auto asked = !asked_to_leave_ ? beside::Asked::kNo
                     : peer_failed_   ? beside::Asked::kBecauseAPeerFailed
                                      : beside::Asked::kToLeave;
  const auto words = sidecars_[rank].last_words(exit, asked);
  files_answer_ = words.has_value();
  return words.value_or("");
}

/// Goes to the background: a child of nobody in a session of its own, unmoved by signals to a terminal or a service.
void detach() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2}) {
    ::sigaction(number, &ignore, nullptr);
  }
  const auto pid = ::fork();
  if (pid < 0) throw_errno("cannot go to the background");
  if (pid > 0) ::_exit(0);
  ::setsid();
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw_errno("cannot become the one who inherits orphans");
}

/// The report to the executor, if one has started this process.
class Report {
 public:
  explicit Report(bool wanted) : pipe_(wanted ? kReportFd : -1) {
    if (wanted) ::fcntl(kReportFd, F_SETFD, FD_CLOEXEC);
  }
  void say(const std::string& line) {
    if (!pipe_) return;
    [[maybe_unused]] const auto count = ::write(pipe_.get(), line.data(), line.size());
  }
  void failed(const std::string& reason, StartFailure kind) {
    std::fprintf(stderr, "muster-supervisor: %s\n", reason.c_str());
    say(failed_line(kind, reason));
  }
  void close() { pipe_.reset(); }

 private:
  Fd pipe_;
};

StartFailure kind_of(int error, bool retryable) {
  if (base::lacks_descriptors(error)) return StartFailure::kNoDescriptors;
  if (base::lacks_room(error)) return StartFailure::kNoRoom;
  return retryable ? StartFailure::kMayPass : StartFailure::kForGood;
}

}  // namespace

int supervise(const SupervisorOptions& options) {
  Report report(options.started_by_executor);
  if (options.started_by_executor) ::fcntl(kLockFd, F_SETFD, FD_CLOEXEC);
  try {
    detach();
    report.say(pid_line(::getpid()));
    Supervisor supervisor(options);
    if (::chdir("/") != 0) throw_errno("cannot enter /");
    supervisor.start();
    report.say(running_line());
    report.close();
    supervisor.run();
    return 0;
  } catch (const process::LaunchError& error) {
    report.failed(error.what(), kind_of(error.error, error.retryable));
  } catch (const std::system_error& error) {
    report.failed(error.what(), kind_of(error.code().value(), process::may_pass(error.code().value())));
  } catch (const std::exception& error) {
    report.failed(error.what(), StartFailure::kForGood);
  }
  return 1;
}

}  // namespace agent::supervisor
