#include "tests/slurm_system/story.h"

#include <algorithm>
#include <iostream>
#include <sstream>

namespace story {
namespace {

constexpr std::size_t kTail = 6000;
constexpr std::size_t kTailOfLog = 1500;

std::string number(int value) {
  return std::to_string(value);
}

std::string tail(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : "...\n" + text.substr(text.size() - most);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string resources(int nodes, int ranks_per_node, const std::string& more) {
  return "[resources]\nnodes = " + number(nodes) + "\nranks_per_node = " + number(ranks_per_node) + "\n" + more;
}

std::string variable(const std::string& block, const std::string& name) {
  for (std::size_t at = 0; at < block.size();) {
    const std::string entry = block.c_str() + at;
    at += entry.size() + 1;
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return {};
}

/// A process whose first word ends so and whose environment has all of these. Other stories run beside: of one's own
/// processes something must be asked for that no other has.
pid_t find_process(const std::string& program, const std::map<std::string, std::string>& variables) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto pid = std::strtol(entry.path().filename().c_str(), nullptr, 10);
    if (pid <= 1) continue;
    const std::string first = test::read_file(entry.path() / "cmdline").c_str();
    if (!first.ends_with(program)) continue;
    const auto environment = test::read_file(entry.path() / "environ");
    const bool all = std::ranges::all_of(
        variables, [&](const auto& wanted) { return variable(environment, wanted.first) == wanted.second; });
    if (all) return static_cast<pid_t>(pid);
  }
  return 0;
}

bool has_ended(const Json& job) {
  const auto state = text(job, "state");
  return state == "succeeded" || state == "failed" || state == "cancelled";
}

}  // namespace

std::string training(const Training& job) {
  return "name = \"training\"\n" + resources(job.nodes, job.ranks_per_node, job.resources) +
         "[model]\nfamily = \"llama\"\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\n"
         "num_attention_heads = 4\nnum_key_value_heads = 2\n[data]\nsource = \"fixture\"\nsequence_length = 32\n"
         "[train]\nsteps = " +
         number(job.steps) + "\nmicro_batch_size = 2\nbatch_size = " + number(4 * job.nodes * job.ranks_per_node) +
         "\nlearning_rate = 1e-2\nwarmup_steps = 5\nvalidation_every_steps = 0\nstep_delay_ms = " +
         number(job.step_delay_ms) + "\n[checkpoint]\nevery_steps = " + number(job.every_steps) +
         "\n[requeue]\nbackoff_initial = \"100ms\"\n" + job.requeue + "[slurm]\npartition = \"" + job.partition +
         "\"\n" + job.more;
}

std::string shell(const Shell& job) {
  return "name = \"script\"\ncommand = [\"/bin/bash\", \"-c\", '''" + job.script + "''']\n" +
         resources(job.nodes, job.ranks_per_node, job.resources) + "[requeue]\nbackoff_initial = \"100ms\"\n" +
         job.requeue + job.more;
}

std::filesystem::path newest_checkpoint(const std::filesystem::path& folder) {
  std::set<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (std::filesystem::exists(entry.path() / "manifest.json")) found.insert(entry.path());
  }
  return found.empty() ? std::filesystem::path() : *found.rbegin();
}

Json jobs_of(test::World& muster, const test::Finished& submitted) {
  return muster.json({"list", "--sweep", submitted.out.substr(0, submitted.out.find('\n'))});
}

std::string acting_user() {
  const char* user = getenv("MUSTER_TEST_USER");
  return user == nullptr ? std::string() : user;
}

Stage::Stage(slurm_cluster::Options options, std::vector<std::string> daemon_flags,
             const std::map<std::string, std::string>& daemon_environment, const std::string& data_name)
    : slurm_(options) {
  test::World::Options world;
  world.data_name = data_name;
  world.daemon_flags = std::move(daemon_flags);
  world.daemon_environment = slurm_.env();
  world.daemon_environment.insert(daemon_environment.begin(), daemon_environment.end());
  if (options.separate_network) {
    world.host = slurm_.host_address();
    world.daemon_flags.emplace_back("--insecure-listen");
  }
  world.user = acting_user();
  // Made for its owner alone.
  if (!world.user.empty()) std::filesystem::permissions(slurm_.folder(), std::filesystem::perms(0711));
  muster_ = std::make_unique<test::World>(std::move(world));
  muster_->start_daemon();
}

std::string Stage::slurm_job(const std::string& job, std::size_t attempt) {
  const auto view = muster_->show(job);
  if (view.at("attempts").size() < attempt) return {};
  return text(story::attempt(view, attempt), "scheduler_job");
}

Json Stage::until_ended(const std::string& job, std::size_t attempt, std::chrono::milliseconds limit) {
  return muster_->until(
      job,
      [&](const Json& view) {
        return view.at("attempts").size() >= attempt && story::attempt(view, attempt).at("state") == "ended";
      },
      limit);
}

Json Stage::until_running(const std::string& job, std::size_t attempt, std::chrono::milliseconds limit) {
  return muster_->until(
      job,
      [&](const Json& view) {
        if (view.at("attempts").size() < attempt) return false;
        const auto state = text(story::attempt(view, attempt), "state");
        return state == "running" || state == "draining" || state == "ended";
      },
      limit);
}

Json Stage::until_trains(const std::string& job, std::size_t attempt, std::chrono::milliseconds limit) {
  return muster_->until(
      job,
      [&](const Json& view) {
        if (view.at("attempts").size() != attempt) return false;
        const auto& from = story::attempt(view, attempt).at("resumed_from_step");
        return from.is_number() &&
               std::ranges::all_of(view.at("ranks"), [&](const Json& rank) { return rank.at("step") > from; });
      },
      limit);
}

std::string Stage::node_of_rank(const std::string& job, std::size_t rank) {
  const auto node = [rank](const Json& view) {
    const auto& ranks = view.at("ranks");
    return rank < ranks.size() ? text(ranks[rank], "node") : std::string();
  };
  return node(muster_->until(job, [&](const Json& view) { return !node(view).empty(); }));
}

std::string Stage::until_handed_over(const std::string& job) {
  muster_->until(job, [](const Json& view) {
    return !view.at("attempts").empty() && !text(story::attempt(view, 1), "scheduler_job").empty();
  });
  return slurm_job(job, 1);
}

std::vector<int> Stage::saved_steps(const std::string& job, int attempt) {
  std::vector<int> steps;
  for (const auto& event : muster_->json({"events", job})) {
    if (event.at("type") != "checkpoint_saved" || event.at("attempt") != attempt) continue;
    steps.push_back(Json::parse(text(event, "payload")).at("step"));
  }
  return steps;
}

std::string Stage::events(const std::string& job) {
  std::string all;
  for (const auto& event : muster_->json({"events", job})) all += text(event, "text") + "\n";
  return all;
}

pid_t Stage::pid_of_rank(const std::string& job, int attempt, int rank) {
  const auto folder = muster_->data() / "jobs" / job / ("attempt-" + number(attempt));
  return find_process("muster-worker", {{"MUSTER_ATTEMPT_FOLDER", folder}, {"RANK", number(rank)}});
}

pid_t Stage::pid_of_task(const std::string& job, int attempt, int rank) {
  return find_process("muster-agent", {{"SLURM_CONF", slurm_.conf()},
                                       {"SLURM_JOB_ID", slurm_job(job, static_cast<std::size_t>(attempt))},
                                       {"SLURM_PROCID", number(rank)}});
}

std::vector<pid_t> Stage::pids_of_slurmds(const std::set<std::string>& nodes) {
  std::vector<pid_t> pids;
  for (const pid_t pid : slurm_cluster::processes_of(slurm_.folder(), "slurmd")) {
    auto words = test::read_file("/proc/" + std::to_string(pid) + "/cmdline");
    std::ranges::replace(words, '\0', ' ');
    for (const auto& node : nodes) {
      if (words.find(" -N " + node + " ") != std::string::npos) pids.push_back(pid);
    }
  }
  EXPECT_EQ(pids.size(), nodes.size());
  return pids;
}

std::vector<std::string> Stage::slurm_jobs(bool all) {
  std::vector<std::string> command = {"squeue", "-h", "-r", "-a", "-o", "%i %T %k"};
  if (all) command.insert(command.end(), {"-t", "all"});
  return lines_of(slurm_.run(command).out);
}

std::string Stage::comment_of(const std::string& job, int attempt) {
  const auto record = muster_->data() / "jobs" / job / ("attempt-" + number(attempt)) / "slurm.json";
  const auto json = Json::parse(test::read_file(record), nullptr, false);
  return json.is_object() ? json.value("comment", std::string()) : std::string();
}

int Stage::submissions_of(const std::string& job, int attempt) {
  const auto suffix = ":" + job + "." + number(attempt);
  const auto jobs = slurm_jobs();
  return static_cast<int>(std::ranges::count_if(jobs, [&](const std::string& line) { return line.ends_with(suffix); }));
}

void Stage::expect_model_of_calm_run(const std::string& job, const Training& what) {
  Training calm = what;
  calm.partition = "main";
  calm.step_delay_ms = 0;
  calm.every_steps = Training().every_steps;
  calm.resources = calm.requeue = calm.more = "";
  auto& reference = calm_[training(calm)];
  if (reference.empty()) {
    reference = muster_->submit(training(calm));
    const auto view = muster_->until_state(reference, "succeeded");
    ASSERT_EQ(view.at("attempts").size(), 1U) << "the reference itself was interrupted: " << view.dump(1);
  }
  const auto left = newest_checkpoint(muster_->checkpoints(reference));
  const auto right = newest_checkpoint(muster_->checkpoints(job));
  ASSERT_EQ(left.filename(), right.filename());
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(left)) {
    if (entry.path().extension() != ".safetensors") continue;
    EXPECT_TRUE(test::read_file(entry.path()) == test::read_file(right / entry.path().filename()))
        << entry.path().filename() << " is not that of an uninterrupted run";
    ++compared;
  }
  EXPECT_EQ(compared, what.nodes * what.ranks_per_node);
}

std::string Stage::diagnosis() {
  std::string told = "\n---- squeue\n" + slurm_.run({"squeue", "-t", "all", "-a"}).out;
  for (const auto& job : muster_->json({"list", "--limit", "1000"})) {
    if (job.at("id").get<int>() <= told_) continue;
    const auto id = number(job.at("id").get<int>());
    told += "---- muster show " + id + "\n" + muster_->cli({"show", id}).out;
    told += "---- muster events " + id + "\n" + tail(muster_->cli({"events", id}).out, kTail);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(muster_->data() / "jobs" / id, ignored)) {
      if (entry.path().extension() != ".log") continue;
      told += "---- " + entry.path().string() + "\n" + tail(test::read_file(entry.path()), kTailOfLog);
    }
  }
  // Also those of the clusters beside: a step that hangs shows who is there and what it waits for.
  told += "---- processes\n" + slurm_
                                   .run({"/bin/bash", "-c",
                                         "ps -eo pid,ppid,stat,wchan:20,etimes,args --sort=start_time | "
                                         "grep -E '[s]lurmstepd|[m]uster-task|[s]run '"})
                                   .out;
  return told + "---- musterd\n" + tail(muster_->daemon_log(), kTail);
}

void Stage::clear() {
  for (const auto& job : muster_->json({"list", "--limit", "1000"})) {
    if (!has_ended(job)) muster_->cli({"cancel", number(job.at("id").get<int>())});
    told_ = std::max(told_, job.at("id").get<int>());
  }
  test::eventually(
      [&] {
        const auto jobs = muster_->json({"list", "--limit", "1000"});
        return std::ranges::all_of(jobs, has_ended);
      },
      60s);
  std::vector<std::string> scancel = {"scancel"};
  for (const auto& line : slurm_jobs(false)) scancel.push_back(line.substr(0, line.find(' ')));
  if (scancel.size() > 1) slurm_.run(scancel);
  test::eventually([&] { return slurm_jobs(false).empty(); }, 60s);
}

}  // namespace story
