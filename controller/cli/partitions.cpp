#include <iostream>
#include <ranges>

#include "cli/command.h"
#include "cli/partition_text.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "jobfile/partition_keys.h"
#include "schema/units.h"

namespace cli {
namespace {

using muster::v1::PartitionView;

bool is_limit(const schema::Key& field) {
  return field.name.starts_with("max_");
}

std::string name_of(const PartitionView& partition) {
  const bool is_default = partition.policy().is_default() || (!partition.has_policy() && partition.slurm_default());
  return partition.name() + (is_default ? "*" : "");
}

/// Whether jobs in the partition may be preempted, and how long they have to save then.
std::string preempted_text(const PartitionView& partition) {
  if (partition.preempt_mode().empty()) return "-";
  if (partition.preempt_mode() == "OFF") return "no";
  return "after " + schema::print_duration_ms(partition.grace_ms());
}

std::string mine_text(const PartitionView& partition) {
  if (partition.jobs_handed_over() + partition.jobs_waiting() == 0) return "-";
  return std::to_string(partition.jobs_handed_over()) + " in Slurm, " + std::to_string(partition.jobs_waiting()) +
         " waiting";
}

void print(const muster::v1::ListPartitionsResponse& listed) {
  Table table;
  auto usable = listed.partitions() | std::views::filter(&PartitionView::may_use);
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), usable, text_of); };
  add({"NAME"}, name_of);
  add({"STATE"}, [](const PartitionView& one) { return one.in_slurm() ? one.state() : "unknown"; });
  add({"NODES", false, 8}, nodes_text);
  add({"LIMITS", false, 10}, [](const PartitionView& one) { return or_dash(policy_text(one.policy(), is_limit)); });
  add({"SLURM'S", false, 8}, slurm_limits_text);
  add({"PREEMPTED"}, preempted_text);
  add({"YOUR JOBS", false, 8}, mine_text);
  if (!table.empty()) std::cout << table.text() << std::flush;
  for (const auto& one : listed.partitions()) {
    if (!one.may_use()) std::cerr << "muster: " << one.name() << " may not be used by you: " << one.why_not() << "\n";
  }
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
