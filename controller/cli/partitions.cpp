#include <iostream>

#include "cli/command.h"
#include "cli/partition_text.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "jobfile/partition_keys.h"
#include "schema/units.h"

namespace cli {
namespace {

bool is_limit(const schema::Key& field) {
  return field.name.starts_with("max_");
}

std::string name_of(const muster::v1::PartitionView& partition) {
  const bool is_default = partition.policy().is_default() || (!partition.has_policy() && partition.slurm_default());
  return partition.name() + (is_default ? "*" : "");
}

/// Whether jobs in the partition may be preempted, and how long they have to save then.
std::string preempted_text(const muster::v1::PartitionView& partition) {
  if (partition.preempt_mode().empty()) return "-";
  if (partition.preempt_mode() == "OFF") return "no";
  return "after " + schema::print_duration_ms(partition.grace_ms());
}

std::string mine_text(const muster::v1::PartitionView& partition) {
  if (partition.jobs_handed_over() + partition.jobs_waiting() == 0) return "-";
  return std::to_string(partition.jobs_handed_over()) + " in Slurm, " + std::to_string(partition.jobs_waiting()) +
         " waiting";
}

void print(const muster::v1::ListPartitionsResponse& listed) {
  Table table({{"NAME"},
               {"STATE"},
               {"NODES", false, 8},
               {"LIMITS", false, 10},
               {"SLURM'S", false, 8},
               {"PREEMPTED"},
               {"YOUR JOBS", false, 8}});
  std::string others;
  for (const auto& partition : listed.partitions()) {
    if (!partition.may_use()) {
      others += "muster: " + partition.name() + " may not be used by you: " + partition.why_not() + "\n";
      continue;
    }
    const auto limits = policy_text(partition.policy(), is_limit);
    table.add({name_of(partition), partition.in_slurm() ? partition.state() : "unknown", nodes_text(partition),
               or_dash(limits), slurm_limits_text(partition), preempted_text(partition), mine_text(partition)});
  }
  if (!table.empty()) std::cout << table.text() << std::flush;
  std::cerr << others;
}

int run_partitions(Session& session, const JsonOption& options) {
  const auto listed = ask_partitions(session.client());
  if (options.json) {
    print_json_array(listed.partitions());
  } else {
    print(listed);
  }
  tell_slurm_problem(listed.slurm_problem());
  return kSuccess;
}

}  // namespace

void define_partitions(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_partitions);
  app.add_flag("--json", options->json, "An array of all partitions: policy, Slurm's facts, may_use, problems");
}

}  // namespace cli
