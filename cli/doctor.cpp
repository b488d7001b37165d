#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/command.h"
#include "cli/cli_command.h"
#include "cli/cli_text.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFewestFreeBytes = std::int64_t{1} << 30;
constexpr int kEnoughManualPages = 50;
constexpr std::chrono::seconds kSlurmPatience{5};

struct Verdict {
  std::string_view name;
  Colour colour;
};
constexpr Verdict kFine{"ok", Colour::kGreen}, kNote{"note", Colour::kYellow}, kBad{"bad", Colour::kRed};

struct Finding {
  std::string check;
  Verdict verdict;
  std::string text;
};

Finding check_config(const Config& config) {
  std::string text = config.address.value + " (" + config.address.source + ")";
  for (const auto& file : config.files) text += ", " + file.native() + " read";
  if (config.files.empty()) text += ", no configuration file";
  return {"configuration", kFine, text};
}

Finding check_token(const Config& config) {
  if (config.token) return {"token", kFine, "from MUSTER_TOKEN"};
  const auto& [path, source] = config.token_file;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return {"token", kBad,
            "there is no " + path + " (" + source +
                "): musterd writes it at its first start, and muster up starts it; or set --token-file"};
  }
  if ((info.st_mode & 037) != 0) {
    return {"token", kBad, path + " can be read by others: chmod 600 " + path + " (640 if a group shares it)"};
  }
  const bool has_group = (info.st_mode & 040) != 0;
  return {"token", kFine,
          path + (has_group ? ", readable by its owner and its group" : ", readable only by its owner")};
}

/// A program that the controller's machines need beside muster. `why`: what cannot be done without it.
Finding check_program(const Config& config, const char* finding, const std::string& name, const char* why) {
  const auto program = base::find_program(name);
  if (!program.empty()) return {finding, kFine, program.native()};
  if (!is_loopback(config.address.value)) {
    return {finding, kNote, "there is no " + name + " here; the controller's machines need it"};
  }
  return {finding, kBad, no_program(name, std::string("so ") + why)};
}

/// muster-worker, which must start: in a wheel it needs a torch that fits.
Finding check_worker(const Config& config) {
  const auto found = check_program(config, "worker", "muster-worker", "recipes cannot train here (command jobs can)");
  if (found.verdict.name != kFine.name) return found;
  const auto version = ask_worker_version(found.text);
  if (version.starts) return {found.check, kFine, found.text + ": " + version.text};
  return {found.check, is_loopback(config.address.value) ? kBad : kNote, version.text};
}

Finding check_data() {
  int pages = 0;
  std::error_code error;
  for (const char section : {'1', '3', '8'}) {
    const fs::path folder = std::string("/usr/share/man/man") + section;
    for (fs::directory_iterator at(folder, error), end; !error && at != end && pages < kEnoughManualPages;
         at.increment(error)) {
      ++pages;
    }
  }
  if (pages >= kEnoughManualPages) {
    return {"data", kFine, "manual pages in /usr/share/man (data.source \"man\", \"auto\")"};
  }
  return {
      "data", kNote,
      "there are few or no manual pages here: data.source \"auto\" uses the small built-in text; \"folder\" takes your "
      "own"};
}

/// Why Slurm cannot be used from here; empty: it answers, and `partitions` has the names.
std::string ask_slurm(std::string& partitions) {
  base::ProcessRunner runner(false);
  base::Command sinfo;
  sinfo.argv = {"sinfo", "--noheader", "--format=%R"};
  sinfo.time_limit = kSlurmPatience;
  sinfo.unset = {"SINFO_*"};
  const auto said = runner.run(sinfo);
  if (!said.could_not_start.empty()) return said.could_not_start;
  if (said.timed_out) {
    return "sinfo has not answered in " + duration_text(std::chrono::milliseconds(kSlurmPatience).count());
  }
  if (!said.succeeded()) return said.err.empty() ? "sinfo failed" : said.err.substr(0, said.err.find('\n'));
  std::istringstream lines(said.out);
  for (std::string line; std::getline(lines, line);) append(partitions, line);
  return partitions.empty() ? "Slurm has no partition" : "";
}

/// Checks that Slurm can be used, not only that it is installed. `why_not`: why the controller does not use it; empty:
/// it does.
Finding check_slurm(const std::string& why_not) {
  if (!why_not.empty()) return {"slurm", kNote, why_not};
  const auto sbatch = base::find_program("sbatch");
  if (sbatch.empty()) {
    return {"slurm", kNote, "there is no sbatch here; executor \"slurm\" needs it on the controller's machine"};
  }
  std::string partitions;
  const auto problem = ask_slurm(partitions);
  if (problem.empty()) return {"slurm", kFine, sbatch.native() + ", partitions " + partitions};
  return {"slurm", kNote,
          sbatch.native() + " is installed, but Slurm does not answer (" + problem +
              "): jobs of executor \"slurm\" need one on the controller's machine; see sinfo and SLURM_CONF"};
}

/// The executors in words: "slurm for \"auto\"; also local".
std::string executors_of(const muster::v1::StatusResponse& status) {
  std::string others;
  for (const auto& name : status.executors()) {
    if (name != status.executor()) others += (others.empty() ? "; also " : ", ") + name;
  }
  return status.executor() + " for \"auto\"" + others;
}

void check_status(Client& client, const muster::v1::StatusResponse& status, std::vector<Finding>& findings) {
  const bool same = status.version() == MUSTER_VERSION;
  findings.push_back({"controller", same ? kFine : kNote,
                      "musterd " + status.version() + " at " + client.address() + ", process " +
                          std::to_string(status.pid()) + ", " + std::to_string(status.jobs_running()) + " of " +
                          std::to_string(status.jobs_total()) + " jobs running" +
                          (same ? "" : "; muster is " MUSTER_VERSION ": install the same version of both")});
  findings.push_back({"executor", kFine, executors_of(status)});
  if (!status.scheduler_problem().empty()) {
    findings.push_back({"scheduler", kBad,
                        status.scheduler_problem() +
                            "; running jobs go on, new ones wait: run scontrol ping on the controller's machine"});
  }
  for (const auto& problem : status.problems()) findings.push_back({"musterd", kBad, problem});
  for (const auto& note : status.notes()) findings.push_back({"musterd", kNote, note});
  for (const auto& problem : status.partition_problems()) findings.push_back({"partitions", kBad, problem});
  findings.push_back({"store", status.store_problem().empty() ? kFine : kBad,
                      status.store_problem().empty() ? "writable, " + std::to_string(status.events_total()) + " events"
                                                     : status.store_problem()});
  const bool in_time = status.overload().empty();
  findings.push_back({"ranks", in_time ? kFine : kNote,
                      in_time ? std::to_string(status.rank_streams()) + " connected, heartbeats are read in time"
                              : status.overload()});
  const bool room = status.data_free_bytes() >= kFewestFreeBytes;
  findings.push_back({"disk", room ? kFine : kBad,
                      bytes_text(status.data_free_bytes()) + " free in " + status.data_folder() +
                          (room ? "" : ": free some space, which checkpoints and the store need")});
  if (!status.dashboard_url().empty()) {
    findings.push_back({"dashboard", kFine, status.dashboard_url() + "; muster dashboard prints a link that logs in"});
  }
}

/// Asks why the controller has no Slurm. Its answer to a question about partitions has the reason.
std::string why_no_slurm(Client& client, const muster::v1::StatusResponse& status) {
  if (std::ranges::find(status.executors(), "slurm") != status.executors().end()) return {};
  muster::v1::ListPartitionsResponse partitions;
  const auto answer =
      client.try_call([&](auto* context) { return client.admin().ListPartitions(context, {}, &partitions); });
  return answer.error_code() == grpc::StatusCode::FAILED_PRECONDITION ? answer.error_message() : "";
}

/// Checks the controller. Returns why it has no Slurm; empty: it has Slurm, or does not answer.
std::string check_controller(Client& client, std::vector<Finding>& findings) {
  try {
    client.must_connect();
    const auto status = client.call(&AdminStub::Status, muster::v1::StatusRequest());
    check_status(client, status, findings);
    return why_no_slurm(client, status);
  } catch (const Failure& failure) {
    findings.push_back({"controller", kBad, failure.what()});
    return {};
  }
}

void print_finding(const Finding& finding) {
  const auto& [verdict, colour] = finding.verdict;
  const auto lead = painted(verdict, colour) + std::string(6 - verdict.size(), ' ') + finding.check +
                    std::string(15 - finding.check.size(), ' ');
  print_behind(lead, 21, finding.text);
}

int run_doctor(Session& session, const JsonOption& options) {
  std::vector<Finding> findings;
  std::string no_slurm;
  try {
    const auto& config = session.config();
    findings.push_back(check_config(config));
    findings.push_back(check_token(config));
    no_slurm = check_controller(session.client_unconnected(), findings);
    findings.push_back(check_worker(config));
    findings.push_back(
        check_program(config, "sources", "muster-data", "no data.source can be read here (data.prepared can)"));
  } catch (const Failure& failure) {
    findings.push_back({"configuration", kBad, failure.what()});
  }
  findings.push_back(check_data());
  findings.push_back(check_slurm(no_slurm));
  if (options.json) {
    print_json_array(findings, [](const Finding& finding) {
      return with_version({{"check", finding.check}, {"verdict", finding.verdict.name}, {"text", finding.text}});
    });
  } else {
    std::ranges::for_each(findings, print_finding);
  }
  const bool bad = std::ranges::any_of(findings, [](const Finding& f) { return f.verdict.name == kBad.name; });
  return bad ? kJobFailed : kSuccess;
}

}  // namespace

void define_doctor(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_doctor);
  app.add_flag("--json", options->json, "An array of {check, verdict, text}; verdict is ok, note or bad");
}

}  // namespace cli
