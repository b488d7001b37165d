#include "cli/partition_text.h"

#include <iostream>

#include "cli/command.h"
#include "cli/text.h"
#include "jobfile/partition_keys.h"
#include "schema/units.h"

namespace cli {

std::string policy_text(const muster::v1::PartitionPolicy& policy,
                        const std::function<bool(const schema::Key&)>& wanted) {
  std::string text;
  for (const auto& field : jobfile::partition_keys()) {
    const auto values = jobfile::texts(policy, field);
    if (values.empty() || !wanted(field)) continue;
    append(text, field.name);
    for (const auto& value : values) text += " " + value;
  }
  return text;
}

std::string nodes_text(const muster::v1::PartitionView& partition) {
  if (!partition.in_slurm()) return "-";
  std::string text;
  const auto add = [&](std::uint32_t count, const char* what) {
    if (count > 0) append(text, std::to_string(count) + " " + what);
  };
  add(partition.nodes_idle(), "idle");
  add(partition.nodes_used(), "used");
  add(partition.nodes_down(), "down");
  return text.empty() ? "none" : text;
}

std::string slurm_limits_text(const muster::v1::PartitionView& partition) {
  std::string text;
  if (partition.slurm_max_time_ms() > 0) text = schema::print_duration_ms(partition.slurm_max_time_ms());
  if (partition.slurm_max_nodes() > 0) append(text, std::to_string(partition.slurm_max_nodes()) + " nodes");
  return or_dash(text);
}

muster::v1::ListPartitionsResponse ask_partitions(Client& client) {
  muster::v1::ListPartitionsRequest request;
  request.set_user(user_name());
  return client.call(&AdminStub::ListPartitions, request);
}

void tell_slurm_problem(const std::string& problem) {
  if (!problem.empty()) std::cerr << "muster: Slurm is " << problem << "; its facts may be out of date or missing\n";
}

void tell_problems(const muster::v1::ListPartitionsResponse& listed) {
  tell_slurm_problem(listed.slurm_problem());
  if (!listed.file_problem().empty()) std::cerr << "muster: " << listed.file_problem() << "\n";
  for (const auto& partition : listed.partitions()) {
    for (const auto& problem : partition.problems()) std::cerr << "muster: " << problem << "\n";
  }
}

}  // namespace cli
