#include "spec/jobfile/job_keys.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/words.h"
#include "spec/key_names.h"
#include "spec/limits.h"
#include "spec/tables/checkpoint_keys.h"

namespace jobfile {
namespace {

constexpr double kMostBudget = 1'000'000;
constexpr double kLongest = 864'000'000'000;  // 10,000 days in ms
constexpr double kLongestDelay = 3'600'000;
constexpr double kMinute = 60'000;
constexpr double kNicest = 2'147'483'645;  // sbatch's limit
constexpr double kMiB = 1 << 20;
constexpr double kMostMemory = 1'125'899'906'842'624;  // 1024TiB

/// A row without a default or bounds.
constexpr Key plain(Kind kind, std::string_view name, std::string_view meaning) {
  return {.name = name, .kind = kind, .meaning = meaning};
}

constexpr Key number(std::string_view name, std::string_view standard, double low, double high,
                     std::string_view meaning) {
  return {.name = name, .kind = Kind::kWhole, .standard = standard, .low = low, .high = high, .meaning = meaning};
}

constexpr Key budget(std::string_view name, std::string_view standard, std::string_view meaning) {
  return number(name, standard, 0, kMostBudget, meaning);
}

constexpr Key memory(std::string_view name, std::string_view meaning) {
  return {.name = name, .kind = Kind::kSize, .low = kMiB, .high = kMostMemory, .meaning = meaning};
}

constexpr Key duration(std::string_view name, std::string_view standard, double low, double high,
                       std::string_view meaning) {
  return {.name = name, .kind = Kind::kDuration, .standard = standard, .low = low, .high = high, .meaning = meaning};
}

constexpr Key choice(std::string_view name, std::string_view standard, std::string_view choices,
                     std::string_view meaning) {
  return {.name = name, .kind = Kind::kChoice, .standard = standard, .choices = choices, .meaning = meaning};
}

/// The key without a standard. `how` describes its default.
constexpr Key derived(Key key, std::string_view how) {
  key.derived = how;
  return key;
}

constexpr Key flag(std::string_view name, std::string_view meaning) {
  return derived(plain(Kind::kFlag, name, meaning), "false");
}

/// The key, which sets this option of sbatch.
constexpr Key asks(std::string_view option, Key key) {
  key.sbatch = option;
  return key;
}

/// The keys that the help shows before the keys of recipes.
constexpr auto kFirst = std::to_array<Key>({
    asks("job-name", plain(Kind::kName, "name", "The job's name in lists and on the dashboard. Required.")),
    plain(Kind::kWords, "command",
          "Program and arguments, started once for each rank. Excludes [model], [data], [train] and [fsdp]."),
    derived(plain(Kind::kPath, "working_folder", "The folder in which the ranks are started."),
            "the job file's folder"),
    derived(
        choice(
            "environment", "", "submit clean",
            "The base of the ranks' environment. clean: the variables of a fresh login. submit: the same, with PATH, "
            "VIRTUAL_ENV, CONDA_*, PYTHONPATH and LD_LIBRARY_PATH from where muster submit runs. [env] and --env "
            "override both."),
        "submit for a command, clean for a recipe"),
    choice("launcher", "muster", "muster own batch",
           "Who starts the ranks of a command. muster: each rank is a process of the command. own: the command is "
           "started once on each node and starts its ranks itself, as torchrun and accelerate launch do. It gets "
           "no RANK and no WORLD_SIZE. batch: the command is started once, on the first node, and starts "
           "nodes x ranks_per_node tasks with srun, as a script for sbatch does."),
    choice("executor", "auto", "auto slurm local debug",
           "What starts the ranks. auto: Slurm if the controller has one, else local processes. debug: muster submit "
           "itself runs all ranks here in the foreground, without a controller."),
    plain(Kind::kWords, "after",
          "Jobs that must end first: \"12\" or \"succeeded:12\", \"failed:12\" (or cancelled), \"ended:12\"."),
    flag("hold", "Submit the job held: it starts after muster release."),
    plain(Kind::kPath, "extends",
          "Another job file, which is read first. Values of this file replace its values; tables are merged, arrays "
          "replaced. Its relative paths start at its own folder. At most 8 files deep."),

    asks("nodes", number("resources.nodes", "1", 1, 4096, "Number of machines.")),
    asks("ntasks-per-node",
         number("resources.ranks_per_node", "1", 1, 4096,
                "Processes on each machine. nodes x ranks_per_node is the world size, at most 4096.")),
    asks("cpus-per-task",
         derived(number(spec::key::kCpusOfRank, "", 1, 4096,
                        "CPU cores of each rank. A local job waits until they are free; without this key its cores "
                        "are not counted."),
                 "no limit")),
    asks("gpus-per-task",
         derived(number(spec::key::kGpusOfRank, "", 0, 64,
                        "GPUs of each rank. A local job waits until they are free, and sees no others."),
                 "none")),
    asks("time",
         derived(duration("resources.time_limit", "", 1000, kLongest,
                          "Longest time of one attempt. After it the ranks save and leave, and the job is requeued "
                          "(requeue.max_timed_out)."),
                 "no limit")),
    duration("resources.stop_grace", "30s", 0, kLongestDelay,
             "Time that ranks have to save and leave before they are killed."),

    asks("partition", plain(Kind::kText, "slurm.partition",
                            "Partition. Of several with commas Slurm uses the one that can start the job first.")),
    asks("account", plain(Kind::kText, "slurm.account", "Account to charge.")),
    asks("qos", plain(Kind::kText, "slurm.qos", "Quality of service.")),
    asks("constraint", plain(Kind::kText, "slurm.constraint", "Features that nodes must have, such as \"a100&ib\".")),
    asks("gres", plain(Kind::kText, "slurm.gres",
                       "Generic resources of each node, such as \"gpu:a100:4\". To ask only for GPUs of each rank, use "
                       "gpus_per_rank.")),
    asks("reservation", plain(Kind::kText, "slurm.reservation", "Reservation to use.")),
    asks("exclude", plain(Kind::kText, "slurm.exclude", "Nodes not to use, such as \"n[3-5]\".")),
    asks("nodelist", plain(Kind::kText, "slurm.nodelist", "Nodes to use.")),
    asks("mem", memory("slurm.mem", "Memory of each node. Set at most one of mem, mem_per_cpu and mem_per_gpu.")),
    asks("mem-per-cpu", memory("slurm.mem_per_cpu", "Memory of each CPU.")),
    asks("mem-per-gpu", memory("slurm.mem_per_gpu", "Memory of each GPU.")),
    asks("exclusive", flag("slurm.exclusive", "Do not share the nodes with other jobs.")),
    asks("nice", derived(number("slurm.nice", "", -kNicest, kNicest,
                                "Lowers the priority. A value below 0 needs an operator's rights."),
                         "0")),
    derived(number("slurm.array_parallelism", "", 1, 10'000,
                   "For a sweep: elements of one job array that Slurm runs at once. The sweep is handed over as job "
                   "arrays, and muster keeps no limit of its own for it. Excludes the sweep's parallel."),
            "no limit"),
    asks("licenses", plain(Kind::kText, "slurm.licenses", "Licenses, such as \"matlab:2\".")),
    asks("mail-user", plain(Kind::kText, "slurm.mail_user", "The person to whom Slurm sends mail.")),
    asks("mail-type",
         plain(Kind::kText, "slurm.mail_type",
               "The events for which Slurm sends mail, such as \"END,FAIL\". They count for each attempt.")),
    plain(Kind::kText, "slurm.output",
          "On Slurm, a link to rank 0's log, or with %t to each rank's log. A path as for sbatch, such as "
          "\"%x-%j.out\". A relative path starts at the working folder; missing folders are created. Local "
          "processes have no such link."),
    plain(Kind::kLines, "slurm.setup",
          "Shell lines before the ranks, on the first node, such as module load cuda. As in any script, a line that "
          "fails does not end the script, unless you add it: module load cuda || exit 1."),
    plain(Kind::kLines, "slurm.teardown",
          "Shell lines after the ranks, even if the ranks failed. Their exit code does not count."),
    plain(Kind::kLines, "slurm.srun_args", "Further arguments for srun, such as [\"--cpu-bind=cores\"]."),
    plain(Kind::kText, "slurm.health_check",
          "A command that runs on every node before the ranks start. A node where it fails gets no ranks of this job."),
    plain(Kind::kOptions, "slurm.options",
          "Any other option of sbatch by its long name: hint = \"nomultithread\". Write true for an option "
          "without a value."),
});

/// The keys that the help shows after the keys of recipes.
constexpr auto kLast = std::to_array<Key>({
    budget("requeue.max_failed", "3",
           "New attempts after a rank exited with an error; 0: none. Budgets refill with progress."),
    budget("requeue.max_rank_silent", "5", "New attempts after a rank fell silent."),
    budget("requeue.max_rank_hung", "2", "New attempts after a rank stopped making progress."),
    budget("requeue.max_preempted", "1000", "New attempts after Slurm took the job's nodes for another job."),
    budget("requeue.max_timed_out", "3", "New attempts after resources.time_limit ended one."),
    budget("requeue.max_node_failed", "10", "New attempts after a machine was lost."),
    budget("requeue.max_out_of_memory", "1", "New attempts after a rank ran out of memory."),
    budget("requeue.max_same_error", "1",
           "New attempts after a rank failed with the same error at the same step as before, within a minute of the "
           "start or before the first step. A checkpoint in between restarts the count."),
    budget("requeue.max_controller_lost", "5", "New attempts after the controller found no trace of an attempt."),
    duration("requeue.backoff_initial", "1s", 0, kLongest,
             "Wait before the second attempt. It doubles with each attempt that ends without progress."),
    derived(duration("requeue.backoff_max", "", 1, kLongest, "Longest wait between two attempts."),
            "5m, or backoff_initial if that is longer"),
    duration("requeue.healthy_after", "10m", 1, kLongest,
             "Running this long counts as progress, like a new checkpoint."),

    duration("liveness.heartbeat_interval", "500ms", 50, 10 * kMinute, "Time between two heartbeats of a rank."),
    duration(
        "liveness.silent_after", "2500ms", 100, kLongest,
        "An attempt ends if nothing was heard from a rank this long, and its process is stopped, or its node does not "
        "answer and a rank on another node ends because its connection was lost. At least twice heartbeat_interval."),
    derived(duration("liveness.silent_after_vouched", "", 100, kLongest,
                     "After this time without a word from a rank the attempt is suspected, and goes on. It ends when "
                     "all ranks that are heard have stood still for as long as a hang ends an attempt."),
            "15s, or silent_after if that is longer"),
    derived(duration("liveness.lost_after", "", 1000, kLongest,
                     "An attempt ends if nothing was heard from a rank this long and no other rank makes progress, "
                     "though nobody tells that anything has failed: the network may be cut."),
            "10m, or silent_after_vouched if that is longer"),
    derived(
        duration("liveness.hung_after", "", 1000, kLongest,
                 "An attempt ends if a rank reports but makes no progress for this long. Learned: 20 times what its "
                 "steps usually take, at least 10m, or 1m for a recipe; and only if its log, report and checkpoint "
                 "folder stay as they are, too. A hang is suspected earlier, after 5 times what steps take, at least "
                 "10s."),
        "learned from the times of its steps"),
    duration("liveness.join_within", "2m", 1000, kLongest,
             "An attempt is suspected if a rank has not reported this long after its start. It goes on: lost_after "
             "counts from then on, unless the rank's process is stopped or gone."),

    plain(Kind::kText, "report.checkpoints",
          "For a program that does not report: its checkpoints, a path whose names may have the wildcards of a "
          "shell, such as \"ckpt/step-*\". A new or changed match that is complete counts as a checkpoint. Its "
          "step is the number behind a word such as step or checkpoint, or the one that brackets mark: "
          "\"step-(*)-7b\". A path may hold variables of the rank, such as "
          "$MUSTER_CHECKPOINT_FOLDER. A relative path starts at working_folder."),
    plain(Kind::kText, "report.tensorboard",
          "A folder into which the program writes TensorBoard's event files. Their scalars become series. A path "
          "as for checkpoints, without wildcards."),
    plain(Kind::kPatterns, "report.log",
          "Regular expressions (RE2) over the lines of each rank's log, by the names of their series: loss = "
          "'loss ([\\d.]+)'. The first group is the value. step = 'step (\\d+)' is the step of its line and of "
          "those that follow. Without it a step ends where a series comes again. resumed = 'from step (\\d+)' is the "
          "step from which an attempt goes on, and total = '/(\\d+)' the number of steps in all."),

    plain(Kind::kSweep, "sweep",
          "Submits several jobs, one for each combination: train.seed = \"0..3\", train.learning_rate = [1e-4, "
          "3e-4]. parallel = N lets at most N of them run at once. As muster submit --sweep."),

    plain(Kind::kVariables, "env",
          "Variables of every rank. muster never overwrites a variable that is set here. A value is a text, a number, "
          "true or false. muster submit --env NAME takes one from your environment."),
    plain(Kind::kVariables, "submitted_env",
          "Written by muster spec: the variables that the job took from its submitter, with environment = "
          "\"submit\". With "
          "this table none are taken again."),
});

/// The rows of ScratchJobKeys. `changes`: how often they came or went.
struct ScratchRows {
  std::span<const Key> keys;
  std::uint64_t changes = 0;
};

ScratchRows& scratch() {
  static ScratchRows rows;
  return rows;
}

/// Which tables and which scratch rows there are.
std::pair<std::uint64_t, std::uint64_t> version() {
  return {spec::recipes_version(), scratch().changes};
}

std::vector<Key> all_keys() {
  std::vector<Key> keys(kFirst.begin(), kFirst.end());
  const auto add = [&](std::span<const Key> more) { keys.insert(keys.end(), more.begin(), more.end()); };
  keys.push_back(spec::family_key());
  const auto of_recipes = spec::recipe_keys();
  const auto first = std::ranges::find_if(of_recipes, [](const Key& key) { return key.name.starts_with("train."); });
  keys.insert(keys.end(), of_recipes.begin(), first);
  keys.push_back(spec::recipe_key());
  keys.insert(keys.end(), first, of_recipes.end());
  add(spec::checkpoints().keys);
  add(kLast);
  add(scratch().keys);
  // Sorting puts the keys of a table together, since the help shows each [table] once.
  const auto table = [](const Key& key) { return key.name.substr(0, key.name.find('.')); };
  std::vector<std::string_view> tables;
  for (const auto& key : keys) tables.push_back(table(key));
  std::ranges::stable_sort(keys, {}, [&](const Key& key) { return std::ranges::find(tables, table(key)); });
  return keys;
}

/// The keys, and what is asked of them for each job of a sweep.
struct Rows {
  std::pair<std::uint64_t, std::uint64_t> version = jobfile::version();
  std::vector<Key> keys = all_keys();
  std::unordered_map<std::string_view, const Key*> by_name;
  std::unordered_set<std::string_view> of_tables;  // names of rows in the tables of recipes
  std::unordered_set<std::string_view> tables, recipe_tables;
  std::vector<const Key*> of_commands, of_recipes, paths;  // the first two: plain keys alone
  std::vector<Standard> standards;

  Rows() {
    for (const auto* table : spec::recipe_tables()) {
      for (const auto& key : table->keys) of_tables.insert(key.name);
    }
    for (const auto& key : keys) {
      by_name.emplace(key.name, &key);
      const bool of_table = of_tables.contains(key.name);
      const auto table = key.name.substr(0, key.name.find('.'));
      if (table != key.name) tables.insert(table);
      if (table != key.name && is_of_recipe(key)) recipe_tables.insert(table);
      const bool is_asked = !of_table && is_plain(key);
      if (is_asked) of_recipes.push_back(&key);
      if (is_asked && !is_of_recipe(key)) of_commands.push_back(&key);
      if (key.kind == Kind::kPath) paths.push_back(&key);
      if (key.standard.empty() || of_tables.contains(key.name)) continue;
      standards.push_back({&key, spec::parse(key, key.standard).value(), is_of_recipe(key)});
    }
  }
  bool is_of_recipe(const Key& key) const {
    return key.name == spec::recipe_key().name || key.name == spec::family_key().name || of_tables.contains(key.name);
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
};

/// Those of the recipes as they are. Earlier ones are kept: tests change the recipes, and references stay good.
const Rows& rows() {
  static std::atomic<const Rows*> newest = nullptr;
  const auto* known = newest.load();
  if (known != nullptr && known->version == version()) return *known;
  static std::mutex mutex;
  static std::map<std::pair<std::uint64_t, std::uint64_t>, Rows> by_version;
  const std::lock_guard lock(mutex);
  known = &by_version[version()];
  newest = known;
  return *known;
}

}  // namespace

std::span<const Key> job_keys() {
  return rows().keys;
}

ScratchJobKeys::ScratchJobKeys(std::span<const Key> keys) {
  scratch() = {keys, scratch().changes + 1};
}

ScratchJobKeys::~ScratchJobKeys() {
  scratch() = {{}, scratch().changes + 1};
}

std::span<const Key* const> plain_keys_of(const muster::v1::JobSpec& spec) {
  return spec.has_recipe() ? rows().of_recipes : rows().of_commands;
}

std::span<const Key* const> path_keys() {
  return rows().paths;
}

bool is_recipe_table(std::string_view name) {
  return rows().recipe_tables.contains(name);
}

std::span<const Standard> plain_standards() {
  return rows().standards;
}

const Key* find_key(std::string_view name) {
  const auto found = rows().by_name.find(name);
  return found == rows().by_name.end() ? nullptr : found->second;
}

bool is_recipe_key(const Key& key) {
  return rows().is_of_recipe(key);
}

std::string leaf_of(std::string_view key) {
  return std::string(key.substr(key.rfind('.') + 1));
}

std::string table_of(std::string_view key) {
  const auto dot = key.rfind('.');
  return std::string(dot == std::string_view::npos ? std::string_view() : key.substr(0, dot));
}

bool is_table_name(std::string_view path) {
  return rows().tables.contains(path);
}

bool is_open_table(std::string_view path) {
  const auto* field = find_key(path);
  return field != nullptr &&
         (field->kind == Kind::kVariables || field->kind == Kind::kOptions || field->kind == Kind::kPatterns);
}

std::string not_of_a_command(std::string_view key) {
  auto variable = leaf_of(key);
  std::ranges::transform(variable, variable.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  return "this job runs a command, and recipes alone have this key; set a variable that the program reads, such as "
         "env." +
         variable;
}

std::vector<std::string> keys_ending_in(std::string_view word, const std::vector<std::string>& keys) {
  std::vector<std::string> meant;
  for (const auto& key : keys) {
    if (word.find('.') == std::string_view::npos && leaf_of(key) == word) meant.push_back(key);
  }
  return meant;
}

std::string several_keys(const std::vector<std::string>& keys) {
  return "several keys end in this name; want one of " + base::joined(keys);
}

std::vector<std::string> settable_keys() {
  std::vector<std::string> keys;
  for (const auto& field : job_keys()) {
    if (field.name != "extends" && field.name != "sweep") keys.emplace_back(field.name);
  }
  return keys;
}

std::string did_you_mean(std::string_view path) {
  std::map<std::string, std::vector<std::string>> leaves;
  std::set<std::string> tables;
  for (const auto& field : job_keys()) {
    leaves[table_of(field.name)].push_back(leaf_of(field.name));
    if (!table_of(field.name).empty()) tables.insert(table_of(field.name));
  }
  const auto table = table_of(path), leaf = leaf_of(path);
  auto candidates = leaves[table];
  if (table.empty()) candidates.insert(candidates.end(), tables.begin(), tables.end());
  if (const auto near = base::nearest(leaf, candidates); !near.empty())
    return table.empty() ? near : table + "." + near;
  if (const auto near = table.empty() ? "" : base::nearest(table, {tables.begin(), tables.end()}); !near.empty()) {
    if (const auto key = base::nearest(leaf, leaves[near]); !key.empty()) return near + "." + key;
  }
  for (const auto& [other, names] : leaves) {
    if (const auto near = base::nearest(leaf, names); !near.empty()) return other.empty() ? near : other + "." + near;
  }
  return {};
}

std::string unknown_key(std::string_view path) {
  const auto near = did_you_mean(path);
  return near.empty() ? "unknown key; muster submit --help lists all" : "unknown key, did you mean " + near;
}

}  // namespace jobfile
