#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "slurm/batch_script.h"
#include "slurm/host_list.h"
#include "spec/dependency.h"
#include "spec/jobfile/script_job.h"
#include "spec/jobfile/validate.h"
#include "spec/key_names.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;

constexpr std::size_t kMostLines = 1000;
constexpr std::size_t kMostOptions = 100;
constexpr std::size_t kMostAfter = 1000;
constexpr std::uint64_t kMostDebugRanks = 64;

struct Owned {
  std::string_view option;
  std::string_view instead;  // begins with "use", or says why there is no other key
};

/// Besides those that keys set.
constexpr auto kOwned = std::to_array<Owned>({
    {"array", "use [sweep] or muster submit --sweep"},
    {"chdir", "use working_folder"},
    {"clusters", "a controller works with one cluster: submit to the other cluster's controller"},
    {"comment", "muster finds its own jobs by it"},
    {"dependency", "use after, which names muster's jobs"},
    {"error", "a rank's log holds both: use slurm.output"},
    {"export", "use [env]"},
    {"export-file", "use [env]"},
    {"gid", "musterd submits as itself"},
    {"help", "see man sbatch"},
    {"hold", "use hold"},
    {"input", "ranks have no standard input: give the program a file name"},
    {"kill-on-invalid-dep", "use after, which muster checks itself"},
    {"no-requeue", "use [requeue]"},
    {"nodefile", "use slurm.nodelist"},
    {"ntasks", "use resources.nodes and resources.ranks_per_node"},
    {"ntasks-per-socket", "use resources.ranks_per_node"},
    {"open-mode", "muster keeps a log of each attempt: see muster logs"},
    {"output", "use slurm.output"},
    {"parsable", "muster reads sbatch's answer itself"},
    {"quiet", "muster reads sbatch's answer itself"},
    {"requeue", "use [requeue]"},
    {"signal", "use resources.stop_grace"},
    {"test-only", "use muster submit --check"},
    {"uid", "musterd submits as itself"},
    {"usage", "see man sbatch"},
    {"verbose", "muster reads sbatch's answer itself"},
    {"version", "see sbatch --version"},
    {"wait", "use muster submit --wait"},
    {"wrap", "use command"},
});

/// Options that jobs may not set, with what to use instead.
const std::map<std::string, std::string, std::less<>>& owned_options() {
  static const auto kAll = [] {
    std::map<std::string, std::string, std::less<>> all;
    for (const auto& [option, instead] : kOwned) all.emplace(option, instead);
    for (const char* option : {"gpus", "gpus-per-node", "ntasks-per-gpu"}) {
      all.emplace(option, "use " + std::string(spec::key::kGpusOfRank) + ", which counts the GPUs of one rank");
    }
    all.emplace("ntasks-per-core", "use resources.ranks_per_node and " + std::string(spec::key::kCpusOfRank));
    for (const auto& key : job_keys()) {
      if (!key.sbatch.empty()) all.emplace(key.sbatch, "use " + std::string(key.name));
    }
    return all;
  }();
  return kAll;
}

bool is_long_option(std::string_view name) {
  return name.size() > 1 && name.size() <= 64 && name[0] >= 'a' && name[0] <= 'z' && ::slurm::is_option_name(name);
}

bool is_line(const std::string& text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos && text.size() < kMostTextBytes;
}

/// Another version of muster, or another client, may have written names that no key has.
void check_names(const muster::v1::Slurm& slurm, Findings& findings) {
  for (const auto& [name, value] : sorted(slurm.values())) {
    const auto* key = find_key(name);
    if (key == nullptr || !name.starts_with("slurm.") || !is_plain(*key))
      findings.add_value(name, "", unknown_key(name));
  }
}

void check_memory(const JobSpec& spec, Findings& findings) {
  std::string first;
  for (const char* key : {"slurm.mem", "slurm.mem_per_cpu", "slurm.mem_per_gpu"}) {
    if (!get(spec, *find_key(key))) continue;
    if (!first.empty()) {
      return findings.add(key, "want at most one of mem, mem_per_cpu and mem_per_gpu", "remove it, or " + first,
                          {first});
    }
    first = key;
  }
}

/// Two would limit one sweep, and neither knows the other's attempts.
void check_parallelism(const JobSpec& spec, Findings& findings) {
  const auto at_once = slurm_whole(spec, "array_parallelism");
  if (at_once == 0 || spec.sweep().parallel() == 0) return;
  findings.add_value("slurm.array_parallelism", std::to_string(at_once),
                     "the sweep's parallel is " + std::to_string(spec.sweep().parallel()) +
                         ": want either muster's limit or that of Slurm's arrays",
                     "leave out slurm.array_parallelism, or parallel in [sweep] and --parallel");
}

template <typename Lines>
void check_lines(const std::string& key, const Lines& lines, Findings& findings) {
  findings.too_many(key, static_cast<std::size_t>(lines.size()), kMostLines, "lines", "put them into a script");
  for (const auto& line : lines) {
    if (is_line(line)) continue;
    findings.add_value(key, line.substr(0, kLongestValue), "want one line without NUL, under 128 KiB",
                       "write each line as a separate text");
    return;
  }
}

/// Refuses a list of hosts that cannot be read. Otherwise it would exclude no node, and the job would run on the wrong
/// one.
void check_hosts(const std::string& key, const std::string& hosts, Findings& findings) {
  const auto read = ::slurm::expand_hosts(hosts);
  if (const auto* problem = std::get_if<::slurm::HostListProblem>(&read)) {
    findings.add_value(key, hosts.substr(0, kLongestValue),
                       "column " + std::to_string(problem->column) + ": " + problem->what,
                       "want nodes such as \"n1,n[3-5]\"");
  }
}

void check_output(const std::string& output, Findings& findings) {
  constexpr std::string_view kSigns = "%AJNajnstux", kDigits = "0123456789";
  const auto refuse = [&](const std::string& want) {
    findings.add_value("slurm.output", output.substr(0, kLongestValue), want);
  };
  if (output.ends_with('/')) return refuse("want a file's name, such as \"logs/%x-%j.out\"");
  for (auto at = output.find('%'); at != std::string::npos; at = output.find('%', at + 1)) {
    at = output.find_first_not_of(kDigits, at + 1);
    if (at == std::string::npos || kSigns.find(output[at]) == std::string_view::npos) {
      return refuse("want after each % one of %, A, J, N, a, j, n, s, t, u, x, as in man sbatch");
    }
  }
}

/// Missing folders will be created. Refuses a path on which a file is in the place of a folder.
void check_output_folder(const JobSpec& spec, FileChecks checks, Findings& findings) {
  namespace fs = std::filesystem;
  const auto output = slurm_text(spec, "output");
  if (checks == FileChecks::kSkip || output.empty()) return;
  fs::path folder(spec.working_folder());
  if (output.starts_with('/')) folder = "/";
  for (const auto& part : fs::path(output).relative_path().parent_path()) {
    if (part.native().find('%') != std::string::npos) return;
    folder /= part;
    std::error_code error;
    const auto there = fs::status(folder, error);
    if (!fs::exists(there)) return;
    if (fs::is_directory(there)) continue;
    return findings.add_value(
        "slurm.output", output.substr(0, kLongestValue),
        "want a file in a folder; " + folder.native().substr(0, kLongestValue) + " is not a folder",
        "choose another path", {"working_folder"});
  }
}

void check_options(const JobSpec& spec, Findings& findings) {
  const auto& slurm = spec.slurm();
  if (findings.too_many("slurm.options", slurm.options().size(), kMostOptions, "options")) return;
  for (const auto& [name, value] : sorted(slurm.options())) {
    const auto key = "slurm.options." + name;
    const bool fits = is_batch(spec) && is_for_script(name);
    if (auto problem = fits ? std::string() : refuse_slurm_option(name); !problem.empty()) {
      findings.add_value(key, "", std::move(problem));
    } else if (!is_line(value)) {
      findings.add_value(key, value.substr(0, kLongestValue), "want a text of one line");
    }
  }
}

void check_after(const JobSpec& spec, Findings& findings) {
  if (findings.too_many("after", static_cast<std::size_t>(spec.after_size()), kMostAfter, "jobs")) return;
  for (const auto& text : spec.after()) {
    if (spec::parse_dependency(text)) continue;
    findings.add_value("after", text.substr(0, kLongestValue),
                       "want a job's number such as \"12\", \"succeeded:12\", \"failed:12\" or \"ended:12\"",
                       "muster list shows them");
    return;
  }
}

void check_debug(const JobSpec& spec, Findings& findings) {
  if (spec.executor() != "debug") return;
  if (const auto ranks = world_size(spec); ranks > kMostDebugRanks) {
    findings.add("executor",
                 "debug runs at most " + std::to_string(kMostDebugRanks) + " ranks, not " + std::to_string(ranks) +
                     ": they all share this machine",
                 "lower resources.nodes or resources.ranks_per_node, or use another executor",
                 {"resources.nodes", "resources.ranks_per_node"});
  }
  const std::string remedy = "leave it out, or use another executor";
  if (spec.hold()) findings.add("hold", "debug starts at once and can't be held", remedy, {"executor"});
  if (spec.after_size() > 0) {
    findings.add_value("after", spec.after(0).substr(0, kLongestValue), "debug knows no other jobs", remedy,
                       {"executor"});
  }
}

}  // namespace

std::string instead_of_slurm_option(std::string_view name) {
  std::string dashed(name);
  std::ranges::replace(dashed, '_', '-');
  const auto found = owned_options().find(dashed);
  return found == owned_options().end() ? std::string() : found->second;
}

std::string refuse_slurm_option(std::string_view name) {
  if (name.starts_with("-")) {
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    return "want the option without its dashes: " + std::string(name);
  }
  if (name.size() == 1) return "want the option's long name, such as hint; see man sbatch";
  if (name.find('_') != std::string_view::npos) {
    std::string dashed(name);
    std::ranges::replace(dashed, '_', '-');
    return "want the option as sbatch spells it: " + dashed;
  }
  if (!is_long_option(name)) return "want the long name of an option of sbatch, such as hint";
  const auto first = owned_options().lower_bound(name);
  if (first == owned_options().end() || !first->first.starts_with(name)) return {};
  const auto& [option, instead] = *first;
  if (option == name) return "muster sets this option itself; " + instead;
  return "sbatch may read it as " + option + ", which muster sets itself; " + instead;
}

void check_slurm(const JobSpec& spec, FileChecks checks, Findings& findings) {
  const auto& slurm = spec.slurm();
  check_names(slurm, findings);
  check_memory(spec, findings);
  check_parallelism(spec, findings);
  check_lines("slurm.setup", slurm.setup(), findings);
  check_lines("slurm.teardown", slurm.teardown(), findings);
  check_lines("slurm.srun_args", slurm.srun_args(), findings);
  for (const auto* list : {"exclude", "nodelist"}) {
    check_hosts(std::string("slurm.") + list, slurm_text(spec, list), findings);
  }
  check_output(slurm_text(spec, "output"), findings);
  check_output_folder(spec, checks, findings);
  check_options(spec, findings);
}

void check_start(const JobSpec& spec, Findings& findings) {
  check_after(spec, findings);
  check_debug(spec, findings);
}

}  // namespace jobfile
