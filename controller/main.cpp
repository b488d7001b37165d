// musterd: the controller process. It holds the store, watches every rank and serves people. This file reads the flags,
// builds the parts and ends them in order.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/async.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/command.h"
#include "base/durable_file.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "base/usage_error.h"
#include "controller/common/data_folder.h"
#include "controller/common/ready_file.h"
#include "controller/common/tokens.h"
#include "controller/executors/slurm/slurm_submission.h"
#include "controller/http/http_server.h"
#include "controller/in_slurm/succession.h"
#include "controller/musterd/advertised.h"
#include "controller/musterd/backup.h"
#include "controller/musterd/executors.h"
#include "controller/musterd/leaving.h"
#include "controller/musterd/own_ports.h"
#include "controller/musterd/place.h"
#include "controller/net/address.h"
#include "controller/net/connections.h"
#include "controller/net/crowd.h"
#include "controller/net/self_probe.h"
#include "controller/rpc/rpc_server.h"
#include "controller/service/controller_impl.h"
#include "controller/store/sqlite_store.h"
#include "muster_version.h"
#include "slurm/slurm_client.h"

namespace {

namespace fs = std::filesystem;
using base::UsageError;
using musterd::environment;
using net::ListenAddress;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr const char* kRunsAsRoot =
    "musterd runs as root, and so does every job, whoever submits it: let a user of its own run musterd "
    "(deploy/ADMIN.md)";

constexpr const char* kOpenForNodes =
    "--listen auto with Slurm: the port for ranks can be reached from other machines, and tokens travel unencrypted: "
    "that is for a network you trust; --slurm no keeps musterd to this machine";

constexpr const char* kOpenInSlurm =
    "musterd runs in a Slurm job: its ports for ranks and of the dashboard can be reached from other machines, and "
    "tokens travel unencrypted: that is for a network you trust";

struct Flags {
  std::string data_folder;
  std::string listen = "127.0.0.1:7600";
  std::string http = "127.0.0.1:7601";
  std::string ports = musterd::kUsualPorts;
  std::string worker, agent, advertise, partitions, log_file;
  std::string slurm = "auto";
  std::string gpus, gpu_library, cores = "auto";
  std::string log_level = "info";
  bool insecure_listen = false;
  bool moved = false, fork = false;
  std::string backup, restore;
  bool backup_metrics = false;
  bool in_slurm = false;
  std::int64_t slurm_poll_ms = 1000;
  std::int64_t leaving_limit_ms = 20'000;  // systemd kills after 90 s
  std::int64_t probe_ms = net::ProbeTimes{}.every.count();
  std::int64_t rank_metrics_days = 1, step_metrics_days = 30;
  std::int64_t exclusion_s = std::chrono::duration_cast<std::chrono::seconds>(executors::kExcludedFor).count();
};

fs::path default_data_folder() {
  if (const auto folder = environment("MUSTER_DATA_FOLDER"); !folder.empty()) return folder;
  if (const auto data = environment("XDG_DATA_HOME"); !data.empty()) return fs::path(data) / "muster";
  const auto home = environment("HOME");
  if (home.empty()) throw UsageError("no data folder: set HOME, or give --data-folder");
  return fs::path(home) / ".local" / "share" / "muster";
}

ListenAddress checked_address(const char* flag, const std::string& text, bool insecure) {
  ListenAddress address;
  try {
    address = net::parse_listen_address(text);
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

musterd::PortChoice wanted_port(const char* flag, const std::string& text, const Flags& flags) {
  if (text != "auto") return {checked_address(flag, text, flags.insecure_listen), false, {}};
  return {{.host = "127.0.0.1", .port = 0}, true, musterd::parse_port_range("--ports", flags.ports)};
}

fs::path data_folder_of(const std::string& given) {
  return fs::absolute(given.empty() ? default_data_folder() : fs::path(given)).lexically_normal();
}

fs::path prepare_data_folder(const std::string& given) {
  const auto folder = data_folder_of(given);
  common::make_data_folder(folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw std::runtime_error("cannot write to the data folder " + folder.string() + ": " + std::strerror(errno) +
                             "; make it writable or give another one with --data-folder");
  }
  return folder;
}

// The pipe that a signal handler writes to. A program that musterd starts does not inherit handlers. It would inherit
// blocked and ignored signals.
int signal_pipe[2] = {-1, -1};

void on_signal(int number) {
  const int saved = errno;
  const char byte = static_cast<char>(number);
  [[maybe_unused]] const auto wrote = ::write(signal_pipe[1], &byte, 1);
  errno = saved;
}

void catch_signals(bool in_slurm) {
  if (::pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("cannot make a pipe for signals");
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT}) ::sigaction(number, &action, nullptr);
  if (in_slurm) ::sigaction(SIGUSR1, &action, nullptr);  // the time limit is near
  action.sa_handler = [](int) {};                        // write() then fails with EPIPE, and the process goes on
  ::sigaction(SIGPIPE, &action, nullptr);
}

// Written to the pipe in place of a signal's number: a port of musterd does not answer.
constexpr char kPortIsDead = 0;

char wait_for_signal() {
  ::fcntl(signal_pipe[0], F_SETFL, 0);
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
  }
  return byte;
}

/// True if somebody asks musterd to leave within this time.
bool is_asked_to_leave(core::Millis patience) {
  pollfd asked{signal_pipe[0], POLLIN, 0};
  return ::poll(&asked, 1, static_cast<int>(patience.count())) > 0;
}

/// Why musterd leaves, for the log.
const char* words_of(char signal) {
  if (signal == SIGUSR1) return "for the next Slurm job";
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

/// A musterd that runs in a Slurm job itself.
struct InSlurm {
  InSlurm(const fs::path& data, std::uint64_t open_files)
      : runner(true, open_files),
        client(runner, {}),
        job(slurm::parse_job_id(environment("SLURM_JOB_ID"))),
        own{data, job.value_or(slurm::JobId{}), environment("SLURM_JOB_USER")},
        succession(client, own, [](const std::string& why) {
          spdlog::warn("{}; musterd leaves, and running attempts go on", why);
          const char signal = SIGUSR1;
          [[maybe_unused]] const auto wrote = ::write(signal_pipe[1], &signal, 1);
        }) {
    if (!job) throw UsageError("--in-slurm outside of a Slurm job: muster up --in-slurm submits one");
  }

  base::ProcessRunner runner;
  slurm::Client client;
  std::optional<slurm::JobId> job;
  in_slurm::OwnJob own;
  in_slurm::Succession succession;
};

/// The store of the folder. In a Slurm job, waits while another musterd has it: the one of the job before, on a node
/// that Slurm has lost. nullptr: musterd is asked to leave meanwhile.
std::unique_ptr<store::Store> open_store(const fs::path& data, const common::Clock& clock, InSlurm* in_slurm) {
  constexpr core::Millis kBetweenTries{1000};
  const auto tell = [](const std::string& text) { spdlog::warn(text); };
  for (bool is_told = false;; is_told = true) {
    try {
      return store::open_sqlite_store(common::DataFolder(data).database(),
                                      {.now = [&] { return clock.wall(); }, .tell = tell});
    } catch (const store::Error& error) {
      if (in_slurm == nullptr || error.kind() != store::Error::Kind::kInUse) throw;
      if (!is_told) spdlog::warn("{}; waiting for its end", error.what());
      in_slurm->succession.start();
      if (is_asked_to_leave(kBetweenTries)) return nullptr;
    }
  }
}

/// The address by which ranks on nodes look for a musterd that listens for them by itself.
std::string nodes_find_at(std::uint16_t port, InSlurm* in_slurm) {
  auto host = in_slurm == nullptr ? std::string() : in_slurm::address_of_node(in_slurm->client, base::node_name());
  return ListenAddress{.host = host.empty() ? base::host_name() : host, .port = port}.text();
}

// systemd starts musterd again ("Restart=on-failure"). Attempts go on meanwhile.
void leave_for_a_dead_port(const std::string& why) {
  spdlog::critical("{}; musterd exits so that its service starts it again; running attempts go on", why);
  [[maybe_unused]] const auto wrote = ::write(signal_pipe[1], &kPortIsDead, 1);
}

// Raises the soft limit of open files to the hard limit. Returns the old soft limit, which programs that musterd starts
// get back.
std::uint64_t take_all_descriptors() {
  const auto before = base::raise_open_files_limit();
  const auto now = base::open_files_limit().soft;
  if (now < net::kFewestDescriptors) {
    throw UsageError("the limit of open files is " + std::to_string(now) + ", and musterd needs " +
                     std::to_string(net::kFewestDescriptors) + ": raise it with ulimit -n, or LimitNOFILE");
  }
  return before.soft;
}

/// A short pause between probes, which tests ask for, makes a probe short too.
net::ProbeTimes probe_times(core::Millis every) {
  constexpr int kPausesPerProbe = 5;
  return {.every = every, .patience = std::min(net::ProbeTimes{}.patience, kPausesPerProbe * every)};
}

/// Does what --backup or --restore ask for; false: neither was given.
bool keep_backup(const Flags& flags) {
  if (flags.backup.empty() && flags.restore.empty()) return false;
  if (!flags.restore.empty()) {
    musterd::restore(prepare_data_folder(flags.data_folder), flags.restore);
  } else {
    musterd::back_up(data_folder_of(flags.data_folder), flags.backup, flags.backup_metrics);
  }
  return true;
}

/// `in_slurm`: nullptr outside of a Slurm job.
int serve(const Flags& flags, InSlurm* in_slurm) {
  if (flags.step_metrics_days < flags.rank_metrics_days) {
    throw UsageError("--step-metrics-days " + std::to_string(flags.step_metrics_days) +
                     " is less than --rank-metrics-days " + std::to_string(flags.rank_metrics_days) +
                     ": one row a step is kept at least as long as the rows of its ranks");
  }
  auto grpc_port = wanted_port("--listen", flags.listen, flags);
  auto http_port = wanted_port("--http", flags.http, flags);
  auto& grpc_address = grpc_port.address;
  auto& http_address = http_port.address;
  const auto open_files = take_all_descriptors();
  if (in_slurm == nullptr) catch_signals(false);
  common::RealClock clock;
  musterd::Leaving leaving{core::Millis(flags.leaving_limit_ms)};  // before all that it bounds, so that it goes last
  musterd::Advertised advertised(clock);
  if (!flags.advertise.empty()) {
    advertised.set(flags.advertise);
  } else if (grpc_address.port != 0) {
    advertised.set(grpc_address.text());
  }
  const auto data = prepare_data_folder(flags.data_folder);
  const auto store = open_store(data, clock, in_slurm);
  if (!store) return 0;
  const auto relocation = flags.fork    ? musterd::Relocation::kFork
                          : flags.moved ? musterd::Relocation::kMoved
                                        : musterd::Relocation::kNone;
  musterd::settle(*store, data, relocation, clock.wall());
  const auto token = common::load_or_create_token(common::DataFolder(data).token());

  const musterd::MachineSettings machine_settings{
      .gpus = flags.gpus, .cores = flags.cores, .library = flags.gpu_library};
  const auto machine = musterd::find_own_machine(machine_settings);
  musterd::Executors executors(
      {data, store->secret(), flags.agent, flags.slurm, core::Millis(flags.slurm_poll_ms), open_files, machine}, clock);
  spdlog::info(musterd::own_machine_text(machine));
  const auto connections = net::connections_of_this_process();
  service::ControllerOptions options;
  options.data_folder = data;
  options.worker_program = musterd::program(flags.worker, "muster-worker");
  options.people_token = token;
  options.version = MUSTER_VERSION;
  options.check_folders = !executors.has_slurm();
  options.scheduler_log = executors::on_slurm::slurm_log_of;
  options.why_no_slurm = executors.why_no_slurm();
  options.problems = [&] {
    auto all = executors.problems();
    if (auto open = common::DataFolder(data).open_to_others(); !open.empty()) all.push_back(std::move(open));
    if (auto wrong = advertised.problem(); !wrong.empty()) all.push_back(std::move(wrong));
    if (auto alone = in_slurm ? in_slurm->succession.problem() : ""; !alone.empty()) all.push_back(std::move(alone));
    if (auto crowd = connections->crowd().text(net::Connections::Clock::now()); !crowd.empty()) {
      all.push_back(std::move(crowd));
    }
    return all;
  };
  if (::geteuid() == 0) options.notes.emplace_back(kRunsAsRoot);
  const bool for_nodes = grpc_port.is_auto && executors.has_slurm();
  const bool opens_http = for_nodes && in_slurm != nullptr && http_port.is_auto;
  if (for_nodes) {
    grpc_address.host = "0.0.0.0";
    if (opens_http) http_address.host = "0.0.0.0";
    options.notes.emplace_back(in_slurm ? kOpenInSlurm : kOpenForNodes);
  }
  if (auto doubt = advertised.doubt(); !doubt.empty() && executors.has_slurm())
    options.notes.push_back(std::move(doubt));
  options.advertised = [&] { return std::pair(advertised.address(), advertised.problem_or_doubt()); };
  for (const auto& problem : options.problems()) spdlog::warn(problem);
  for (const auto& note : options.notes) spdlog::warn(note);
  options.excluded_for = std::chrono::seconds(flags.exclusion_s);
  options.metrics_keep = {std::chrono::days(flags.rank_metrics_days), std::chrono::days(flags.step_metrics_days)};
  if (!flags.partitions.empty()) options.partitions_file = fs::absolute(flags.partitions);
  const auto controller = service::make_controller(*store, executors.get(), clock, options);

  const auto shares = connections->shares();
  spdlog::info("{} files may be open: {} connections of ranks, {} of people, {} of strangers",
               base::open_files_limit().soft, shares.ranks, shares.people,
               shares.strangers + shares.waiting + shares.asking);
  const net::KnownNetworksFile known_networks(data / "known-networks", connections->known(), true);
  musterd::RememberedPorts ports(data / "ports.json");
  const auto grpc = ports.serve(
      "grpc", grpc_port, [&](const std::string& address) { return rpc::serve(*controller, address, connections); });
  const auto http = ports.serve(
      "http", http_port, [&](const std::string& address) { return http::serve(*controller, address, connections); });
  ports.save();
  if (advertised.address().empty()) {
    advertised.set(for_nodes ? nodes_find_at(grpc_address.port, in_slurm) : grpc_address.text());
  }
  auto shown_address = http_address;
  if (opens_http) shown_address.host = net::parse_listen_address(advertised.address()).host;
  const auto dashboard = "http://" + shown_address.text() + "/";
  controller->start({advertised.address(), dashboard});
  musterd::MachineWatch watch(machine_settings, machine,
                              [&](const executors::OwnMachine& found) { executors.get().learn(found); });
  watch.start();
  char signal = 0;
  {
    const common::OwnReadyFile ready(data, {grpc_address.text(), http_address.text(), advertised.address(),
                                            MUSTER_VERSION, in_slurm ? to_string(*in_slurm->job) : ""});
    if (in_slurm) in_slurm->succession.start();
    spdlog::info("musterd {} is ready: gRPC {}, dashboard {}, data {}", MUSTER_VERSION, grpc_address.text(), dashboard,
                 data.string());
    const auto probed = [&](net::ProbedPort port, net::Port which) {
      port.is_crowded = [&connections, which] {
        return connections->is_crowded(which, net::Connections::Clock::now());
      };
      return port;
    };
    const net::SelfProbe probe(
        {probed(net::grpc_port(grpc_address.host, grpc_address.port, token, [&] { grpc->reopen(); }), net::Port::kGrpc),
         probed(net::http_port(http_address.host, http_address.port, token, [&] { http->reopen(); }),
                net::Port::kDashboard)},
        probe_times(core::Millis(flags.probe_ms)), leave_for_a_dead_port);
    signal = wait_for_signal();
    leaving.begin();
    // While ports close, ranks cannot be heard. So nothing is judged any more, and nothing is begun.
    controller->begin_to_leave();
    leaving.now("ending the look at its own ports");
  }
  if (signal != kPortIsDead) {
    spdlog::info("{}: leaving; running attempts go on", words_of(signal));
  }
  leaving.now("closing the port of the dashboard");
  http->shutdown();
  leaving.now("closing the port of gRPC");
  grpc->shutdown();
  leaving.now("writing what is known into its database");
  controller->stop();
  leaving.now("closing its database");
  return signal == kPortIsDead ? kExitFailed : 0;
}

/// serve() in a Slurm job of `muster up --in-slurm`.
int serve_in_slurm(const Flags& flags) {
  catch_signals(true);
  const auto data = prepare_data_folder(flags.data_folder);
  InSlurm in_slurm(data, base::open_files_limit().soft);
  if (!fs::exists(in_slurm::script_file(data))) {
    spdlog::info("{} is not there: muster down has ended this musterd", in_slurm::script_file(data).native());
    return 0;
  }
  in_slurm::claim(in_slurm.own);
  const auto wait = in_slurm::wait_after_claim(data);
  if (wait > core::Millis(0) && is_asked_to_leave(wait)) return 0;
  try {
    return serve(flags, &in_slurm);
  } catch (const UsageError&) {  // the next job would end the same way
    throw;
  } catch (const std::exception&) {
    in_slurm.succession.queue_and_stop();
    throw;
  }
}

}  // namespace

// Lets another thread write the log. stderr may be a file on a disk that hangs, and a thread that answers a heartbeat
// must not wait for it. If more than kLogLines lines wait, the oldest are dropped.
// With `file` the log is written there and not to stderr: at most kLogFiles older files of kLogBytes stay beside it.
void log_without_waiting(const std::string& file) {
  constexpr std::size_t kLogLines = 2048;  // their room, 0.8 MB, is taken at the start
  constexpr std::size_t kLogBytes = std::size_t{8} << 20, kLogFiles = 3;
  spdlog::init_thread_pool(kLogLines, 1);
  spdlog::sink_ptr sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(file, kLogBytes, kLogFiles);
  }
  const auto logger = std::make_shared<spdlog::async_logger>("musterd", std::move(sink), spdlog::thread_pool(),
                                                             spdlog::async_overflow_policy::overrun_oldest);
  logger->flush_on(spdlog::level::trace);  // a file keeps lines back otherwise, and a crash would lose them
  spdlog::set_default_logger(logger);
}

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"musterd: accepts training jobs, runs them, watches every rank and starts them again"};
  app.set_version_flag("--version", "musterd " MUSTER_VERSION_TEXT);
  const auto add = [&app](const char* name, auto& value, const char* type, const char* meaning) {
    return app.add_option(name, value, meaning)->type_name(type)->capture_default_str();
  };
  add("--data-folder", flags.data_folder, "FOLDER",
      "the folder of the database, logs and job files (default: $MUSTER_DATA_FOLDER, else $XDG_DATA_HOME/muster, else "
      "~/.local/share/muster)");
  add("--listen", flags.listen, "HOST:PORT",
      "the address for clients and ranks (gRPC); with port 0 the system chooses a port; auto: a free port of --ports, "
      "for this machine alone, or with Slurm for all its nodes");
  add("--http", flags.http, "HOST:PORT",
      "the address of the dashboard; with port 0 the system chooses a port; auto: a free port of --ports, for this "
      "machine alone");
  add("--ports", flags.ports, "LOW-HIGH",
      "the ports that auto takes one of; musterd takes the same one again when it is started again");
  add("--worker", flags.worker, "FILE",
      "the program that trains recipes, one process a rank (default: muster-worker beside musterd)");
  add("--agent", flags.agent, "FILE",
      "the program that starts ranks and stays beside them, here and on Slurm (default: muster-agent beside musterd)");
  add("--slurm", flags.slurm, "WHEN",
      "whether jobs may go to Slurm; auto: if sbatch and a slurm.conf ($SLURM_CONF, /etc/slurm) exist; yes: musterd "
      "does "
      "not start without a usable Slurm")
      ->check(CLI::IsMember({"auto", "yes", "no"}));
  add("--local-gpus", flags.gpus, "LIST",
      "the GPUs that jobs on this machine may have, by number or UUID with commas between them; none; or open: "
      "muster gives none away and hides none (default: "
      "$CUDA_VISIBLE_DEVICES, else all that the driver lists); each goes to one attempt at a time");
  add("--local-cores", flags.cores, "COUNT",
      "the cores that jobs on this machine may ask for with cpus_per_rank; auto: those that musterd may use; off: "
      "cores are not counted");
  app.add_option("--gpu-library", flags.gpu_library)->group("");
  app.add_option("--leaving-limit-ms", flags.leaving_limit_ms)->check(CLI::Range(10, 600'000))->group("");
  app.add_option("--probe-ms", flags.probe_ms)->check(CLI::Range(10, 600'000))->group("");
  add("--slurm-poll-ms", flags.slurm_poll_ms, "MS",
      "the least time between two squeue, but for a few where something is urgent; five times as long while every job "
      "waits or its ranks are heard, and at least twenty times what a squeue takes")
      ->check(CLI::Range(10, 600'000));
  add("--node-exclusion-s", flags.exclusion_s, "SECONDS",
      "how long a lost or unfit node gets no ranks, if other nodes are available")
      ->check(CLI::Range(0, 30 * 24 * 3600));
  add("--rank-metrics-days", flags.rank_metrics_days, "DAYS",
      "how long the metrics of each rank are kept by themselves; after that one row a step is left, over all ranks")
      ->check(CLI::Range(1, 36'500));
  add("--step-metrics-days", flags.step_metrics_days, "DAYS",
      "how long each step is kept; after that the lowest, the highest and the last value of every 32 steps are left, "
      "for "
      "ever")
      ->check(CLI::Range(1, 36'500));
  add("--partitions", flags.partitions, "FILE",
      "TOML file with the policies of Slurm partitions: who may use them, and how; musterd reads it again when it "
      "changes");
  add("--advertise", flags.advertise, "HOST:PORT",
      "the address by which ranks on other machines reach --listen (default: --listen)");
  add("--log-file", flags.log_file, "FILE",
      "write the log into this file, and not to stderr; three older files of 8 MiB stay beside it");
  add("--log-level", flags.log_level, "LEVEL", "the lowest level of messages on stderr")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}));
  app.add_flag(
      "--in-slurm", flags.in_slurm,
      "musterd runs in a Slurm job of muster up --in-slurm: it listens for other machines with --http auto too, "
      "keeps the next such job queued, and leaves on SIGUSR1");
  app.add_flag("--insecure-listen", flags.insecure_listen,
               "allow addresses that other machines can reach, although the traffic is not encrypted");
  auto* moved = app.add_flag("--moved", flags.moved,
                             "the data folder has moved, and no other musterd uses the old one: go on with its jobs");
  app.add_flag("--fork", flags.fork,
               "the data folder is a copy: start a separate controller, which drops the jobs that have not ended and "
               "does not touch their processes and files")
      ->excludes(moved);
  auto* backup = add("--backup", flags.backup, "FILE",
                     "write a backup of the data folder into this new file and exit, also while a musterd runs on it: "
                     "all jobs with their history, and the token");
  app.add_flag("--backup-metrics", flags.backup_metrics, "with --backup: write metrics, too, into FILE.metrics")
      ->needs(backup);
  add("--restore", flags.restore, "FILE",
      "put this backup in the place of the data folder's databases and exit; those that are there get another name")
      ->excludes(backup);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  try {
    log_without_waiting(flags.log_file);
  } catch (const spdlog::spdlog_ex& e) {
    std::cerr << "musterd: --log-file " << flags.log_file << ": " << e.what() << "; name a file that can be written\n";
    return kExitUsage;
  }
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  int status = kExitFailed;
  try {
    status = keep_backup(flags) ? 0 : flags.in_slurm ? serve_in_slurm(flags) : serve(flags, nullptr);
  } catch (const UsageError& e) {
    std::cerr << "musterd: " << e.what() << "\n";
    status = kExitUsage;
  } catch (const std::exception& e) {
    std::cerr << "musterd: " << e.what() << "\n";
  }
  spdlog::shutdown();  // writes the lines that wait
  return status;
}
