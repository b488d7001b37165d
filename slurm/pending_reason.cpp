#include "slurm/pending_reason.h"

#include <algorithm>
#include <array>
#include <optional>

#include "slurm/scheduler.h"
#include "slurm/slurm_text.h"

namespace slurm {
namespace {

constexpr std::string_view kNoLaunch = "launch failed requeued held";

struct PlainRow {
  std::string_view reason, sentence, action;
};

// Reasons with a text of their own. explain_limit() composes the texts about limits.
constexpr PlainRow kPlain[] = {
    {"None", "Slurm names no reason: it has not looked at the job yet, or is about to start it.", "Nothing to do."},
    {"Prolog", "The nodes are being prepared for the job.",
     "Wait; if it lasts for minutes, ask an admin to look at the prolog on those nodes."},
    {"Priority", "Other jobs with a higher priority are first in the queue.",
     "Wait, or ask for fewer nodes or less time, so that the job fits into a gap."},
    {"Dependency", "The job waits for another job.",
     "Wait until that job has ended as the dependency demands, or cancel this one."},
    {"Resources", "The job is next, and the nodes it needs are busy.",
     "Wait until they are free, or ask for fewer nodes, CPUs or GPUs."},
    {"PartitionNodeLimit",
     "The job asks for more or fewer nodes than the partition has or allows, or for nodes that are down.",
     "Submit it again with a number of nodes within the partition's limits, or to another partition."},
    {"PartitionTimeLimit", "The job's time limit is longer than the partition allows.",
     "Ask for less time, or use a partition that allows more."},
    {"PartitionDown", "The partition is down: it starts no jobs.",
     "Use another partition, or wait until an admin opens it again."},
    {"PartitionInactive", "The partition is inactive: it takes and starts no jobs.", "Use another partition."},
    {"JobHeldAdmin", "An admin holds the job.", "Ask the admin why, and to release it."},
    {"JobHeldUser", "The job's owner holds it in Slurm.", "Release it: scontrol release JOBID."},
    {"BeginTime",
     "The job may not start before a given time; a job that Slurm requeued waits like this for two minutes.",
     "Wait, or let it begin now: scontrol update JobId=JOBID StartTime=now."},
    {"Licenses", "The job waits for a license that others use.", "Wait until one is free, or ask for fewer."},
    {"AssociationJobLimit", "Your account has as many jobs as it may.",
     "Wait until some of them end, or ask an admin to raise the limit."},
    {"AssociationResourceLimit", "Your account uses as much as it may.",
     "Wait until some of its jobs end, or ask an admin to raise the limit."},
    {"AssociationTimeLimit", "Your account has used up its time.",
     "Wait until its usage is reset, or ask an admin for more."},
    {"Reservation", "The job waits for its reservation to begin, or the reservation is full.",
     "Wait, or submit it without the reservation."},
    {"ReqNodeNotAvail", "Nodes that the job needs are down, drained or reserved.",
     "Wait until they are back, or let the job use other nodes."},
    {"FrontEndDown", "No front end node can start the job.", "Ask an admin to bring a front end node back."},
    {"SchedDefer", "The job wanted to start at once, and Slurm puts off such requests.",
     "Submit it without the demand to start immediately."},
    {"NodeDown", "A node that the job needs is down.", "Let the job use other nodes, or wait until the node is back."},
    {"BadConstraints", "No node has what the job asks for.",
     "Change its features, node list, CPUs, memory or GPUs to what the partition's nodes have."},
    {"SystemFailure", "Slurm, the file system or the network failed under the job.",
     "Ask an admin to look at the logs of slurmctld and slurmd, then submit it again."},
    {"JobLaunchFailure",
     "The job could not be started on its nodes, for example because its folder or its user is missing there.",
     "Check that its folder and log files can be reached from those nodes, then submit it again."},
    {"NonZeroExitCode", "The job's script ended with an exit code other than 0.", "Read the job's log."},
    {"TimeLimit", "The job ran until its time limit.", "Ask for more time, or continue it from its last checkpoint."},
    {"InactiveLimit", "The job did nothing for longer than the cluster allows.",
     "Start the job's work without waiting for input."},
    {"InvalidAccount", "The job's account does not exist or is not yours.",
     "Submit it with an account that you belong to."},
    {"InvalidQOS", "The job's QOS does not exist or is not yours.", "Submit it with a QOS that your account may use."},
    {"QOSUsageThreshold", "Your share of the cluster is below what the QOS demands.",
     "Wait until your recent usage has decayed, or use another QOS."},
    {"QOSJobLimit", "The QOS has as many jobs as it may.", "Wait until some of them end, or use another QOS."},
    {"QOSResourceLimit", "The QOS uses as much as it may.", "Wait until some of its jobs end, or use another QOS."},
    {"QOSTimeLimit", "The QOS has used up its time.", "Wait until its usage is reset, or use another QOS."},
    {"BlockMaxError", "A block of the machine has too many errors.", "Ask an admin to look at the machine."},
    {"BlockFreeAction", "A block of the machine is being freed.", "Wait."},
    {"Cleaning", "The job was requeued and its last run is still being cleaned up.",
     "Wait; if it lasts for minutes, ask an admin to look at the nodes of that run."},
    {"QOSNotAllowed", "The partition does not allow the job's QOS.", "Use another QOS or another partition."},
    {"AccountNotAllowed", "The partition does not allow the job's account.",
     "Use another account or another partition."},
    {"DependencyNeverSatisfied", "The job waits for another job that ended in the wrong way: it will never start.",
     "Cancel it, and submit it again without that dependency."},
    {"JobHoldMaxRequeue", "The job was requeued as often as the cluster allows, and is held now.",
     "Find out why it failed so often, then release it: scontrol release JOBID."},
    {"JobArrayTaskLimit", "As many elements of the array run as may run at once.",
     "Wait until one ends, or let more of them run: scontrol update JobId=ARRAYID ArrayTaskThrottle=NUMBER."},
    {"BurstBufferResources", "The job waits for space in the burst buffer.", "Wait, or ask for less of it."},
    {"BurstBufferStageIn", "The job's files are being copied into the burst buffer.", "Wait."},
    {"BurstBufferOperation", "Copying the job's files to or from the burst buffer failed.",
     "Ask an admin to look at the burst buffer, then submit it again."},
    {"PowerNotAvail", "The cluster has not enough electrical power for the job.", "Wait until other jobs end."},
    {"PowerReserved", "The electrical power that the job needs is reserved.", "Wait until the reservation ends."},
    {"DeadLine", "The job could no longer end before its deadline.", "Submit it with a later deadline or less time."},
    {"PartitionConfig",
     "The job asks for more than any node of the partition has, or for something that the partition's settings do not "
     "allow.",
     "Compare its CPUs, memory and GPUs a node, its nodes, time, account and QOS with the partition's, and submit it "
     "again with less, or to another partition."},
    {"AccountingPolicy", "A limit of the accounting holds the job back.", "Wait, or ask an admin which limit it is."},
    {"FedJobLock", "The federation's clusters are deciding which of them runs the job.", "Wait."},
    {"OutOfMemory", "The job used more memory than it had asked for.", "Ask for more memory, or use less."},
    {"MaxMemPerLimit", "The job asks for more memory a CPU or a node than the partition allows.",
     "Ask for less memory, or for more CPUs to go with it."},
    {"ReservationDeleted", "The job's reservation was deleted.",
     "Submit it without the reservation, or with another one."},
};

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
    return said(replaced(replaced(std::string(row.sentence), "WHOSE", owner), "WHAT", resource->said),
                std::string(row.action));
  }
  return std::nullopt;
}

std::optional<ReasonText> explain_known(std::string_view reason) {
  for (const auto& row : kPlain) {
    if (row.reason == reason) return said(std::string(row.sentence), std::string(row.action));
  }
  return explain_limit(reason);
}

/// Explains the texts that slurmctld writes in place of a reason.
std::optional<ReasonText> explain_text(std::string_view text) {
  const std::string quoted(text);
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
  if (text.starts_with("Nodes required for job are DOWN, DRAINED or reserved")) {
    return said(
        "The nodes that the job needs are down, drained or reserved for jobs of partitions with a higher priority.",
        "Wait until they are back, or let the job use other nodes.");
  }
  if (understand_reason(text) == Reason::kLaunchFailure) {
    return said("The job could not be started on its nodes, and Slurm holds it now.",
                "Ask an admin to look at those nodes, then release it: scontrol release JOBID.");
  }
  if (text.find("job requeued in held state") != std::string_view::npos) {
    return said("The job was put back into the queue and is held.",
                "Release it when it should run again: scontrol release JOBID.");
  }
  if (text.find("job requeued in special exit state") != std::string_view::npos) {
    return said("The job's script ended with an exit code that asks to be put back and held.",
                "Read the job's log, then release it: scontrol release JOBID.");
  }
  if (text.starts_with("Job is at or exceeds")) {
    return said(quoted + ".",
                "Wait until usage is reset or jobs end, ask for less, or ask an admin to raise the limit.");
  }
  if (text.find(", which this job was running under, has ended") != std::string_view::npos) {
    return said(quoted + ".", "Submit the job without the reservation, or with another one.");
  }
  return std::nullopt;
}

}  // namespace

Reason understand_reason(std::string_view reason) {
  if (reason == "TimeLimit") return Reason::kTimeLimit;
  if (reason == "NodeDown") return Reason::kNodeDown;
  const bool no_launch = plain_words(std::string(reason)).find(kNoLaunch) != std::string::npos;
  return no_launch ? Reason::kLaunchFailure : Reason::kOther;
}

ReasonText explain_reason(std::string_view reason) {
  reason = trimmed(reason);
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
