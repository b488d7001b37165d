// Commands about partitions and nodes: partitions, nodes, admin.
#include <iostream>
#include <map>
#include <ranges>

#include "base/numbers.h"
#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/partition_keys.h"

namespace cli {
namespace {

using muster::v1::ListPartitionsResponse;
using muster::v1::MachineGpu;
using muster::v1::MachineView;
using muster::v1::NodeView;
using muster::v1::PartitionPolicy;
using muster::v1::PartitionView;
using spec::Kind;

constexpr const char* kNone = "none";
constexpr std::uint32_t kAuditPage = 1000;

/// "max_nodes 4, users ann bob": the fields, or only the limits, that the policy has; empty: none.
std::string policy_text(const PartitionPolicy& policy, bool only_limits) {
  std::string text;
  for (const auto& field : jobfile::partition_keys()) {
    const auto values = jobfile::texts(policy, field);
    if (values.empty() || (only_limits && !field.name.starts_with("max_"))) continue;
    append(text, field.name);
    for (const auto& value : values) text += " " + value;
  }
  return text;
}

std::string whole_policy_text(const PartitionPolicy& policy) {
  const auto text = policy_text(policy, false);
  return text.empty() ? "everybody, without limits" : text;
}

/// "2 idle, 1 used, 1 down"; "-": not known.
std::string nodes_text(const PartitionView& partition) {
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

/// Slurm's longest time and most nodes: "12h, 4 nodes"; "-": no limit.
std::string slurm_limits_text(const PartitionView& partition) {
  std::string text;
  if (partition.slurm_max_time_ms() > 0) text = base::print_duration_ms(partition.slurm_max_time_ms());
  if (partition.slurm_max_nodes() > 0) append(text, std::to_string(partition.slurm_max_nodes()) + " nodes");
  return or_dash(text);
}

/// The partitions as the current user sees them.
ListPartitionsResponse ask_partitions(Client& client) {
  muster::v1::ListPartitionsRequest request;
  request.set_user(user_name());
  return client.call(&AdminStub::ListPartitions, request);
}

/// Says on stderr that Slurm does not answer, if there is a problem.
void tell_slurm_problem(const std::string& problem) {
  if (!problem.empty()) std::cerr << "muster: Slurm is " << problem << "; its facts may be out of date or missing\n";
}

std::string name_of(const PartitionView& partition) {
  const bool is_default = partition.policy().is_default() || (!partition.has_policy() && partition.slurm_default());
  return partition.name() + (is_default ? "*" : "");
}

/// Tells whether jobs in the partition may be preempted, and how long they have to save then.
std::string preempted_text(const PartitionView& partition) {
  if (partition.preempt_mode().empty()) return "-";
  if (partition.preempt_mode() == "OFF") return "no";
  return "after " + base::print_duration_ms(partition.grace_ms());
}

std::string mine_text(const PartitionView& partition) {
  if (partition.jobs_handed_over() + partition.jobs_waiting() == 0) return "-";
  return std::to_string(partition.jobs_handed_over()) + " in Slurm, " + std::to_string(partition.jobs_waiting()) +
         " waiting";
}

void print(const ListPartitionsResponse& listed) {
  Table table;
  auto usable = listed.partitions() | std::views::filter(&PartitionView::may_use);
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), usable, text_of); };
  add({"NAME"}, name_of);
  add({"STATE"}, [](const PartitionView& one) { return one.in_slurm() ? one.state() : "unknown"; });
  add({"NODES", false, 8}, nodes_text);
  add({"LIMITS", false, 10}, [](const PartitionView& one) { return or_dash(policy_text(one.policy(), true)); });
  add({"SLURM'S", false, 8}, slurm_limits_text);
  add({"PREEMPTED"}, preempted_text);
  add({"YOUR JOBS", false, 8}, mine_text);
  std::cout << table.text() << std::flush;
  for (const auto& one : listed.partitions()) {
    if (!one.may_use()) std::cerr << "muster: " << one.name() << " may not be used by you: " << one.why_not() << "\n";
  }
}

int run_partitions(Session& session, const JsonOption& options) {
  const auto listed = ask_partitions(session.client());
  options.json ? print_json_array(listed.partitions()) : print(listed);
  tell_slurm_problem(listed.slurm_problem());
  return kSuccess;
}

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

/// "8 of 16 cores taken: job 1 has 6, job 4 has 2".
std::string cores_taken_text(const MachineView& machine) {
  std::string by;
  for (const auto& holder : machine.holders()) {
    if (holder.cores() == 0) continue;
    append(by, "job " + std::to_string(holder.job_id()) + " has " + std::to_string(holder.cores()));
  }
  return std::to_string(machine.cores_taken()) + " of " + core::count_text(machine.cores(), "core") + " taken" +
         (by.empty() ? "" : ": " + by);
}

/// Who has what of musterd's own machine.
void print(const MachineView& machine) {
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), machine.gpus(), text_of); };
  add({"GPU", true}, [](const MachineGpu& gpu) { return std::to_string(gpu.number()); });
  add({"JOB", true}, [](const MachineGpu& gpu) {
    return gpu.job_id() == 0 ? "-" : std::to_string(gpu.job_id()) + (gpu.held_back() ? "?" : "");
  });
  add({"ATT", true}, [](const MachineGpu& gpu) { return gpu.job_id() == 0 ? "-" : std::to_string(gpu.attempt()); });
  add({"KIND", false, 8}, [](const MachineGpu& gpu) { return or_dash(gpu.name()); });
  add({"ID", false, 12}, &MachineGpu::id);
  const auto from = machine.gpus_from().empty() ? "" : " (" + machine.gpus_from() + ")";
  std::string facts = machine.gpus().empty() ? "no GPU" + from : core::count_text(machine.gpus_size(), "GPU") + from;
  if (machine.cores() > 0) append(facts, cores_taken_text(machine), "; ");
  std::cout << harmless(machine.name() + ", where local jobs run: " + facts) << "\n" << table.text();
  if (std::ranges::any_of(machine.gpus(), &MachineGpu::held_back)) {
    std::cout << "JOB?: nobody can tell whether the job has this GPU, so it is held back: muster why tells more\n";
  }
  if (machine.waiting().empty()) return;
  std::string waiting;
  for (const auto job : machine.waiting()) append(waiting, "job " + std::to_string(job));
  std::cout << "waiting, the next one first: " << waiting << "\n";
}

void print(const google::protobuf::RepeatedPtrField<NodeView>& nodes) {
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), nodes, text_of); };
  add({"NAME"}, &NodeView::name);
  add({"STATE", false, 8}, [](const NodeView& node) { return node.state().empty() ? "unknown" : node.state(); });
  add({"CPUS", true}, [](const NodeView& node) { return used_text(node.cpus_used(), node.cpus()); });
  add({"MEMORY", true},
      [](const NodeView& node) { return node.memory_bytes() == 0 ? "-" : bytes_text(node.memory_bytes()); });
  add({"GRES", false, 8}, gres_text);
  add({"PARTITIONS", false, 10}, [](const NodeView& node) { return or_dash(joined(node.partitions(), ",")); });
  add({"REMARK", false, 12}, remark);
  std::cout << table.text() << std::flush;
}

int run_nodes(Session& session, const JsonOption& options) {
  const auto listed = session.client().call(&AdminStub::ListNodes, muster::v1::ListNodesRequest());
  const auto& machine = listed.machine();
  // Where there is Slurm, few care for the machine of musterd.
  const bool tells_machine =
      listed.has_machine() && (listed.nodes().empty() || !machine.gpus().empty() || !machine.holders().empty());
  if (options.json) {
    JsonRows rows(JsonRows::Form::kArray);
    for (const auto& node : listed.nodes()) rows.add(json_of(node));
    if (tells_machine) rows.add(json_of(machine));
    rows.end();
  } else {
    if (!listed.nodes().empty()) print(listed.nodes());
    if (!listed.nodes().empty() && tells_machine) std::cout << "\n";
    if (tells_machine) print(machine);
    std::cout << std::flush;
  }
  tell_slurm_problem(listed.slurm_problem());
  return kSuccess;
}

struct PolicyOptions {
  std::string name;
  std::map<std::string, std::vector<std::string>> values;  // key -> values as typed
  bool json = false;
};

struct RemoveOptions {
  std::string name;
  bool json = false;
};

/// The option of a key: "--requeue-max-preempted" for "requeue.max_preempted".
std::string option_of(const spec::Key& field) {
  std::string text = "--";
  for (const char c : field.name) text += c == '_' || c == '.' ? '-' : c;
  return text;
}

/// How help shows the option's value.
std::string label_of(const spec::Key& field) {
  switch (field.kind) {
    case Kind::kWords:
      return "NAME,...";
    case Kind::kLines:
      return "LINE";
    case Kind::kWhole:
      return "N";
    case Kind::kDuration:
      return "TIME";
    case Kind::kFlag:
      return "{true,false}";
    default:
      return "TEXT";
  }
}

/// The values of an option. Names are split at commas.
std::vector<std::string> values_of(const spec::Key& field, const std::vector<std::string>& typed) {
  if (field.kind != Kind::kWords) return typed;
  std::vector<std::string> names;
  for (const auto& text : typed) {
    for (std::size_t at = 0; at <= text.size();) {
      const auto end = std::min(text.find(',', at), text.size());
      names.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  return names;
}

muster::v1::SetPartitionRequest request_of(const PolicyOptions& options, bool create) {
  muster::v1::SetPartitionRequest request;
  request.set_create(create);
  request.set_user(user_name());
  auto& policy = *request.mutable_policy();
  policy.set_name(options.name);
  for (const auto& field : jobfile::partition_keys()) {
    const auto typed = options.values.find(std::string(field.name));
    if (typed == options.values.end() || typed->second.empty()) continue;
    request.add_keys(std::string(field.name));
    if (typed->second == std::vector<std::string>{kNone}) continue;
    if (const auto want = jobfile::put(policy, field, values_of(field, typed->second)); !want.empty()) {
      throw Failure(kUsage,
                    option_of(field) + " \"" + cut(typed->second.front(), 80) + "\": want " + want + ", or none");
    }
  }
  return request;
}

template <bool create>
int change(Session& session, const PolicyOptions& options) {
  const auto request = request_of(options, create);
  if (!create && request.keys().empty()) {
    throw Failure(kUsage, "want something to change, such as --max-nodes 4; see muster admin partition set --help");
  }
  const auto partition = session.client().call(&AdminStub::SetPartition, request);
  if (options.json) {
    print_json(json_of(partition));
  } else {
    std::cout << "partition " << partition.name() << ": " << whole_policy_text(partition.policy()) << "\n";
  }
  for (const auto& problem : partition.problems()) std::cerr << "muster: " << problem << "\n";
  return kSuccess;
}

int run_remove(Session& session, const RemoveOptions& options) {
  muster::v1::RemovePartitionRequest request;
  request.set_name(options.name);
  request.set_user(user_name());
  const auto removed = session.client().call(&AdminStub::RemovePartition, request);
  if (options.json) {
    print_json(json_of(removed));
    return kSuccess;
  }
  std::cout << "partition " << options.name << " removed";
  if (removed.jobs() > 0)
    std::cout << "; " << removed.jobs() << (removed.jobs() == 1 ? " job goes" : " jobs go") << " on there";
  std::cout << "\n";
  if (removed.was_last()) std::cerr << "muster: no policy is left: everybody may use every partition of Slurm\n";
  return kSuccess;
}

void print(const PartitionView& partition) {
  std::cout << partition.name() << "\n";
  print_entry("policy", partition.has_policy() ? whole_policy_text(partition.policy()) : "none");
  if (!partition.in_slurm()) return print_entry("Slurm", "does not know the partition, or does not answer");
  print_entry("Slurm", partition.state() + ", nodes " + partition.node_list() + ": " + nodes_text(partition) +
                           "; limits " + slurm_limits_text(partition) + "; PreemptMode " + partition.preempt_mode() +
                           ", GraceTime " + std::to_string(partition.grace_ms() / 1000) + " s, tier " +
                           std::to_string(partition.priority_tier()));
}

int run_partition_list(Session& session, const JsonOption& options) {
  const auto listed = ask_partitions(session.client());
  if (options.json) {
    print_json_array(listed.partitions());
  } else {
    for (const auto& partition : listed.partitions()) print(partition);
    if (!listed.file().empty()) std::cerr << "muster: policies come from " << listed.file() << "\n";
  }
  tell_slurm_problem(listed.slurm_problem());
  if (!listed.file_problem().empty()) std::cerr << "muster: " << listed.file_problem() << "\n";
  for (const auto& partition : listed.partitions()) {
    for (const auto& problem : partition.problems()) std::cerr << "muster: " << problem << "\n";
  }
  return kSuccess;
}

void define_policy_change(CLI::App& app, Session& session, int (*run)(Session&, const PolicyOptions&)) {
  auto options = add_action<PolicyOptions>(app, session, run);
  app.add_option("name", options->name, "The partition, as Slurm calls it")->required()->type_name("PARTITION");
  for (const auto& field : jobfile::partition_keys()) {
    auto& values = options->values[std::string(field.name)];
    app.add_option(option_of(field), values, std::string(field.meaning))
        ->allow_extra_args(false)
        ->type_name(label_of(field));
  }
  app.add_flag("--json", options->json, "The partition afterwards: policy, Slurm's facts, problems");
}

struct AuditOptions {
  std::string partition;
  std::uint32_t limit = 50;
  bool json = false;
};

std::vector<muster::v1::AuditEntry> read_entries(Client& client, const AuditOptions& options) {
  std::vector<muster::v1::AuditEntry> entries;
  muster::v1::ListAuditRequest request;
  request.set_partition(options.partition);
  while (entries.size() < options.limit) {
    request.set_limit(std::min<std::uint32_t>(kAuditPage, options.limit - static_cast<std::uint32_t>(entries.size())));
    const auto page = client.call(&AdminStub::ListAudit, request);
    if (page.entries().empty()) break;
    entries.insert(entries.end(), page.entries().begin(), page.entries().end());
    request.set_before_id(entries.back().id());
  }
  return entries;
}

std::string or_nothing(const std::string& json) {
  return json.empty() ? "nothing" : json;
}

int run_audit(Session& session, const AuditOptions& options) {
  const auto entries = read_entries(session.client(), options);
  if (options.json) {
    print_json_array(entries);
    return kSuccess;
  }
  for (const auto& entry : entries) {
    std::cout << harmless(utc_text(entry.at()) + "  " + entry.user() + "  " + entry.action() +
                          (entry.partition().empty() ? "" : " " + entry.partition()) + ": " +
                          or_nothing(entry.before()) + " -> " + or_nothing(entry.after()))
              << "\n";
  }
  if (entries.empty()) {
    std::cerr << "muster: nobody has changed "
              << (options.partition.empty() ? "a partition, or ordered a drain" : "partition " + options.partition)
              << " yet\n";
  }
  return kSuccess;
}

void define_admin_partition(CLI::App& app, Session& session) {
  app.require_subcommand(1);
  define_policy_change(add_below(app, "add", "Open a partition of Slurm for muster", help_text("admin_partition_add")),
                       session, change<true>);
  define_policy_change(
      add_below(app, "set", "Change some keys of a partition's policy", help_text("admin_partition_set")), session,
      change<false>);
  auto& remove = add_below(app, "remove", "Close a partition for muster", help_text("admin_partition_remove"));
  auto gone = add_action<RemoveOptions>(remove, session, run_remove);
  remove.add_option("name", gone->name, "The partition")->required()->type_name("PARTITION");
  remove.add_flag("--json", gone->json, "{api_version, jobs, was_last}");
  auto& list = add_below(app, "list", "Show policies, Slurm's facts, and contradictions between them",
                         help_text("admin_partition_list"));
  auto listed = add_action<JsonOption>(list, session, run_partition_list);
  list.add_flag("--json", listed->json, "An array of partitions: policy, Slurm's facts, problems");
}

void define_admin_audit(CLI::App& app, Session& session) {
  auto options = add_action<AuditOptions>(app, session, run_audit);
  app.add_option("--partition", options->partition, "Only changes of this partition")->type_name("PARTITION");
  add_number(app, "--limit", options->limit, 1, 100'000, "At most N changes, the newest")->capture_default_str();
  app.add_flag("--json", options->json, "An array of {id, at, user, action, partition, before, after}, newest first");
}

}  // namespace

void define_partitions(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_partitions);
  app.add_flag("--json", options->json, "An array of all partitions: policy, Slurm's facts, may_use, problems");
}

void define_nodes(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_nodes);
  app.add_flag(
      "--json", options->json,
      "An array of nodes: state, reason, cpus, memory_bytes, gres, partitions, lost_at, excluded_until; the last "
      "is musterd's own machine: gpus, cores, holders, waiting");
}

void define_admin(CLI::App& app, Session& session) {
  app.require_subcommand(1);
  define_admin_partition(add_below(app, "partition", "Set which Slurm partitions may be used, by whom and how",
                                   help_text("admin_partition")),
                         session);
  define_admin_drain(add_below(app, "drain", "Let no attempt start; what runs goes on", help_text("admin_drain")),
                     session);
  define_admin_resume(add_below(app, "resume", "Let attempts start again", help_text("admin_resume")), session);
  define_admin_backup(
      add_below(app, "backup", "Write all jobs with their history into a file", help_text("admin_backup")), session);
  define_admin_restore(
      add_below(app, "restore", "Put a backup in the place of what is there", help_text("admin_restore")), session);
  define_admin_audit(add_below(app, "audit", "Show who changed what when: partitions, drain", help_text("admin_audit")),
                     session);
}

}  // namespace cli
