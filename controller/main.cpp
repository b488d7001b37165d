// musterd: one process that holds the store, follows every rank and serves people.
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spdlog/async.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>

#include "http/server.h"
#include "rpc/server.h"
#include "runtime/controller_impl.h"
#include "runtime/durable_file.h"
#include "runtime/listen_address.h"
#include "runtime/local/local_executor.h"
#include "runtime/routing_executor.h"
#include "runtime/slurm/attempt_follower.h"
#include "runtime/slurm/slurm_executor.h"
#include "runtime/slurm/submission.h"
#include "runtime/token_file.h"
#include "slurm/client.h"
#include "store/sqlite_store.h"

namespace {

namespace fs = std::filesystem;
using runtime::ListenAddress;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Flags {
  std::string data_folder;
  std::string listen = "127.0.0.1:7600";
  std::string http = "127.0.0.1:7601";
  std::string worker, supervisor, task, advertise, partitions;
  std::string slurm = "auto";
  std::string log_level = "info";
  bool insecure_listen = false;
  std::int64_t slurm_poll_ms = 1000;
  std::int64_t exclusion_s = std::chrono::duration_cast<std::chrono::seconds>(runtime::kExcludedFor).count();
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

fs::path default_data_folder() {
  if (const auto folder = environment("MUSTER_DATA_FOLDER"); !folder.empty()) return folder;
  if (const auto data = environment("XDG_DATA_HOME"); !data.empty()) return fs::path(data) / "muster";
  const auto home = environment("HOME");
  if (home.empty()) throw UsageError("no data folder: set HOME or give --data-folder");
  return fs::path(home) / ".local" / "share" / "muster";
}

// A program of ours that was not named lies beside this one.
fs::path program(const std::string& given, const char* name) {
  if (!given.empty()) {
    if (::access(given.c_str(), X_OK) != 0 || fs::is_directory(given)) {
      throw UsageError("--" + std::string(name).substr(std::strlen("muster-")) + " " + given +
                       ": no program there that can be run; leave it out for the " + name + " beside musterd");
    }
    return fs::absolute(given);
  }
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

bool is_in_path(const char* name) {
  const auto path = environment("PATH");
  for (std::size_t at = 0; at <= path.size();) {
    const auto colon = std::min(path.find(':', at), path.size());
    if (::access((path.substr(at, colon - at) + "/" + name).c_str(), X_OK) == 0) return true;
    at = colon + 1;
  }
  return false;
}

// Where Slurm's commands look without SLURM_CONF; the last is what slurmd leaves of a configuration it was sent.
constexpr const char* kSlurmConfs[] = {"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
                                       "/run/slurm/conf/slurm.conf"};

// What a command says that finds no configuration, or can't read it; one that slurmctld does not answer has found it.
std::string configuration_problem(slurm::CommandRunner& runner) {
  slurm::Command ask;
  ask.argv = {"sinfo", "--noheader", "--format=%R"};
  ask.time_limit = std::chrono::milliseconds(10'000);
  ask.unset = {"SINFO_*"};
  const auto said = runner.run(ask);
  if (!said.could_not_start.empty()) return said.could_not_start;
  for (const char* sign : {"configuration source", "process configuration file", "s_p_parse_file"}) {
    if (said.err.find(sign) == std::string::npos) continue;
    auto text = said.err;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::ranges::replace(text, '\n', ';');
    return text;
  }
  return {};
}

// Why jobs can't go to Slurm, with the remedy; empty: its commands are there, and a cluster is configured. Where
// somebody insists, Slurm's own commands are asked: they may get their configuration from elsewhere.
std::string why_no_slurm(const std::string& wanted, slurm::CommandRunner& runner) {
  if (wanted == "no") return "musterd was started with --slurm no; start it with --slurm auto";
  for (const char* name : {"sbatch", "sinfo"}) {
    if (!is_in_path(name)) {
      return std::string("there is no ") + name +
             " in musterd's PATH; install Slurm's commands, and start musterd again";
    }
  }
  const std::string remedy = "; set SLURM_CONF to the cluster's slurm.conf, and start musterd again";
  const auto named = environment("SLURM_CONF");
  if (!named.empty() && !fs::exists(named)) return "SLURM_CONF names " + named + ", which is not there" + remedy;
  if (wanted == "yes") {
    const auto problem = configuration_problem(runner);
    return problem.empty() ? "" : "Slurm's commands have no usable configuration (" + problem + ")" + remedy;
  }
  if (!named.empty()) return {};
  const bool found = std::ranges::any_of(kSlurmConfs, [](const char* file) { return fs::exists(file); });
  return found ? ""
               : std::string("sbatch is there, but no slurm.conf (looked for ") + kSlurmConfs[0] + ")" + remedy +
                     ", with --slurm yes if the cluster sends it";
}

std::string own_user() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : entry->pw_name;
}

slurm::ClientOptions client_options() {
  slurm::ClientOptions options;
  options.conf = environment("SLURM_CONF");
  // As long as an attempt waits for accounting's word; listings wait with it.
  options.history_limit = runtime::on_slurm::AttemptFollower::kHistoryPatience;
  return options;
}

// Local processes alone, or beside Slurm.
class Executors {
 public:
  Executors(const Flags& flags, const fs::path& data, const std::string& secret, runtime::Clock& clock)
      : local_({data, program(flags.supervisor, "muster-supervisor"), {}}) {
    why_no_slurm_ = ::why_no_slurm(flags.slurm, runner_);
    if (flags.slurm == "yes" && !why_no_slurm_.empty()) throw UsageError("--slurm yes: " + why_no_slurm_);
    if (!why_no_slurm_.empty()) return;
    client_ = std::make_unique<slurm::Client>(runner_, client_options());
    slurm_ = std::make_unique<runtime::on_slurm::SlurmExecutor>(
        *client_, clock,
        runtime::on_slurm::SlurmOptions{data, program(flags.task, "muster-task"), runtime::store_name(secret),
                                        own_user(), core::Millis(flags.slurm_poll_ms)});
    both_ = std::make_unique<runtime::RoutingExecutor>(local_, *slurm_);
  }
  runtime::Executor& get() { return both_ ? static_cast<runtime::Executor&>(*both_) : local_; }
  bool has_slurm() const { return slurm_ != nullptr; }
  const std::string& why_no_slurm() const { return why_no_slurm_; }

 private:
  std::string why_no_slurm_;
  runtime::local::LocalExecutor local_;
  slurm::ProcessRunner runner_;
  std::unique_ptr<slurm::Client> client_;
  std::unique_ptr<runtime::on_slurm::SlurmExecutor> slurm_;
  std::unique_ptr<runtime::RoutingExecutor> both_;
};

ListenAddress checked_address(const char* flag, const std::string& text, bool insecure) {
  ListenAddress address;
  try {
    address = runtime::parse_listen_address(text);
  } catch (const std::invalid_argument& e) {
    throw UsageError(std::string(flag) + " " + e.what());
  }
  if (!address.is_loopback() && !insecure) {
    throw UsageError(std::string(flag) + " " + text +
                     " can be reached from other machines, and tokens travel unencrypted: use 127.0.0.1 and an ssh "
                     "tunnel, or add --insecure-listen on a network you trust");
  }
  return address;
}

fs::path prepare_data_folder(const std::string& given) {
  const auto folder = fs::absolute(given.empty() ? default_data_folder() : fs::path(given)).lexically_normal();
  const bool fresh = !fs::exists(folder);
  runtime::make_folders(folder);
  if (fresh) ::chmod(folder.c_str(), 0700);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw std::runtime_error("cannot write to the data folder " + folder.string() + ": " + std::strerror(errno) +
                             "; make it writable or give another one with --data-folder");
  }
  return folder;
}

// A port that the system chose is asked for again by the next musterd on this folder: ranks that go on meanwhile know
// no other address.
class RememberedPorts {
 public:
  explicit RememberedPorts(fs::path file) : file_(std::move(file)) {
    known_ = nlohmann::json::parse(runtime::read_small_file(file_), nullptr, false);
    if (!known_.is_object()) known_ = nlohmann::json::object();
  }
  // Calls serve(address) with the remembered port, then with any; returns its server and sets the real port.
  template <typename Serve>
  auto serve(const char* name, ListenAddress& address, Serve serve) {
    const auto known = known_port(name);
    if (address.port == 0 && known > 0) {
      auto wanted = address;
      wanted.port = known;
      try {
        return keep(name, address, serve(wanted.text()));
      } catch (const std::runtime_error& e) {
        spdlog::warn("the {} port of the last time is taken, choosing another: {}", name, e.what());
      }
    }
    return keep(name, address, serve(address.text()));
  }
  void save() const { runtime::write_file_durably(file_, known_.dump() + "\n"); }

 private:
  // 0: none. A file that somebody has edited costs the port, never the start.
  std::uint16_t known_port(const char* name) const {
    const auto entry = known_.find(name);
    if (entry == known_.end()) return 0;
    const auto port = entry->is_number_integer() ? entry->get<std::int64_t>() : 0;
    if (port > 0 && port <= 65535) return static_cast<std::uint16_t>(port);
    spdlog::warn("{}: \"{}\" is {}, which is no port; any free one is taken", file_.string(), name, entry->dump());
    return 0;
  }
  template <typename Server>
  Server keep(const char* name, ListenAddress& address, Server server) {
    address.port = static_cast<std::uint16_t>(server->port());
    known_[name] = server->port();
    return server;
  }
  fs::path file_;
  nlohmann::json known_;
};

// The pipe that a signal writes to. Handlers, unlike blocked or ignored signals, are not inherited by what we start.
int signal_pipe[2] = {-1, -1};

void on_signal(int number) {
  const int saved = errno;
  const char byte = static_cast<char>(number);
  [[maybe_unused]] const auto wrote = ::write(signal_pipe[1], &byte, 1);
  errno = saved;
}

void catch_signals() {
  if (::pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("cannot make a pipe for signals");
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT}) ::sigaction(number, &action, nullptr);
  action.sa_handler = [](int) {};  // a reader that left is an error of the write, not the end of us
  ::sigaction(SIGPIPE, &action, nullptr);
}

int wait_for_signal() {
  ::fcntl(signal_pipe[0], F_SETFL, 0);
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
  }
  return byte;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Where `muster` and scripts find the running musterd; gone when it has left in peace.
class ReadyFile {
 public:
  ReadyFile(fs::path file, const ListenAddress& grpc, const ListenAddress& http) : file_(std::move(file)) {
    const nlohmann::ordered_json text = {{"pid", ::getpid()},
                                         {"host", host_name()},
                                         {"grpc", grpc.text()},
                                         {"http", http.text()},
                                         {"version", MUSTER_VERSION}};
    runtime::write_file_durably(file_, text.dump() + "\n");
  }
  ~ReadyFile() {
    std::error_code ignored;
    fs::remove(file_, ignored);
  }
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

 private:
  fs::path file_;
};

int serve(const Flags& flags) {
  auto grpc_address = checked_address("--listen", flags.listen, flags.insecure_listen);
  auto http_address = checked_address("--http", flags.http, flags.insecure_listen);
  catch_signals();
  const auto data = prepare_data_folder(flags.data_folder);
  const auto store = store::open_sqlite_store(data / "muster.db");
  const auto token = runtime::load_or_create_token(data / "token");

  runtime::RealClock clock;
  Executors executors(flags, data, store->secret(), clock);
  runtime::ControllerOptions options;
  options.data_folder = data;
  options.worker_program = program(flags.worker, "muster-worker");
  options.people_token = token;
  options.version = MUSTER_VERSION;
  options.check_folders = !executors.has_slurm();
  options.scheduler_log = runtime::on_slurm::slurm_log_of;
  options.why_no_slurm = executors.why_no_slurm();
  options.excluded_for = std::chrono::seconds(flags.exclusion_s);
  if (!flags.partitions.empty()) options.partitions_file = fs::absolute(flags.partitions);
  const auto controller = runtime::make_controller(*store, executors.get(), clock, options);

  RememberedPorts ports(data / "ports.json");
  const auto grpc =
      ports.serve("grpc", grpc_address, [&](const std::string& address) { return rpc::serve(*controller, address); });
  const auto http =
      ports.serve("http", http_address, [&](const std::string& address) { return http::serve(*controller, address); });
  ports.save();
  const auto dashboard = "http://" + http_address.text() + "/";
  controller->start({flags.advertise.empty() ? grpc_address.text() : flags.advertise, dashboard});
  int signal = 0;
  {
    const ReadyFile ready(data / "musterd.json", grpc_address, http_address);
    spdlog::info("musterd {} is ready: gRPC {}, dashboard {}, data {}", MUSTER_VERSION, grpc_address.text(), dashboard,
                 data.string());
    signal = wait_for_signal();
  }
  spdlog::info("{}: leaving; running attempts go on", signal == SIGINT ? "SIGINT" : "SIGTERM");
  http->shutdown();
  grpc->shutdown();
  controller->stop();
  return 0;
}

}  // namespace

// stderr may be a file on the disk that stands still, and whoever answers a heartbeat must not wait for it: another
// thread writes. Beyond kLogLines waiting lines the oldest are lost.
void log_without_waiting() {
  constexpr std::size_t kLogLines = 8192;
  spdlog::init_thread_pool(kLogLines, 1);
  spdlog::set_default_logger(
      std::make_shared<spdlog::async_logger>("musterd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(),
                                             spdlog::thread_pool(), spdlog::async_overflow_policy::overrun_oldest));
}

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"musterd: accepts training jobs, runs them, watches every rank and starts them again"};
  app.set_version_flag("--version", MUSTER_VERSION);
  app.add_option("--data-folder", flags.data_folder,
                 "where everything is kept (default: $MUSTER_DATA_FOLDER, else $XDG_DATA_HOME/muster, else "
                 "~/.local/share/muster)")
      ->type_name("FOLDER");
  app.add_option("--listen", flags.listen, "where clients and ranks connect (gRPC); port 0: the system chooses")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--http", flags.http, "where the dashboard is; port 0: the system chooses")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--worker", flags.worker, "the program of recipe ranks (default: muster-worker beside musterd)")
      ->type_name("FILE");
  app.add_option("--supervisor", flags.supervisor,
                 "the program that stays with an attempt (default: muster-supervisor beside musterd)")
      ->type_name("FILE");
  app.add_option("--task", flags.task, "the program beside each rank on Slurm (default: muster-task beside musterd)")
      ->type_name("FILE");
  app.add_option("--slurm", flags.slurm,
                 "whether jobs may go to Slurm; auto: if sbatch and a slurm.conf ($SLURM_CONF, /etc/slurm) are there; "
                 "yes: musterd does not start without them")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "yes", "no"}))
      ->capture_default_str();
  app.add_option("--slurm-poll-ms", flags.slurm_poll_ms)->check(CLI::Range(10, 600'000))->group("");
  app.add_option("--node-exclusion-s", flags.exclusion_s,
                 "how long a lost or unfit node gets no ranks, as far as others can be had")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 30 * 24 * 3600))
      ->capture_default_str();
  app.add_option("--partitions", flags.partitions,
                 "TOML file that says which Slurm partitions may be used, by whom and how; read again when it changes")
      ->type_name("FILE");
  app.add_option("--advertise", flags.advertise,
                 "under which ranks on other machines reach --listen (default: --listen)")
      ->type_name("HOST:PORT");
  app.add_option("--log-level", flags.log_level, "what to tell on stderr")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.add_flag("--insecure-listen", flags.insecure_listen,
               "allow addresses that other machines can reach, though nothing is encrypted");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  log_without_waiting();
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  int status = kExitFailed;
  try {
    status = serve(flags);
  } catch (const UsageError& e) {
    std::cerr << "musterd: " << e.what() << "\n";
    status = kExitUsage;
  } catch (const std::exception& e) {
    std::cerr << "musterd: " << e.what() << "\n";
  }
  spdlog::shutdown();  // writes what waits
  return status;
}
