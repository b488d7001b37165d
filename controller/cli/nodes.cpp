#include <iostream>

#include "cli/command.h"
#include "cli/partition_text.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

using muster::v1::NodeView;

std::string used_text(std::uint32_t used, std::uint32_t all) {
  return all == 0 ? "-" : std::to_string(used) + "/" + std::to_string(all);
}

std::string gres_text(const NodeView& node) {
  if (node.gres().empty()) return "-";
  return node.gres() + (node.gres_used().empty() ? "" : " (" + node.gres_used() + " used)");
}

/// Why no rank starts on the node: muster's reason, then Slurm's.
std::string remark(const NodeView& node) {
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
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), listed.nodes(), text_of); };
  add({"NAME"}, [](const NodeView& node) { return node.name(); });
  add({"STATE", false, 8}, [](const NodeView& node) { return node.state().empty() ? "unknown" : node.state(); });
  add({"CPUS", true}, [](const NodeView& node) { return used_text(node.cpus_used(), node.cpus()); });
  add({"MEMORY", true},
      [](const NodeView& node) { return node.memory_bytes() == 0 ? "-" : bytes_text(node.memory_bytes()); });
  add({"GRES", false, 8}, gres_text);
  add({"PARTITIONS", false, 10}, [](const NodeView& node) { return or_dash(joined(node.partitions(), ",")); });
  add({"REMARK", false, 12}, remark);
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
