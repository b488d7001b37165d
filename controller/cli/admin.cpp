#include <iostream>
#include <map>

#include "cli/command.h"
#include "cli/partition_text.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "jobfile/partition_keys.h"

namespace cli {
namespace {

constexpr const char* kNone = "none";

struct PolicyOptions {
  std::string name;
  std::map<std::string, std::vector<std::string>> values;  // key -> values as typed
  bool json = false;
};

struct NameOptions {
  std::string name;
  bool json = false;
};

/// The option of a key: "--requeue-max-preempted" for "requeue.max_preempted".
std::string option_of(const schema::Key& field) {
  std::string text = "--";
  for (const char c : field.name) text += c == '_' || c == '.' ? '-' : c;
  return text;
}

std::string label_of(const schema::Key& field) {
  switch (field.kind) {
    case schema::Kind::kWords:
      return "NAME,...";
    case schema::Kind::kLines:
      return "LINE";
    case schema::Kind::kWhole:
      return "N";
    case schema::Kind::kDuration:
      return "TIME";
    case schema::Kind::kFlag:
      return "{true,false}";
    default:
      return "TEXT";
  }
}

/// The values of an option. Names are split at commas.
std::vector<std::string> values_of(const schema::Key& field, const std::vector<std::string>& typed) {
  if (field.kind != schema::Kind::kWords) return typed;
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
  auto& client = session.client();
  const auto partition = client.call(&AdminStub::SetPartition, request);
  if (options.json) {
    print_json(json_of(partition));
  } else {
    const auto text = policy_text(partition.policy(), [](const schema::Key&) { return true; });
    std::cout << "partition " << partition.name() << ": " << (text.empty() ? "everybody, without limits" : text)
              << "\n";
  }
  for (const auto& problem : partition.problems()) std::cerr << "muster: " << problem << "\n";
  return kSuccess;
}

int run_remove(Session& session, const NameOptions& options) {
  muster::v1::RemovePartitionRequest request;
  request.set_name(options.name);
  request.set_user(user_name());
  auto& client = session.client();
  const auto removed = client.call(&AdminStub::RemovePartition, request);
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

void print(const muster::v1::PartitionView& partition) {
  std::cout << partition.name() << "\n";
  const auto text = policy_text(partition.policy(), [](const schema::Key&) { return true; });
  print_entry("policy", !partition.has_policy() ? "none" : text.empty() ? "everybody, without limits" : text);
  if (!partition.in_slurm()) return print_entry("Slurm", "does not know the partition, or does not answer");
  print_entry("Slurm", partition.state() + ", nodes " + partition.node_list() + ": " + nodes_text(partition) +
                           "; limits " + slurm_limits_text(partition) + "; PreemptMode " + partition.preempt_mode() +
                           ", GraceTime " + std::to_string(partition.grace_ms() / 1000) + " s, tier " +
                           std::to_string(partition.priority_tier()));
}

int run_partition_list(Session& session, const NameOptions& options) {
  const auto listed = ask_partitions(session.client());
  if (options.json) {
    print_json_array(listed.partitions());
  } else {
    for (const auto& partition : listed.partitions()) print(partition);
    if (!listed.file().empty()) std::cerr << "muster: policies come from " << listed.file() << "\n";
  }
  tell_problems(listed);
  return kSuccess;
}

void define_change(CLI::App& app, Session& session, int (*run)(Session&, const PolicyOptions&)) {
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

constexpr std::uint32_t kAuditPage = 1000;

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
    std::cout << harmless(utc_text(entry.at()) + "  " + entry.user() + "  " + entry.action() + " " + entry.partition() +
                          ": " + or_nothing(entry.before()) + " -> " + or_nothing(entry.after()))
              << "\n";
  }
  if (entries.empty()) {
    std::cerr << "muster: nobody has changed "
              << (options.partition.empty() ? "any partition" : "partition " + options.partition) << " yet\n";
  }
  return kSuccess;
}

void define_admin_partition(CLI::App& app, Session& session) {
  app.require_subcommand(1);
  define_change(add_below(app, "add", "Open a partition of Slurm for muster",
                          "Once a partition has a policy, partitions without one are closed. Without options everybody "
                          "may use it,\nwithout limits. The holder of the token is trusted: muster believes the user "
                          "name that a client states.\n\n"
                          "  muster admin partition add main --default true --max-time 12h --default-time 1h\n"
                          "  muster admin partition add big --groups ml --max-nodes 4 --health-check 'nvidia-smi -L'"),
                session, change<true>);
  define_change(add_below(app, "set", "Change some keys of a partition's policy",
                          "Keys that are not named stay; the value none clears a key. Jobs that exist already keep "
                          "their settings; limits\non running jobs count at once.\n\n"
                          "  muster admin partition set big --max-nodes 8 --users ann,bob\n"
                          "  muster admin partition set big --users none --max-time none"),
                session, change<false>);
  auto& remove = add_below(app, "remove", "Close a partition for muster",
                           "Jobs in the partition go on. When no policy is left, every partition may be used again.\n\n"
                           "  muster admin partition remove big");
  auto gone = add_action<NameOptions>(remove, session, run_remove);
  remove.add_option("name", gone->name, "The partition")->required()->type_name("PARTITION");
  remove.add_flag("--json", gone->json, "{api_version, jobs, was_last}");
  auto& list = add_below(app, "list", "Show policies, Slurm's facts, and contradictions between them",
                         "  muster admin partition list\n"
                         "  muster admin partition list --json | jq '.[] | select(.problems != [])'");
  auto listed = add_action<NameOptions>(list, session, run_partition_list);
  list.add_flag("--json", listed->json, "An array of partitions: policy, Slurm's facts, problems");
}

void define_admin_audit(CLI::App& app, Session& session) {
  auto options = add_action<AuditOptions>(app, session, run_audit);
  app.add_option("--partition", options->partition, "Only changes of this partition")->type_name("PARTITION");
  add_number(app, "--limit", options->limit, 1, 100'000, "At most N changes, the newest")->capture_default_str();
  app.add_flag("--json", options->json, "An array of {id, at, user, action, partition, before, after}, newest first");
}

}  // namespace

void define_admin(CLI::App& app, Session& session) {
  app.require_subcommand(1);
  define_admin_partition(add_below(app, "partition", "Set which Slurm partitions may be used, by whom and how",
                                   "  muster admin partition add --help     every key"),
                         session);
  define_admin_audit(
      add_below(app, "audit", "Show who changed which partition when",
                "A change made by musterd's --partitions file has the user \"file\". Changes are kept for ever.\n\n"
                "  muster admin audit\n"
                "  muster admin audit --partition big --json | jq '.[0].before'"),
      session);
}

}  // namespace cli
