#include "slurm/pending_reason.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/words.h"
#include "reason_texts.h"
#include "slurm/scheduler.h"

namespace slurm {
namespace {

constexpr std::string_view kNoLaunch = "launch failed requeued held";

/// The reasons with a text of their own, of slurm/reasons.txt: a reason, its sentence and its action are a line each,
/// and an empty line follows. explain_limit() composes the texts about limits.
const std::map<std::string, ReasonText, std::less<>>& plain_reasons() {
  static const auto kAll = [] {
    std::map<std::string, ReasonText, std::less<>> all;
    const auto lines = base::split(reasons::kTexts[0].text, '\n');
    for (std::size_t i = 0; i + 2 < lines.size(); i += 4) all[lines[i]] = {lines[i + 1], lines[i + 2], true};
    return all;
  }();
  return kAll;
}

// The resources that a limit counts, as spelled inside the reasons' names. Longer spellings come first.
struct Resource {
  std::string_view spelled, said;
};
constexpr Resource kResources[] = {
    {"WallDuration", "running time"},
    {"SubmitJobs", "submitted jobs"},
    {"SubmitJob", "submitted jobs"},
    {"Billing", "billing units"},
    {"License", "licenses"},
    {"Unknown", "of a counted resource"},
    {"Memory", "memory"},
    {"Energy", "energy"},
    {"Jobs", "running jobs"},
    {"Wall", "running time"},
    {"Node", "nodes"},
    {"GRES", "GPUs or other generic resources"},
    {"Cpu", "CPUs"},
    {"CPU", "CPUs"},
    {"Mem", "memory"},
    {"BB", "burst buffer space"},
};

bool take_front(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

bool take_back(std::string_view& text, std::string_view back) {
  if (!text.ends_with(back)) return false;
  text.remove_suffix(back.size());
  return true;
}

ReasonText said(const std::string& sentence, const std::string& action) {
  return {sentence, action, true};
}

// The meaning of a limit by its name: the kind, and what follows the resource. WHOSE and WHAT stand for the owner of
// the limit and the resource. `only`: the resource that the row is about; empty: any. The first row that fits counts.
struct LimitRow {
  std::string_view kind, rest, only, sentence, action;
};
constexpr LimitRow kLimits[] = {
    {"Grp", "", "running time", "All jobs of WHOSE together have used up their running time.",
     "Wait until the usage is reset, or ask an admin to raise the limit."},
    {"Grp", "", "", "All jobs of WHOSE together already have as many or as much WHAT as they may.",
     "Wait until some of them end, or ask an admin to raise the limit."},
    {"Grp", "Minutes", "", "All jobs of WHOSE together have used up their minutes of WHAT.",
     "Wait until the usage is reset or has decayed, or ask an admin to raise the limit."},
    {"Grp", "RunMinutes", "", "The running jobs of WHOSE may still use as many minutes of WHAT as they may together.",
     "Wait until some of them end, shorten the job's time limit, or ask an admin to raise the limit."},
    {"Max", "PerJob", "running time", "The job's time limit is longer than WHOSE allows.",
     "Ask for less time, or ask an admin to raise the limit."},
    {"Max", "PerJob", "", "The job asks for more WHAT than WHOSE allows one job.",
     "Ask for less, use another account or QOS, or ask an admin to raise the limit."},
    {"Max", "MinutesPerJob", "", "The job's WHAT times its time limit are more than WHOSE allows one job.",
     "Ask for less time or less of it, or ask an admin to raise the limit."},
    {"Max", "PerNode", "", "The job asks for more WHAT on a node than WHOSE allows.",
     "Spread it over more nodes or ask for less, or ask an admin to raise the limit."},
    {"Max", "PerUser", "", "You already have as many or as much WHAT as WHOSE allows one user.",
     "Wait until some of your jobs end, or ask an admin to raise the limit."},
    {"Max", "", "", "You already have as many or as much WHAT as WHOSE allows one user.",
     "Wait until some of your jobs end, or ask an admin to raise the limit."},
    {"Max", "PerAccount", "", "Your account already has as many or as much WHAT as WHOSE allows one account.",
     "Wait until some of the account's jobs end, or ask an admin to raise the limit."},
    {"Min", "", "", "The job asks for less WHAT than WHOSE demands.", "Ask for more, or use another QOS."},
};

/// Explains the name of a limit, such as "QOSMaxCpuPerUserLimit".
std::optional<ReasonText> explain_limit(std::string_view reason) {
  const std::string owner = take_front(reason, "Assoc") ? "your account" : "the job's QOS";
  take_front(reason, "QOS");
  take_back(reason, "Limit");
  take_back(reason, "NotSatisfied");
  const auto kind = reason.substr(0, 3);
  reason.remove_prefix(kind.size());
  const auto resource =
      std::ranges::find_if(kResources, [&](const auto& known) { return take_front(reason, known.spelled); });
  if (resource == std::end(kResources)) return std::nullopt;
  for (const auto& row : kLimits) {
    if (row.kind != kind || row.rest != reason || (!row.only.empty() && row.only != resource->said)) continue;
    return said(base::replaced(base::replaced(std::string(row.sentence), "WHOSE", owner), "WHAT", resource->said),
                std::string(row.action));
  }
  return std::nullopt;
}

std::optional<ReasonText> explain_known(std::string_view reason) {
  const auto found = plain_reasons().find(reason);
  return found == plain_reasons().end() ? explain_limit(reason) : found->second;
}

struct TextRow {
  std::string_view begins, has, sentence, action;
};

// Texts that begin with one text and have another. TEXT stands for the whole of it.
constexpr TextRow kTexts[] = {
    {"Nodes required for job are DOWN, DRAINED or reserved", "",
     "The nodes that the job needs are down, drained or reserved for jobs of partitions with a higher priority.",
     "Wait until they are back, or let the job use other nodes."},
    {"", "job requeued in held state", "The job was put back into the queue and is held.",
     "Release it when it should run again: scontrol release JOBID."},
    {"", "job requeued in special exit state",
     "The job's script ended with an exit code that asks to be put back and held.",
     "Read the job's log, then release it: scontrol release JOBID."},
    {"Job is at or exceeds", "", "TEXT.",
     "Wait until usage is reset or jobs end, ask for less, or ask an admin to raise the limit."},
    {"", ", which this job was running under, has ended", "TEXT.",
     "Submit the job without the reservation, or with another one."},
};

/// Explains the texts that slurmctld writes in place of a reason.
std::optional<ReasonText> explain_text(std::string_view text) {
  if (constexpr std::string_view kNodes = "ReqNodeNotAvail, UnavailableNodes:"; text.starts_with(kNodes)) {
    const std::string nodes(text.substr(kNodes.size()));
    if (nodes.empty()) return explain_known("ReqNodeNotAvail");
    return said("Nodes that the job needs are down, drained or reserved: " + nodes + ".",
                "Wait until they are back, or let the job use other nodes.");
  }
  if (text == "ReqNodeNotAvail, Reserved for maintenance") {
    return said("The nodes that the job needs are reserved for maintenance before the job could end.",
                "Wait until the maintenance is over, or ask for less time so that the job ends before it.");
  }
  if (text.starts_with("ReqNodeNotAvail")) return explain_known("ReqNodeNotAvail");
  if (understand_reason(text) == Reason::kLaunchFailure) {
    return said("The job could not be started on its nodes, and Slurm holds it now.",
                "Ask an admin to look at those nodes, then release it: scontrol release JOBID.");
  }
  for (const auto& row : kTexts) {
    if (!text.starts_with(row.begins) || text.find(row.has) == std::string_view::npos) continue;
    return said(base::replaced(std::string(row.sentence), "TEXT", text), std::string(row.action));
  }
  return std::nullopt;
}

}  // namespace

std::string plain_words(std::string text) {
  std::ranges::replace(text, '_', ' ');
  return base::lower_case(text);
}

Reason understand_reason(std::string_view reason) {
  if (reason == "TimeLimit") return Reason::kTimeLimit;
  if (reason == "NodeDown") return Reason::kNodeDown;
  const bool no_launch = plain_words(std::string(reason)).find(kNoLaunch) != std::string::npos;
  return no_launch ? Reason::kLaunchFailure : Reason::kOther;
}

ReasonText explain_reason(std::string_view reason) {
  reason = base::trimmed(reason);
  if (reason.size() > 2 && reason.front() == '(' && reason.back() == ')') {
    reason = reason.substr(1, reason.size() - 2);
  }
  if (reason.empty() || reason == "(null)") reason = "None";
  if (auto known = explain_known(reason)) return *std::move(known);
  if (auto text = explain_text(reason)) return *std::move(text);
  return {"Slurm gives the reason \"" + std::string(reason) + "\".",
          "Look it up in Slurm's documentation, or ask an admin.", false};
}

ReasonText explain_waiting(const ListedJob& job) {
  auto text = explain_reason(job.reason);
  const auto fill = [&](std::string_view word, const std::string& with) {
    if (const auto at = text.action.find(word); at != std::string::npos) text.action.replace(at, word.size(), with);
  };
  fill("JOBID", to_string(job.id));
  fill("ARRAYID", std::to_string(job.id.job));
  if (job.reason == "Dependency" && !job.dependency.empty()) {
    text.sentence = "The job waits for another Slurm job: " + job.dependency + ".";
  }
  return text;
}

}  // namespace slurm
