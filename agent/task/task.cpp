#include "agent/task/task.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "agent/process/orphans.h"
#include "agent/task/log_link.h"
#include "agent/task/rank_process.h"
#include "agent/watch/agent_files.h"
#include "base/host_name.h"
#include "base/patience.h"
#include "spec/variables.h"

namespace agent::task {
namespace {

using std::chrono::milliseconds;
namespace v1 = muster::v1;
namespace variable = spec::variable;

constexpr milliseconds kLastWord{5'000};
/// After the attempt is over, between asking the program to leave and killing it.
constexpr milliseconds kLeaveWithin{1'500};
constexpr milliseconds kLook{250};
/// Slurm signals a step's processes one by one, with some plugins the children first: a signal that made the program
/// leave may reach the task this much later.
constexpr milliseconds kLateSignal{500};
/// How long a file system that does not answer holds up a start.
constexpr milliseconds kFencePatience{2'000};
/// How long it looks at a time whether processes that even SIGKILL does not end at once, such as those that wait for a
/// disk, are there still.
constexpr milliseconds kLookForLeft{500};
/// A controller not heard for this long is away.
constexpr milliseconds kAway{3'000};

std::int64_t wall_ms() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The number that `text` begins with; 0: it begins with none.
std::int64_t number_in(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string text_of(const spec::Environment& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

/// A port of this machine that nobody listens on now, for a program that will bind it itself.
std::string free_endpoint(const std::string& address) {
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &where.sin_addr);
  socklen_t size = sizeof where;
  auto* const named = reinterpret_cast<sockaddr*>(&where);
  if (!socket || ::bind(socket.get(), named, sizeof where) != 0 || ::getsockname(socket.get(), named, &size) != 0) {
    throw std::runtime_error("no free port on " + address);
  }
  return to_string(rank::Endpoint{address, ntohs(where.sin_port)});
}

}  // namespace

Task::Task(TaskSetup setup)
    : setup_(std::move(setup)),
      // The user's own variables come first in everything, RANK and the like included.
      environment_(rank::read_environment(
          [this](const char* name) { return variable_of(setup_.inherited, setup_.launch, name); })),
      counts_alone_(base::OomWatch::is_slurm_tasks(setup_.oom_counter)),
      oom_(setup_.oom_counter, Clock::now()) {
  if (setup_.has_keeper) {
    const auto folder = launch_.env.find(variable::kAttemptFolder);
    process::keep_rank(
        {folder == launch_.env.end() ? std::string() : folder->second, files().report.string(), files().log.string()});
  }
  catch_signals();
  file_.emplace(setup_.attempt_folder, environment_.rank);
  start_reporting();
}

int Task::run() {
  spec::Environment environment;
  try {
    const auto planned = plan();
    environment = planned.ranks.front().environment;
    if (directive_ == v1::DIRECTIVE_STOP || is_fenced()) return finish_unstarted("its attempt is over already");
    if (!end_earlier()) return finish_unstarted("its attempt is over already");
    sidecar_.emplace(beside::SidecarSetup{.rank = static_cast<std::uint32_t>(environment_.rank),
                                          .files = files(),
                                          .working_folder = launch_.working_folder,
                                          .is_command = launch_.is_command,
                                          .report = launch_.report,
                                          .environment = environment,
                                          .reporters = agents_environment(environment),
                                          .connect = setup_.report,
                                          .agent = "muster-task"});
    sidecar_->look_before_start(Clock::now() + beside::kFilePatience);
    process_.emplace(planned);
    link_log();
  } catch (const std::exception& error) {
    return finish_unstarted(error.what());
  }
  sidecar_->follow(process_->pid());
  watch_use();
  status_.pid = process_->pid();
  tell(v1::PROCESS_RUNNING);
  file_->put(status_);
  plan_save();
  watch();
  return finish();
}

void Task::catch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGPIPE}) {
    sigaddset(&set, number);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = base::Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  directives_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  parent_id_ = ::getppid();
  parent_ = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, parent_id_, 0)));
}

void Task::start_reporting() {
  status_.node = base::node_name();
  auto* key = told_.mutable_key();
  key->set_job_id(number_in(environment_.job_id));
  key->set_attempt(static_cast<std::uint32_t>(environment_.attempt));
  key->set_rank(static_cast<std::uint32_t>(environment_.rank));
  told_.set_slurm_job(text_of(setup_.inherited, "SLURM_JOB_ID"));
  if (!environment_.controller) {
    throw std::runtime_error(std::string(variable::kController) + " is not set in " + protocol::kTaskLaunchFile);
  }
  fill_request(v1::PROCESS_STARTING);
  link_ = setup_.connect(*environment_.controller, environment_.token, told_,
                         [this](const v1::TaskResponse& answer) { heard(answer); });
  stacks_.emplace([this](auto number, auto /*rank*/, const auto& text) { link_->give_stack(number, text); });
}

// In the link's thread.
void Task::heard(const v1::TaskResponse& answer) {
  {
    const std::lock_guard lock(answer_mutex_);
    answer_ = answer;
  }
  directive_ = answer.directive();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto wrote = ::write(directives_.get(), &one, sizeof one);
}

process::GangPlan Task::plan() {
  std::optional<rank::Endpoint> at;
  if (launch_.is_command && !environment_.master) at = meeting_point();
  const auto rank = static_cast<std::uint32_t>(environment_.rank);
  return {.program = launch_.argv.front(),
          .as_a_shell_would = true,
          .argv = launch_.argv,
          .working_folder = launch_.working_folder,
          .ranks = {{rank, rank_environment(setup_.inherited, launch_, environment_, at), files().log.string()}}};
}

/// Where rank 0's program will listen. muster-worker finds that out by itself, with a port it holds already.
rank::Endpoint Task::meeting_point() {
  using rank::MeetingPatience;
  std::string mine;
  if (environment_.rank == 0) mine = free_endpoint(own_address_towards(*environment_.controller));
  if (environment_.world_size == 1) return rank::parse_endpoint(mine);
  const auto at = link_->meet(mine, {MeetingPatience::kLimit, MeetingPatience::kAwayLimit, Clock::now()});
  if (at.empty()) throw std::runtime_error("the controller did not tell where rank 0 listens");
  return rank::parse_endpoint(at);
}

watch::RankFiles Task::files() const {
  return watch::rank_files(launch_.log_folder, static_cast<std::uint32_t>(environment_.rank));
}

/// A muster-task that was killed could not end what its rank had left in sessions of their own. Where Slurm has no
/// cgroups, nobody else does. Throws if something of an earlier attempt stays. False: this attempt is over.
bool Task::end_earlier() {
  const auto folder = launch_.env.find(variable::kAttemptFolder);
  if (folder == launch_.env.end()) return true;
  const process::AttemptMark mark{folder->second, environment_.attempt};
  auto left = setup_.ending.earlier(mark, setup_.ending.told_after);
  if (left.empty()) return true;
  say("rank " + std::to_string(environment_.rank) + " waits for " + left +
      " of an earlier attempt on this node, which SIGKILL has not ended yet");
  for (const auto give_up = Clock::now() + setup_.ending.longest; Clock::now() < give_up;) {
    if (directive_ == v1::DIRECTIVE_STOP) return false;
    left = setup_.ending.earlier(mark, kLookForLeft);
    if (left.empty()) return true;
  }
  throw std::runtime_error(left + " of an earlier attempt is still on node " + status_.node +
                           ", and SIGKILL does not end it");
}

/// Into the rank's log, where people look first, and into that of the Slurm job.
void Task::say(const std::string& words) const {
  process::say_in_log(files().log, "muster-task: " + words + "\n");
}

/// The end is told: the other ranks must not wait for it. As long as this task is there, Slurm's job is not over, and
/// the next attempt does not begin.
void Task::stay_beside(const std::string& left) {
  say(left + " that rank " + std::to_string(environment_.rank) +
      " left behind does not end by SIGKILL; this task stays until it does");
  for (const auto give_up = Clock::now() + setup_.ending.longest; Clock::now() < give_up;) {
    if (setup_.ending.children(kLookForLeft).empty()) return;
  }
  say("it is there still, and this task gives up");
}

/// A later attempt has the checkpoint folder. A controller that has forgotten this attempt, or is away, cannot say so.
bool Task::is_fenced() const {
  if (launch_.fence_folder.empty() || environment_.attempt <= 0) return false;
  const auto fence = base::ask_within<std::optional<protocol::Fence>>(
      kFencePatience, [path = launch_.fence_folder] { return watch::read_fence(path); });
  return fence && *fence && !(*fence)->lets(number_in(environment_.job_id), environment_.attempt);
}

// A convenience: the job runs without it.
void Task::link_log() const {
  if (launch_.log_link.empty()) return;
  try {
    const auto names = pattern_names(launch_.job_name, environment_.rank, environment_.node_rank);
    if (const auto name = expand_pattern(launch_.log_link, names)) {
      place_link(std::filesystem::path(launch_.working_folder) / *name, files().log);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-task: rank %d: slurm.output: %s\n", environment_.rank, error.what());
  }
}

// A moment later than the controller would ask.
void Task::plan_save() {
  if (launch_.time_limit_ms <= 0) return;
  const auto started = number_in(text_of(setup_.inherited, variable::kStartedAt));
  const auto ran = milliseconds(started > 0 ? wall_ms() - started * 1000 : 0);
  const auto grace = std::min(milliseconds(launch_.stop_grace_ms), milliseconds(launch_.time_limit_ms / 2));
  limit_at_ = Clock::now() + milliseconds(launch_.time_limit_ms) - std::max(ran, milliseconds(0));
  save_at_ = limit_at_ - grace + grace / 10;
}

void Task::watch() {
  while (!ended_) {
    pollfd waits[3] = {{signals_.get(), POLLIN, 0}, {directives_.get(), POLLIN, 0}, {parent_.get(), POLLIN, 0}};
    ::poll(waits, parent_ ? 3 : 2, static_cast<int>(kLook.count()));
    take_signals();
    take_directive();
    look_at_parent();
    look_at_limit();
    look_at_use();
    if (kill_at_ && Clock::now() >= *kill_at_) kill();
    oom_.tick(Clock::now());
    if (const bool stopped = process_->stopped(); stopped != stopped_ && !ended_) {
      stopped_ = stopped;
      tell(stopped ? v1::PROCESS_STOPPED : v1::PROCESS_RUNNING);
    }
  }
}

void Task::take_signals() {
  read_signals();
  int code = 0;
  if (!take_ends(code)) return;
  ended_ = true;
  status_.ended_at_ms = wall_ms();
  status_.exit.code = WIFEXITED(code) ? WEXITSTATUS(code) : 0;
  status_.exit.signal = WIFSIGNALED(code) ? WTERMSIG(code) : 0;
  status_.out_of_memory = may_be_for_memory() && oom_.killed_lately(Clock::now());
}

/// Tells whether the program has ended, and how. A process that it has left behind is a child of this process, which
/// nobody else waits for.
bool Task::take_ends(int& code) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
    const bool is_program = info.si_pid == process_->pid();
    if (::waitpid(info.si_pid, &code, 0) == info.si_pid && is_program) return true;
  }
}

void Task::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD || number == SIGCONT || number == SIGPIPE) continue;
    status_.signals_seen.push_back(number);
    if (launch_.forward_signals) process_->signal(number);
    tell(told_.state());
  }
}

void Task::take_directive() {
  std::uint64_t count = 0;
  if (::read(directives_.get(), &count, sizeof count) != sizeof count) return;
  const auto said = directive_.load();
  v1::TaskResponse answer;
  {
    const std::lock_guard lock(answer_mutex_);
    answer = answer_;
  }
  if (answer.stacks() != 0) {
    stacks_->ask(answer.stacks(), {{static_cast<std::uint32_t>(environment_.rank), process_->pid()}});
  }
  if (said == v1::DIRECTIVE_STOP) {
    peer_failed_ = !asked_ && answer.stop_why() == watch::kPeerFailed;
    const bool knows = tell_why(answer.stop_why(), false, kLeaveWithin);
    // muster-worker hears it too, and leaves on its own.
    if (launch_.is_command && !asked_ && !knows) process_->signal(SIGTERM);
    asked_ = true;
    if (!kill_at_) kill_at_ = Clock::now() + kLeaveWithin;
  } else if (said == v1::DIRECTIVE_SAVE_AND_LEAVE && launch_.is_command && !asked_) {
    // Slurm's own SIGTERM has reached the program as well: asking twice would mean "at once".
    asked_ = true;
    const auto at_step = answer.has_stop_at_step() ? std::optional(answer.stop_at_step()) : std::nullopt;
    const bool knows = tell_why(answer.stop_why(), true, milliseconds(answer.stop_grace_ms()), at_step);
    if (status_.signals_seen.empty() && !knows) process_->signal(SIGTERM);
  }
}

// Slurm has lost sight of this process: a rank that went on would run beside its successor.
void Task::look_at_parent() {
  if (step_lost_ || ::getppid() == parent_id_) return;
  step_lost_ = true;
  kill();
}

// The controller asks for a save in time before the limit. If the controller is away then, each task asks by itself,
// and the ranks agree on the step as with any signal. A limit that has passed was changed, and only the controller
// knows to what.
void Task::look_at_limit() {
  if (!save_at_ || asked_ || Clock::now() < *save_at_) return;
  if (Clock::now() >= limit_at_) return save_at_.reset();
  if (link_->unheard_for() < kAway) return;
  asked_ = true;
  status_.signals_seen.push_back(SIGUSR2);
  const bool knows = tell_why("time_limit", true, std::chrono::duration_cast<milliseconds>(limit_at_ - Clock::now()));
  if (!launch_.is_command || !knows) process_->signal(launch_.is_command ? SIGTERM : SIGUSR2);
  tell(told_.state());
}

void Task::look_at_use() {
  if (!sampler_) return;
  const auto samples = sampler_->newest();
  if (samples.empty() || samples.begin()->second.at_ms == told_.use().at_ms()) return;
  const auto& sample = samples.begin()->second;
  auto& use = *told_.mutable_use();
  use.Clear();
  use.set_at_ms(sample.at_ms);
  if (sample.cores) use.set_cores(*sample.cores);
  use.set_memory_bytes(sample.memory_bytes);
  use.set_memory_peak_bytes(sample.memory_peak_bytes);
  use.set_processes(sample.processes);
  if (sample.gpu_percent) use.set_gpu_percent(*sample.gpu_percent);
  if (sample.gpu_memory_bytes) use.set_gpu_memory_bytes(*sample.gpu_memory_bytes);
  link_->tell_later(told_);
}

void Task::kill() {
  killed_ = true;
  process_->signal(SIGKILL);
}

/// A program may fail because the kernel killed another one that it had started. The task knows of that only where the
/// counter counts no processes of others.
bool Task::may_be_for_memory() const {
  if (killed_) return false;
  if (status_.exit.signal == SIGKILL) return true;
  return counts_alone_ && status_.exit.code != 0 && !asked_ && status_.signals_seen.empty();
}

/// Writes the notice that the program finds in the file that MUSTER_STOP names; once. True: the program looks for the
/// file by itself, and needs no signal.
bool Task::tell_why(const std::string& why, bool save, milliseconds until_kill, std::optional<std::int64_t> at_step) {
  if (why.empty() || std::exchange(told_why_, true)) return false;
  return !beside::Sidecar::tell_stop({&*sidecar_}, {why, save, wall_ms() + until_kill.count(), at_step}).empty();
}

void Task::tell(v1::ProcessState state) {
  fill_request(state);
  link_->tell(told_);
}

// Fills in the same facts that stand in the status file.
void Task::fill_request(v1::ProcessState state) {
  told_.set_state(state);
  told_.set_node(status_.node);
  told_.set_pid(status_.pid);
  told_.set_exit_code(status_.exit.code);
  told_.set_signal(status_.exit.signal);
  told_.set_out_of_memory(status_.out_of_memory);
  told_.set_ended_at_ms(status_.ended_at_ms);
  told_.set_trouble(status_.trouble);
  told_.set_error(status_.error);
  told_.mutable_signals_seen()->Assign(status_.signals_seen.begin(), status_.signals_seen.end());
}

int Task::finish() {
  process_->signal(SIGKILL);  // what the program left behind in its group
  status_.error = last_words();
  // And in sessions of its own, before the controller learns of the end and may start the next attempt.
  const auto left = setup_.ending.children(setup_.ending.told_after);
  hear_late_signals();
  tell_last_reports();
  status_.state = step_lost_ ? protocol::RankStatus::State::kStepLost : protocol::RankStatus::State::kExited;
  const int code = last_word(step_lost_ ? v1::PROCESS_STEP_LOST : v1::PROCESS_EXITED);
  tell_what_is_left();
  if (!left.empty()) stay_beside(left);
  return code;
}

/// The news of a failure does not wait until the controller has taken all that the program has reported. A controller
/// that has not heard the news does not end the other ranks. Slurm does, once this process has ended.
void Task::tell_what_is_left() {
  const auto left_out = sidecar_->finish(controller_knows_end_ ? Clock::time_point::max() : Clock::now());
  if (!left_out.empty()) say(left_out);
}

int Task::finish_unstarted(const std::string& why) {
  std::fprintf(stderr, "muster-task: rank %d: %s\n", environment_.rank, why.c_str());
  status_.state = protocol::RankStatus::State::kExited;
  status_.exit.code = spec::kExitCannotStart;
  status_.trouble = why;
  return last_word(v1::PROCESS_EXITED);
}

// To the controller and to the disk at once: a disk that takes its time, or stands still, holds no rank's end back.
int Task::last_word(v1::ProcessState state) {
  tell(state);
  file_->put(status_);
  controller_knows_end_ = link_->flush(kLastWord);
  file_->finish();
  return status_.exit.signal != 0 ? 128 + status_.exit.signal : status_.exit.code;
}

// A rank with a launcher of its own has no variables of a rank; who reports for it says which rank it is.
spec::Environment Task::agents_environment(const spec::Environment& rank) const {
  if (!launch_.own_launcher) return rank;
  auto all = rank;
  auto with_rank = launch_;
  with_rank.own_launcher = false;
  for (auto& [name, value] : rank_environment(setup_.inherited, with_rank, environment_, {})) all.emplace(name, value);
  return all;
}

void Task::watch_use() {
  try {
    sampler_.emplace(std::vector{sidecar_->seen_as(process_->pid())}, setup_.use);
  } catch (const std::system_error& error) {  // the rank runs on without
    std::fprintf(stderr, "muster-task: nobody sees what rank %d uses: %s\n", environment_.rank, error.what());
  }
}

// The controller takes a rank's reports before it learns that the rank has ended: the attempt may be over then. A word
// meanwhile would say that the rank is alive.
void Task::tell_last_reports() {
  if (!sidecar_->follows()) return;
  link_->hold();
  sidecar_->ended(status_.exit);
  sidecar_->wait_before_end(Clock::now() + report::Relay::kLongestEnd);
}

// A command that leaves in good order when it is asked to would pass for one that is done. muster-worker says by its
// exit code that it is not.
void Task::hear_late_signals() {
  if (!launch_.is_command || launch_.forward_signals || asked_ || status_.exit.signal != 0) return;
  const auto until = Clock::now() + kLateSignal;
  while (status_.signals_seen.empty() && Clock::now() < until) {
    pollfd wait{signals_.get(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(std::chrono::ceil<milliseconds>(until - Clock::now()).count()));
    read_signals();
  }
}

std::string Task::last_words() const {
  const bool was_asked = asked_ || killed_ || !status_.signals_seen.empty();
  const auto asked = peer_failed_ ? beside::Asked::kBecauseAPeerFailed
                     : was_asked  ? beside::Asked::kToLeave
                                  : beside::Asked::kNo;
  return sidecar_->last_words(status_.exit, asked).value_or("");
}

}  // namespace agent::task
