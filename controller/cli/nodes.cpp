#include <iostream>

#include "cli/command.h"
#include "cli/partition_text.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

std::string used_text(std::uint32_t used, std::uint32_t all) {
  return all == 0 ? "-" : std::to_string(used) + "/" + std::to_string(all);
}

std::string gres_text(const muster::v1::NodeView& node) {
  if (node.gres().empty()) return "-";
  return node.gres() + (node.gres_used().empty() ? "" : " (" + node.gres_used() + " used)");
}

/// Why no rank starts on the node: muster's reason, then Slurm's.
std::string remark(const muster::v1::NodeView& node) {
  std::string text;
  const auto by = "job " + std::to_string(node.lost_by_job()) + " attempt " + std::to_string(node.lost_by_attempt());
  if (!node.excluded_until().empty()) {
    text = "excluded until " + utc_text(node.excluded_until()) + ": " + node.lost_reason() + " (" + by + ")";
  } else if (!node.lost_at().empty()) {
    text = "avoided by job " + std::to_string(node.lost_by_job()) + " only: " + node.lost_reason() + " (" + by + ")";
  }
  if (!node.reason().empty()) append(text, node.reason(), "; ");
  return text;
}

void print(const muster::v1::ListNodesResponse& listed) {
  Table table({{"NAME"},
               {"STATE", false, 8},
               {"CPUS", true},
               {"MEMORY", true},
               {"GRES", false, 8},
               {"PARTITIONS", false, 10},
               {"REMARK", false, 12}});
  for (const auto& node : listed.nodes()) {
    table.add({node.name(), node.state().empty() ? "unknown" : node.state(), used_text(node.cpus_used(), node.cpus()),
               node.memory_bytes() == 0 ? "-" : bytes_text(node.memory_bytes()), gres_text(node),
               or_dash(joined(node.partitions(), ",")), remark(node)});
  }
  if (!table.empty()) std::cout << table.text() << std::flush;
}

int run_nodes(Session& session, const JsonOption& options) {
  auto& client = session.client();
  const auto listed = client.call(&AdminStub::ListNodes, muster::v1::ListNodesRequest());
  if (options.json) {
    print_json_array(listed.nodes());
  } else {
    print(listed);
  }
  tell_slurm_problem(listed.slurm_problem());
  return kSuccess;
}

}  // namespace

void define_nodes(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_nodes);
  app.add_flag("--json", options->json,
               "An array of nodes: state, reason, cpus, memory_bytes, gres, partitions, lost_at, excluded_until");
}

}  // namespace cli
