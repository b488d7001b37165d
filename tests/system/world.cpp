#include "tests/system/world.h"
#include "tests/places.h"

#include <pwd.h>
#include <signal.h>
#include <unistd.h>

namespace test {
namespace {

std::vector<std::string> with_user(const std::string& user, std::vector<std::string> argv) {
  // The kernel forgets whose end is to be this process's end when its user changes.
  const std::vector<std::string> prefix = {"/usr/bin/setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups",
                                           "--pdeathsig=SIGKILL"};
  argv.insert(argv.begin(), prefix.begin(), prefix.end());
  return argv;
}

void give_to(const std::string& user, const std::filesystem::path& folder) {
  const auto* entry = getpwnam(user.c_str());
  if (entry == nullptr || chown(folder.c_str(), entry->pw_uid, entry->pw_gid) != 0) {
    throw std::runtime_error("can't give " + folder.string() + " to " + user);
  }
}

constexpr auto kStopLimit = 20s;

}  // namespace

World::World(Options options)
    : data_(options.data.empty() ? folder_.path() / options.data_name : options.data),
      user_(std::move(options.user)),
      daemon_flags_(std::move(options.daemon_flags)),
      daemon_environment_(std::move(options.daemon_environment)),
      listen_(options.any_ports ? options.host + ":0" : grpc_port_.on(options.host)),
      http_(options.any_ports ? "127.0.0.1:0" : http_port_.on("127.0.0.1")) {
  if (user_.empty()) return;
  give_to(user_, folder());
  daemon_environment_.emplace("HOME", folder());
}

World::~World() {
  cancel_all();
  if (daemon_ && daemon_->running()) {
    daemon_->signal(SIGTERM);
    EXPECT_EQ(daemon_->wait(kStopLimit), 0) << "musterd did not leave well: " << daemon_log();
  }
  expect_no_sanitizer_report();
}

// Findings of a sanitizer when a program ends reach nobody else.
void World::expect_no_sanitizer_report() const {
  std::vector<std::filesystem::path> logs{folder() / "musterd.err"};
  std::error_code ignored;
  for (const auto& job : std::filesystem::directory_iterator(data_ / "jobs", ignored)) {
    for (const auto& attempt : std::filesystem::directory_iterator(job.path(), ignored)) {
      logs.push_back(attempt.path() / "agent.log");
    }
  }
  for (const auto& log : logs) {
    const auto text = read_file(log);
    EXPECT_EQ(text.find("Sanitizer"), std::string::npos) << log << ":\n" << text;
  }
}

void World::cancel_all() {
  if (!std::filesystem::exists(data_ / "muster.db")) return;
  if (!daemon_ || !daemon_->running()) {
    launch_daemon();
    eventually([&] { return std::filesystem::exists(data_ / "musterd.json") || !daemon_->running(); }, 20s);
  }
  const auto listed = cli({"list", "--json", "--limit", "1000"});
  const auto jobs = Json::parse(listed.out, nullptr, false);
  if (!jobs.is_array()) return;
  for (const auto& job : jobs) {
    const auto state = job["state"].get<std::string>();
    if (state == "succeeded" || state == "failed" || state == "cancelled") continue;
    const auto id = std::to_string(job["id"].get<int>());
    cli({"cancel", id});
    cli({"wait", id, "--timeout", "40s"});
  }
}

std::string World::cannot_run_as(const std::string& user) {
  if (getuid() != 0) return "to act as " + user + " takes root";
  for (const char* name : {"musterd", "muster-worker"}) {
    const auto done = run(with_user(user, {program(name), "--help"}), {}, 20s);
    if (done.exit != 0) return user + " can't run " + name + " of this checkout: " + done.err;
  }
  return {};
}

std::vector<std::string> World::as_user(std::vector<std::string> argv) const {
  return user_.empty() ? argv : with_user(user_, std::move(argv));
}

std::filesystem::path World::program(const std::string& name) {
  return std::filesystem::path(::test::build_folder() + "/bin") / name;
}

Process& World::launch_daemon() {
  std::error_code ignored;
  std::filesystem::remove(data_ / "musterd.json", ignored);
  std::vector<std::string> argv{program("musterd"), "--data-folder", data_, "--listen", listen_, "--http", http_};
  argv.insert(argv.end(), daemon_flags_.begin(), daemon_flags_.end());
  daemon_ =
      std::make_unique<Process>(as_user(argv), daemon_environment_, folder() / "musterd.out", folder() / "musterd.err");
  return *daemon_;
}

void World::start_daemon() {
  launch_daemon();
  const bool ready =
      eventually([&] { return std::filesystem::exists(data_ / "musterd.json") || !daemon_->running(); }, 20s);
  if (!ready || !daemon_->running()) throw std::runtime_error("musterd did not start: " + daemon_log());
  const auto addresses = Json::parse(read_file(data_ / "musterd.json"));
  listen_ = addresses.at("grpc");
  http_ = addresses.at("http");
}

void World::kill_daemon() {
  daemon_->signal(SIGKILL);
  ASSERT_TRUE(daemon_->wait(10s));
}

void World::stop_daemon() {
  daemon_->signal(SIGTERM);
  ASSERT_EQ(daemon_->wait(kStopLimit), 0) << "musterd did not leave well: " << daemon_log();
}

std::map<std::string, std::string> World::client_environment() const {
  return {{"MUSTER_ADDRESS", listen_}, {"MUSTER_TOKEN_FILE", data_ / "token"}, {"HOME", folder()}, {"NO_COLOR", "1"}};
}

Finished World::cli(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  std::vector<std::string> argv{program("muster")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run(as_user(argv), client_environment(), limit);
}

Json World::json(const std::vector<std::string>& arguments) {
  auto with_json = arguments;
  with_json.push_back("--json");
  const auto done = cli(with_json);
  auto parsed = Json::parse(done.out, nullptr, false);
  if (parsed.is_discarded()) throw std::runtime_error("muster " + arguments.front() + ": " + done.out + done.err);
  return parsed;
}

std::string World::submit(const std::string& toml, const std::vector<std::string>& more) {
  const auto file = folder() / ("job-" + std::to_string(job_files_++) + ".toml");
  write_file(file, toml);
  std::vector<std::string> arguments{"submit", file};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto done = cli(arguments);
  if (done.exit != 0) throw std::runtime_error("submit refused: " + done.err);
  return done.out.substr(0, done.out.find_first_not_of("0123456789"));
}

Json World::until(const std::string& job, const std::function<bool(const Json&)>& done,
                  std::chrono::milliseconds limit) {
  Json view;
  const bool in_time = eventually(
      [&] {
        view = show(job);
        return done(view);
      },
      limit);
  if (!in_time) throw std::runtime_error("not within the limit; the job is " + view.dump(1) + daemon_log());
  return view;
}

Json World::until_state(const std::string& job, const std::string& state, std::chrono::milliseconds limit) {
  return until(
      job, [&](const Json& view) { return view.at("state") == state; }, limit);
}

Json World::until_step(const std::string& job, int step, std::chrono::milliseconds limit) {
  return until(
      job, [&](const Json& view) { return view.at("step").get<int>() >= step; }, limit);
}

void expect_every_step(const Json& rows, std::size_t last) {
  ASSERT_EQ(rows.size(), last);
  for (std::size_t step = 1; step <= last; ++step) EXPECT_EQ(rows.at(step - 1).at("step"), step);
}

std::string training_job(const TrainingJob& job) {
  const auto text = [](int number) { return std::to_string(number); };
  return "name = \"training\"\n[resources]\nranks_per_node = " + text(job.ranks) +
         "\n[model]\nfamily = \"llama\"\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\n"
         "num_attention_heads = 4\nnum_key_value_heads = 2\n[data]\nsource = \"fixture\"\nsequence_length = 32\n"
         "[train]\nsteps = " +
         text(job.steps) + "\nmicro_batch_size = 2\nbatch_size = " + text(4 * job.ranks) +
         "\nlearning_rate = 1e-2\nwarmup_steps = 5\nvalidation_every_steps = 0\nstep_delay_ms = " +
         text(job.step_delay_ms) + "\n[checkpoint]\nevery_steps = " + text(job.every_steps) +
         "\n[requeue]\nbackoff_initial = \"100ms\"\n" + job.more;
}

std::string shell_job(const std::string& script, const std::string& more) {
  return "name = \"script\"\ncommand = [\"/bin/bash\", \"-c\", '''" + script +
         "''']\n[requeue]\nbackoff_initial = \"100ms\"\n" + more;
}

Json last(const Json& array) {
  return array.at(array.size() - 1);
}

void signal_rank(const Json& job, int rank, int number) {
  const auto pid = job.at("ranks").at(static_cast<std::size_t>(rank)).at("pid").get<pid_t>();
  ASSERT_GT(pid, 1);
  ASSERT_EQ(::kill(pid, number), 0);
}

}  // namespace test
