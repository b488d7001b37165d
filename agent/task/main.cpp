// muster-task: what srun starts for each rank. It sets the rank's environment, starts its program, vouches for it to
// the controller, tells how it ended, and ends it when the attempt is over or Slurm has lost sight of it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "beside/fence.h"
#include "beside/last_words.h"
#include "beside/stop_file.h"
#include "launch/rank_variables.h"
#include "os/host_name.h"
#include "os/oom_watch.h"
#include "os/patience.h"
#include "rank/environment.h"
#include "slurm/host_list.h"
#include "agent/task/launch_file.h"
#include "agent/task/log_link.h"
#include "agent/task/rank_process.h"
#include "agent/task/status_file.h"
#include "agent/task/task_reporter.h"

extern char** environ;  // NOLINT: as POSIX names it

namespace {

using namespace worker;
using namespace worker::task;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kHelp = R"(muster-task --attempt FOLDER
muster-task --set FILE --index N

Starts one rank of an attempt inside a Slurm step. musterd writes the folder; srun starts one muster-task a rank.

--oom-counter FILE: where the kernel counts what it kills for memory ("oom_kill N"), instead of where it does here.
)";
constexpr milliseconds kLastWord{5'000};
/// After the attempt is over, between asking the program to leave and killing it.
constexpr milliseconds kLeaveWithin{1'500};
constexpr milliseconds kLook{250};
/// Slurm signals a step's processes one by one, with some plugins the children first: what a program left for may reach
/// this process so much later than it.
constexpr milliseconds kLateSignal{500};
/// How long a file system that does not answer holds up a start, a stop, or the news of an end.
constexpr milliseconds kFencePatience{2'000};
constexpr milliseconds kFilePatience{500};
/// A controller not heard for this long is away.
constexpr milliseconds kAway{3'000};
constexpr int kExitCannotStart = 127;

std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Wanted {
  std::filesystem::path attempt_folder;
  std::filesystem::path oom_counter = os::OomWatch::best_counter_file();
};

Wanted read_arguments(int argc, char** argv) {
  Wanted wanted;
  std::string set;
  std::optional<std::size_t> index;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--attempt") {
      wanted.attempt_folder = value;
    } else if (name == "--oom-counter") {
      wanted.oom_counter = value;
    } else if (name == "--set") {
      set = value;
    } else if (name == "--index") {
      std::size_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error == std::errc() && end == value.data() + value.size()) index = number;
    }
  }
  if (!wanted.attempt_folder.empty()) return wanted;
  if (set.empty() || !index) throw std::runtime_error("want --attempt FOLDER, or --set FILE and --index N");
  wanted.attempt_folder = attempt_of_set(set, *index);
  return wanted;
}

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// The step's nodes in the order of SLURM_NODEID; empty: not known.
std::vector<std::string> nodes_of_step() {
  for (const auto* variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto hosts = slurm::expand_hosts(text_of(variable));
    if (const auto* names = std::get_if<std::vector<std::string>>(&hosts); names != nullptr && !names->empty()) {
      return *names;
    }
  }
  return {};
}

/// A port of this machine that nobody listens on now, for a program that will bind it itself.
std::string free_endpoint(const std::string& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &where.sin_addr);
  socklen_t size = sizeof where;
  const bool bound = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&where), &size) == 0;
  if (fd >= 0) ::close(fd);
  if (!bound) throw std::runtime_error("no free port on " + address);
  return to_string(Endpoint{address, ntohs(where.sin_port)});
}

/// One rank from its start to its end.
class Task {
 public:
  Task(LaunchFile launch, std::filesystem::path oom_counter)
      : launch_(std::move(launch)),
        counts_alone_(os::OomWatch::is_slurm_tasks(oom_counter)),
        oom_(std::move(oom_counter), Clock::now()) {
    // The user's own variables come first in everything, RANK and the like included.
    environment_ = read_environment([this](const char* name) -> std::optional<std::string> {
      if (const auto own = launch_.env.find(name); own != launch_.env.end()) return own->second;
      const char* value = std::getenv(name);
      return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    });
    catch_signals();
    file_.emplace(launch_.attempt_folder, environment_.rank);
    start_reporting();
  }

  int run() {
    try {
      RankProcess::Plan plan{launch_.argv, rank_environment(), launch_.working_folder, files().log};
      if (directive_ == muster::v1::DIRECTIVE_STOP || is_fenced()) {
        return finish_unstarted("its attempt is over already");
      }
      process_.emplace(plan);
      link_log(plan.log);
    } catch (const std::exception& error) {
      return finish_unstarted(error.what());
    }
    status_.pid = process_->pid();
    tell(muster::v1::PROCESS_RUNNING);
    file_->put(status_);
    plan_save();
    watch();
    return finish();
  }

 private:
  void catch_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGPIPE}) {
      sigaddset(&set, number);
    }
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    directives_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    parent_ = static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0));
    parent_id_ = ::getppid();
  }

  void start_reporting() {
    status_.node = os::node_name();
    auto* key = told_.mutable_key();
    std::int64_t job = 0;
    std::from_chars(environment_.job_id.data(), environment_.job_id.data() + environment_.job_id.size(), job);
    key->set_job_id(job);
    key->set_attempt(static_cast<std::uint32_t>(environment_.attempt));
    key->set_rank(static_cast<std::uint32_t>(environment_.rank));
    told_.set_slurm_job(text_of("SLURM_JOB_ID"));
    if (!environment_.controller) throw std::runtime_error("MUSTER_CONTROLLER is not set in launch.json");
    fill_request(muster::v1::PROCESS_STARTING);
    reporter_ = std::make_unique<TaskReporter>(*environment_.controller, environment_.token, told_,
                                               [this](const muster::v1::TaskResponse& answer) { heard(answer); });
  }

  // The reporter's thread.
  void heard(const muster::v1::TaskResponse& answer) {
    {
      const std::lock_guard lock(answer_mutex_);
      answer_ = answer;
    }
    directive_ = answer.directive();
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto wrote = ::write(directives_, &one, sizeof one);
  }

  std::map<std::string, std::string> rank_environment() {
    std::map<std::string, std::string> all;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const auto equals = text.find('=');
      if (equals == 0 || equals == std::string_view::npos) continue;
      const auto name = text.substr(0, equals);
      if (!name.starts_with("MUSTER_")) all.emplace(name, text.substr(equals + 1));
    }
    // The script kept the job's libraries from muster-task itself, which may have started with others.
    for (const std::string name : {"LD_LIBRARY_PATH", "LD_PRELOAD"}) {
      const char* kept = std::getenv(("MUSTER_RANK_" + name).c_str());
      if (kept == nullptr) continue;
      all.erase(name);
      if (*kept != '\0') all[name] = kept;
    }
    for (auto& [name, value] : launch::rank_variables(place())) all[name] = value;
    if (launch_.is_command && !environment_.master) {
      const auto at = meeting_point();
      all["MASTER_ADDR"] = at.host;
      all["MASTER_PORT"] = std::to_string(at.port);
    }
    for (const auto& [name, value] : beside::file_variables(files())) all[name] = value;
    for (const auto& [name, value] : launch_.env) all[name] = value;
    return all;
  }

  launch::RankPlace place() const {
    const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
    const auto& e = environment_;
    launch::RankPlace place{.rank = number(e.rank),
                            .world_size = number(e.world_size),
                            .local_rank = number(e.local_rank),
                            .local_world_size = number(e.local_world_size),
                            .node_rank = number(e.node_rank)};
    place.node_names = nodes_of_step();
    place.nodes = place.node_names.empty() ? (place.world_size + place.local_world_size - 1) / place.local_world_size
                                           : static_cast<std::uint32_t>(place.node_names.size());
    return place;
  }

  beside::RankFiles files() const {
    return beside::rank_files(launch_.log_folder, static_cast<std::uint32_t>(environment_.rank));
  }

  /// A later attempt has the checkpoint folder. A controller that has forgotten this one, or is away, can't say so.
  bool is_fenced() const {
    if (launch_.fence_folder.empty() || environment_.attempt <= 0) return false;
    const auto fence = os::ask_within<std::optional<std::uint32_t>>(
        kFencePatience, [path = launch_.fence_folder] { return beside::read_fence(path); });
    return fence && *fence > static_cast<std::uint32_t>(environment_.attempt);
  }

  /// What the program finds in the file that MUSTER_STOP names; once.
  void tell_why(const std::string& why, bool save, milliseconds until_kill) {
    if (why.empty() || std::exchange(told_why_, true)) return;
    const beside::StopNotice notice{why, save, wall_ms() + until_kill.count()};
    os::run_within(kFilePatience, [file = files().stop, notice] { beside::write_stop_file(file, notice); });
  }

  /// Where rank 0's program will listen. muster-worker finds that out by itself, with a port it holds already.
  Endpoint meeting_point() {
    std::string mine;
    if (environment_.rank == 0) mine = free_endpoint(own_address_towards(*environment_.controller));
    if (environment_.world_size == 1) return parse_endpoint(mine);
    const auto at = reporter_->meet(mine, {MeetingPatience::kLimit, MeetingPatience::kAwayLimit, Clock::now()});
    if (at.empty()) throw std::runtime_error("the controller did not tell where rank 0 listens");
    return parse_endpoint(at);
  }

  void watch() {
    while (!ended_) {
      pollfd waits[3] = {{signals_, POLLIN, 0}, {directives_, POLLIN, 0}, {parent_, POLLIN, 0}};
      ::poll(waits, parent_ >= 0 ? 3 : 2, static_cast<int>(kLook.count()));
      take_signals();
      take_directive();
      look_at_parent();
      look_at_limit();
      if (kill_at_ && Clock::now() >= *kill_at_) kill();
      oom_.tick(Clock::now());
      if (const bool stopped = process_->stopped(); stopped != stopped_ && !ended_) {
        stopped_ = stopped;
        tell(stopped ? muster::v1::PROCESS_STOPPED : muster::v1::PROCESS_RUNNING);
      }
    }
  }

  void kill() {
    killed_ = true;
    process_->signal(SIGKILL);
  }

  void take_signals() {
    read_signals();
    int code = 0;
    if (::waitpid(process_->pid(), &code, WNOHANG) != process_->pid()) return;
    ended_ = true;
    status_.ended_at_ms = wall_ms();
    status_.exit_code = WIFEXITED(code) ? WEXITSTATUS(code) : 0;
    status_.signal = WIFSIGNALED(code) ? WTERMSIG(code) : 0;
    status_.out_of_memory = may_be_for_memory() && oom_.killed_lately(Clock::now());
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD || number == SIGCONT || number == SIGPIPE) continue;
      status_.signals_seen.push_back(number);
      if (launch_.forward_signals) process_->signal(number);
      tell(told_.state());
    }
  }

  /// A program may fail because the kernel killed one that it started; only where nobody else's are counted is that
  /// known.
  bool may_be_for_memory() const {
    if (killed_) return false;
    if (status_.signal == SIGKILL) return true;
    return counts_alone_ && status_.exit_code != 0 && !asked_ && status_.signals_seen.empty();
  }

  void take_directive() {
    std::uint64_t count = 0;
    if (::read(directives_, &count, sizeof count) != sizeof count) return;
    const auto said = directive_.load();
    muster::v1::TaskResponse answer;
    {
      const std::lock_guard lock(answer_mutex_);
      answer = answer_;
    }
    if (said == muster::v1::DIRECTIVE_STOP) {
      tell_why(answer.stop_why(), false, kLeaveWithin);
      // muster-worker hears it too, and leaves on its own.
      if (launch_.is_command && !asked_) process_->signal(SIGTERM);
      asked_ = true;
      if (!kill_at_) kill_at_ = Clock::now() + kLeaveWithin;
    } else if (said == muster::v1::DIRECTIVE_SAVE_AND_LEAVE && launch_.is_command && !asked_) {
      // Slurm's own SIGTERM has reached the program as well: asking twice would mean "at once".
      asked_ = true;
      tell_why(answer.stop_why(), true, milliseconds(answer.stop_grace_ms()));
      if (status_.signals_seen.empty()) process_->signal(SIGTERM);
    }
  }

  // A moment later than the controller would ask.
  void plan_save() {
    if (launch_.time_limit_ms <= 0) return;
    std::int64_t started = 0;
    const auto text = text_of("MUSTER_STARTED_AT");
    std::from_chars(text.data(), text.data() + text.size(), started);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ran =
        started > 0 ? std::chrono::duration_cast<milliseconds>(now) - std::chrono::seconds(started) : milliseconds(0);
    const auto grace = std::min(milliseconds(launch_.stop_grace_ms), milliseconds(launch_.time_limit_ms / 2));
    limit_at_ = Clock::now() + milliseconds(launch_.time_limit_ms) - std::max(ran, milliseconds(0));
    save_at_ = limit_at_ - grace + grace / 10;
  }

  // Slurm no longer knows of us: a rank that went on would run beside its successor.
  void look_at_parent() {
    if (step_lost_ || ::getppid() == parent_id_) return;
    step_lost_ = true;
    kill();
  }

  // A convenience: the job runs without it.
  void link_log(const std::filesystem::path& log) {
    if (launch_.log_link.empty()) return;
    try {
      const auto names = pattern_names(launch_.job_name, environment_.rank, environment_.node_rank);
      if (const auto name = expand_pattern(launch_.log_link, names)) {
        place_link(std::filesystem::path(launch_.working_folder) / *name, log);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster-task: rank %d: slurm.output: %s\n", environment_.rank, error.what());
    }
  }

  // The controller asks for a save in time before the limit. If it is away then, each task does it by itself, and the
  // ranks agree on the step as with any signal. A limit that has passed was changed, and only the controller knows to
  // what.
  void look_at_limit() {
    if (!save_at_ || asked_ || Clock::now() < *save_at_) return;
    if (Clock::now() >= limit_at_) return save_at_.reset();
    if (reporter_->unheard_for() < kAway) return;
    asked_ = true;
    status_.signals_seen.push_back(SIGUSR2);
    tell_why("time_limit", true, std::chrono::duration_cast<milliseconds>(limit_at_ - Clock::now()));
    process_->signal(launch_.is_command ? SIGTERM : SIGUSR2);
    tell(told_.state());
  }

  // The same that stands in the status file.
  void tell(muster::v1::ProcessState state) {
    fill_request(state);
    reporter_->tell(told_);
  }

  void fill_request(muster::v1::ProcessState state) {
    told_.set_state(state);
    told_.set_node(status_.node);
    told_.set_pid(status_.pid);
    told_.set_exit_code(status_.exit_code);
    told_.set_signal(status_.signal);
    told_.set_out_of_memory(status_.out_of_memory);
    told_.set_ended_at_ms(status_.ended_at_ms);
    told_.set_trouble(status_.trouble);
    told_.set_error(status_.error);
    told_.mutable_signals_seen()->Assign(status_.signals_seen.begin(), status_.signals_seen.end());
  }

  // A command that leaves in good order when told to would pass for one that is done. muster-worker says by its exit
  // code that it is not.
  void hear_late_signals() {
    if (!launch_.is_command || launch_.forward_signals || asked_ || status_.signal != 0) return;
    const auto until = Clock::now() + kLateSignal;
    while (status_.signals_seen.empty() && Clock::now() < until) {
      pollfd wait{signals_, POLLIN, 0};
      ::poll(&wait, 1, static_cast<int>(std::chrono::ceil<milliseconds>(until - Clock::now()).count()));
      read_signals();
    }
  }

  int finish() {
    process_->signal(SIGKILL);  // what the program left behind in its group
    status_.error = last_words();
    hear_late_signals();
    status_.state = step_lost_ ? RankStatus::State::kStepLost : RankStatus::State::kExited;
    return last_word(step_lost_ ? muster::v1::PROCESS_STEP_LOST : muster::v1::PROCESS_EXITED);
  }

  // Of one that was asked to leave nobody asks why it did.
  std::string last_words() const {
    if (asked_ || killed_ || !status_.signals_seen.empty()) return {};
    if (!beside::may_have_words({status_.exit_code, status_.signal})) return {};
    const auto words =
        os::ask_within<std::string>(kFilePatience, [files = files()] { return beside::read_last_words(files); });
    return words.value_or("");
  }

  // To the controller and to the disk at once: one that takes its time, or stands still, holds no rank's end back.
  int last_word(muster::v1::ProcessState state) {
    tell(state);
    file_->put(status_);
    reporter_->flush(kLastWord);
    file_->finish();
    return status_.signal != 0 ? 128 + status_.signal : status_.exit_code;
  }

  int finish_unstarted(const std::string& why) {
    std::fprintf(stderr, "muster-task: rank %d: %s\n", environment_.rank, why.c_str());
    status_.state = RankStatus::State::kExited;
    status_.exit_code = kExitCannotStart;
    status_.trouble = why;
    return last_word(muster::v1::PROCESS_EXITED);
  }

  LaunchFile launch_;
  RankEnvironment environment_;
  RankStatus status_;
  std::optional<StatusKeeper> file_;
  bool counts_alone_;
  os::OomWatch oom_;
  muster::v1::TaskRequest told_;
  std::optional<RankProcess> process_;
  int signals_ = -1, directives_ = -1, parent_ = -1;
  pid_t parent_id_ = 0;
  bool ended_ = false, stopped_ = false, asked_ = false, killed_ = false, step_lost_ = false;
  bool told_why_ = false;
  std::atomic<muster::v1::Directive> directive_{muster::v1::DIRECTIVE_CONTINUE};
  std::mutex answer_mutex_;
  muster::v1::TaskResponse answer_;  // the one that brought it
  std::optional<Clock::time_point> kill_at_, save_at_;
  Clock::time_point limit_at_{};
  std::unique_ptr<TaskReporter> reporter_;  // last: its thread uses the others
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  try {
    const auto wanted = read_arguments(argc, argv);
    return Task(read_launch_file(wanted.attempt_folder), wanted.oom_counter).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-task: %s\n", error.what());
    return kExitCannotStart;
  }
}
