#include <algorithm>
#include <filesystem>

#include "core/job.h"
#include "jobfile/findings.h"
#include "jobfile/slurm_options.h"
#include "schema/whole_number.h"
#include "slurm/host_list.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;

constexpr int kMostLines = 1000;
constexpr std::size_t kMostOptions = 100;
constexpr int kMostAfter = 1000;
constexpr std::uint64_t kMostDebugRanks = 64;

bool is_line(const std::string& text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos && text.size() < kMostTextBytes;
}

void check_memory(const muster::v1::Slurm& slurm, Findings& findings) {
  constexpr std::string_view kKeys[]{"slurm.mem", "slurm.mem_per_cpu", "slurm.mem_per_gpu"};
  const std::int64_t given[]{slurm.mem_bytes(), slurm.mem_per_cpu_bytes(), slurm.mem_per_gpu_bytes()};
  std::string first;
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    if (given[i] == 0) continue;
    if (!first.empty()) {
      return findings.add(kKeys[i], "want at most one of mem, mem_per_cpu and mem_per_gpu", "remove it, or " + first,
                          {first});
    }
    first = kKeys[i];
  }
}

/// Two would limit one sweep, and neither knows the other's attempts.
void check_parallelism(const JobSpec& spec, Findings& findings) {
  if (spec.slurm().array_parallelism() == 0 || spec.sweep().parallel() == 0) return;
  findings.add_value("slurm.array_parallelism", std::to_string(spec.slurm().array_parallelism()),
                     "the sweep's parallel is " + std::to_string(spec.sweep().parallel()) +
                         ": want either muster's limit or that of Slurm's arrays",
                     "leave out slurm.array_parallelism, or parallel in [sweep] and --parallel");
}

template <typename Lines>
void check_lines(const std::string& key, const Lines& lines, Findings& findings) {
  if (lines.size() > kMostLines) {
    findings.add_value(key, std::to_string(lines.size()) + " lines", "want at most " + std::to_string(kMostLines),
                       "put them into a script");
  }
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
  const auto& output = spec.slurm().output();
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

void check_options(const muster::v1::Slurm& slurm, Findings& findings) {
  if (slurm.options().size() > kMostOptions) {
    findings.add_value("slurm.options", std::to_string(slurm.options().size()) + " options",
                       "want at most " + std::to_string(kMostOptions));
    return;
  }
  for (const auto& [name, value] : sorted(slurm.options())) {
    const auto key = "slurm.options." + name;
    if (auto problem = refuse_slurm_option(name); !problem.empty()) {
      findings.add_value(key, "", std::move(problem));
    } else if (!is_line(value)) {
      findings.add_value(key, value.substr(0, kLongestValue), "want a text of one line");
    }
  }
}

bool is_dependency(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || !core::depends_on_from_string(text.substr(0, colon))) return false;
  return schema::whole_number<std::int64_t>(text.substr(colon + 1)).value_or(0) > 0;
}

void check_after(const JobSpec& spec, Findings& findings) {
  if (spec.after_size() > kMostAfter) {
    findings.add_value("after", std::to_string(spec.after_size()) + " jobs",
                       "want at most " + std::to_string(kMostAfter));
    return;
  }
  for (const auto& text : spec.after()) {
    if (is_dependency(text)) continue;
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

void check_slurm(const JobSpec& spec, FileChecks checks, Findings& findings) {
  const auto& slurm = spec.slurm();
  check_memory(slurm, findings);
  check_parallelism(spec, findings);
  check_lines("slurm.setup", slurm.setup(), findings);
  check_lines("slurm.teardown", slurm.teardown(), findings);
  check_lines("slurm.srun_args", slurm.srun_args(), findings);
  check_hosts("slurm.exclude", slurm.exclude(), findings);
  check_hosts("slurm.nodelist", slurm.nodelist(), findings);
  check_output(slurm.output(), findings);
  check_output_folder(spec, checks, findings);
  check_options(slurm, findings);
}

void check_start(const JobSpec& spec, Findings& findings) {
  check_after(spec, findings);
  check_debug(spec, findings);
}

}  // namespace jobfile
