#include <iostream>

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

constexpr std::uint32_t kPage = 1000;

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
    request.set_limit(std::min<std::uint32_t>(kPage, options.limit - static_cast<std::uint32_t>(entries.size())));
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

}  // namespace

void define_admin_audit(CLI::App& app, Session& session) {
  auto options = add_action<AuditOptions>(app, session, run_audit);
  app.add_option("--partition", options->partition, "Only changes of this partition")->type_name("PARTITION");
  add_number(app, "--limit", options->limit, 1, 100'000, "At most N changes, the newest")->capture_default_str();
  app.add_flag("--json", options->json, "An array of {id, at, user, action, partition, before, after}, newest first");
}

}  // namespace cli
