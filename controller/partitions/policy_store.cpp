#include "controller/partitions/policy_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/words.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/partition_keys.h"

namespace partitions {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kByFile = "file";
constexpr const char* kReadAgain = "; the last good one is in force";
constexpr std::size_t kMostUser = 64;

std::string named(const std::string& partition) {
  return "partition \"" + base::valid_utf8(partition.substr(0, 80)) + "\"";
}

/// The name that the audit gives to the one who asked.
std::string name_of(const std::string& user) {
  const auto words = core::plain_words(user.substr(0, kMostUser));
  return words.empty() ? "unknown" : words;
}

std::vector<std::string> names_of(const executors::ClusterFacts& slurm) {
  std::vector<std::string> names;
  for (const auto& partition : slurm.partitions) names.push_back(partition.name);
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> names_of(const PartitionPolicies& book) {
  std::vector<std::string> names;
  for (const auto& [name, policy] : book.policies()) names.push_back(name);
  return names;
}

std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names) {
  const auto near = base::nearest(wrong, names);
  return near.empty() ? "" : ", did you mean \"" + near + "\"";
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

/// The file's text, or why there is none.
std::string read(const std::filesystem::path& file, std::string* problem) {
  std::ifstream in(file, std::ios::binary);
  std::string text(jobfile::kMostPartitionFileBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {  // also of a folder
    *problem = file.string() + ": cannot be read; is it there, and may musterd's user read it?";
    return {};
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

std::vector<std::string> texts_of(const Json& value) {
  if (value.is_array()) return value.get<std::vector<std::string>>();
  if (value.is_string()) return {value.get<std::string>()};
  return {value.dump()};
}

/// The row that the audit keeps of a change. Null: the partition had no policy, or has none any more.
store::AuditRow change_of(const PartitionPolicy* was, const PartitionPolicy* is, core::Time at, std::string user) {
  const char* action = was == nullptr ? "add" : is == nullptr ? "remove" : "set";
  return {0,
          at,
          std::move(user),
          action,
          (is == nullptr ? was : is)->name(),
          was == nullptr ? "" : policy_to_json(*was),
          is == nullptr ? "" : policy_to_json(*is)};
}

/// Changes the policy as asked. Returns the fault of the new policy; empty: none.
std::string apply(const muster::v1::SetPartitionRequest& request, PartitionPolicy& policy) {
  for (const auto& key : request.keys()) {
    const auto* field = jobfile::find_partition_key(key);
    if (field == nullptr) {
      const auto near = jobfile::nearest_partition_key(key);
      return "unknown key " + key.substr(0, 80) + (near.empty() ? "" : ", did you mean " + near);
    }
    const auto values = jobfile::texts(request.policy(), *field);
    jobfile::clear(policy, *field);
    if (values.empty()) continue;
    if (const auto want = jobfile::put(policy, *field, values); !want.empty()) {
      return key + " \"" + values.front().substr(0, 80) + "\": want " + want;
    }
  }
  return joined(jobfile::contradictions(policy));
}

std::string other_default(const PartitionPolicies& book, const PartitionPolicy& policy) {
  if (!policy.is_default()) return {};
  for (const auto& [name, other] : book.policies()) {
    if (name != policy.name() && other.is_default()) return name;
  }
  return {};
}

}  // namespace

PolicyStore::PolicyStore(store::Store& store, common::Clock& clock, std::filesystem::path file, bool threads,
                         std::function<void()> changed)
    : store_(store),
      clock_(clock),
      file_(std::move(file)),
      changed_(std::move(changed)),
      loop_("policies", file_.string() + " could not be looked at", threads, [this] {
        look(false);
        return kLookEvery;
      }) {
  load();
  if (file_.empty()) return;
  looked_at_ = clock_.monotonic();
  look(true);
  if (book_->empty()) throw std::runtime_error(problem_);
}

void PolicyStore::load() {
  std::vector<PartitionPolicy> policies;
  for (const auto& row : store_.partitions()) policies.push_back(policy_from_json(row.name, row.policy));
  book_ = std::make_shared<PartitionPolicies>(std::move(policies));
}

void PolicyStore::poll() {
  if (file_.empty() || clock_.monotonic() - looked_at_ < kLookEvery) return;
  looked_at_ = clock_.monotonic();
  look(false);
}

void PolicyStore::look(bool at_once) {
  std::lock_guard changing(changing_);
  std::string problem;
  const auto text = read(file_, &problem);
  const bool settled = at_once || text == seen_;
  seen_ = text;
  if (problem.empty()) {
    if (!settled || (!at_once && text == taken_)) return;
    auto parsed = jobfile::parse_partition_file(text, file_.string());
    problem = joined(parsed.problems);
    if (problem.empty() && parsed.policies.empty()) {
      problem = file_.string() + ": no [partition.NAME] table; leave --partitions out to allow every partition";
    }
    bool stored = true;
    if (problem.empty()) {
      try {
        take(std::move(parsed.policies));
      } catch (const std::exception& error) {
        problem = file_.string() + ": not in force, since the change cannot be stored: " + error.what();
        stored = false;  // tried again
      }
    }
    taken_ = stored ? std::optional(text) : std::nullopt;
  } else {
    taken_.reset();  // once it can be read again it counts, whatever it says
  }
  std::lock_guard lock(mutex_);
  if (problem != problem_) {
    if (problem.empty()) {
      spdlog::info("{} is in force", file_.string());
    } else {
      spdlog::error("{}{}", problem, book_->empty() ? "" : kReadAgain);
    }
  }
  problem_ = problem;
}

void PolicyStore::take(std::vector<PartitionPolicy> policies) {
  const auto old = book();
  PartitionPolicies next(std::move(policies));
  std::vector<store::AuditRow> rows;
  const auto note = [&](const PartitionPolicy* was, const PartitionPolicy* is) {
    auto row = change_of(was, is, clock_.wall(), kByFile);
    if (row.before != row.after) rows.push_back(std::move(row));
  };
  for (const auto& [name, policy] : old->policies()) note(&policy, next.find(name));
  for (const auto& [name, policy] : next.policies()) {
    if (old->find(name) == nullptr) note(nullptr, &policy);
  }
  change(rows, std::move(next));
}

void PolicyStore::change(const std::vector<store::AuditRow>& rows, PartitionPolicies next) {
  store_.change_partitions(rows);
  {
    std::lock_guard lock(mutex_);
    book_ = std::make_shared<const PartitionPolicies>(std::move(next));
  }
  if (changed_) changed_();
}

std::optional<common::Refusal> PolicyStore::refused(const store::AuditRow& row, PartitionPolicies next) {
  try {
    change({row}, std::move(next));
  } catch (const store::Error& error) {
    if (error.kind() != store::Error::Kind::kFull) throw;
    return common::Refusal{common::Refusal::Kind::kUnchanged, std::string("nothing was changed: ") + error.what()};
  }
  return std::nullopt;
}

std::string PolicyStore::problem() const {
  std::lock_guard lock(mutex_);
  return problem_.empty() ? problem_ : problem_ + kReadAgain;
}

std::optional<common::Refusal> PolicyStore::refuse_by_command() const {
  if (file_.empty()) return std::nullopt;
  return common::Refusal::wrong_state("partitions come from a file here: edit " + file_.string() +
                                      "; it is read again within two seconds");
}

common::Outcome<PartitionPolicy> PolicyStore::set(const muster::v1::SetPartitionRequest& request,
                                                  const executors::ClusterFacts& slurm) {
  std::lock_guard changing(changing_);
  if (const auto refusal = refuse_by_command()) return *refusal;
  const auto& name = request.policy().name();
  if (!jobfile::is_partition_name(name)) {
    return common::Refusal::invalid(named(name) + ": want 1 to 64 letters, digits, \".\", \"_\" or \"-\"");
  }
  const auto old = book();
  const auto* known = old->find(name);
  if (request.create() && known != nullptr) {
    return common::Refusal::wrong_state(named(name) + " has a policy already; muster admin partition set " + name +
                                        " changes it");
  }
  if (!request.create() && known == nullptr) {
    return common::Refusal::not_found(named(name) + " has no policy" + did_you_mean(name, names_of(*old)) +
                                      "; muster admin partition add " + name + " gives it one");
  }
  if (request.create() && slurm.unreachable.empty() && slurm.find(name) == nullptr) {
    return common::Refusal::invalid("Slurm knows no " + named(name) + did_you_mean(name, names_of(slurm)) +
                                    "; it has " + names_text(names_of(slurm)));
  }
  auto policy = known == nullptr ? PartitionPolicy() : *known;
  policy.set_name(name);
  if (const auto problem = apply(request, policy); !problem.empty()) return common::Refusal::invalid(problem);
  if (const auto other = other_default(*old, policy); !other.empty()) {
    return common::Refusal::wrong_state(named(other) + " is the default already; muster admin partition set " + other +
                                        " --default none, then this one");
  }
  auto next = *old;
  next.put(policy);
  const auto row = change_of(known, &policy, clock_.wall(), name_of(request.user()));
  if (const auto refusal = refused(row, std::move(next))) return *refusal;
  return policy;
}

common::Outcome<PartitionPolicy> PolicyStore::remove(const muster::v1::RemovePartitionRequest& request) {
  std::lock_guard changing(changing_);
  if (const auto refusal = refuse_by_command()) return *refusal;
  const auto old = book();
  const auto* known = old->find(request.name());
  if (known == nullptr) {
    return common::Refusal::not_found(named(request.name()) + " has no policy" +
                                      did_you_mean(request.name(), names_of(*old)) +
                                      "; muster admin partition list shows those there are");
  }
  auto next = *old;
  next.remove(request.name());
  const auto row = change_of(known, nullptr, clock_.wall(), name_of(request.user()));
  if (const auto refusal = refused(row, std::move(next))) return *refusal;
  return *known;
}

std::string policy_to_json(const PartitionPolicy& policy) {
  Json json = Json::object();
  for (const auto& field : jobfile::partition_keys()) {
    const auto texts = jobfile::texts(policy, field);
    const bool is_literal = field.kind == spec::Kind::kWhole || field.kind == spec::Kind::kFlag;
    if (texts.empty()) continue;
    json[std::string(field.name)] = jobfile::is_list(field) ? Json(texts)
                                    : is_literal            ? Json::parse(texts.front())
                                                            : Json(texts.front());
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PartitionPolicy policy_from_json(const std::string& name, const std::string& text) {
  PartitionPolicy policy;
  policy.set_name(name);
  try {
    const auto json = Json::parse(text);
    for (const auto& [key, value] : json.items()) {
      const auto* field = jobfile::find_partition_key(key);
      if (field == nullptr) continue;
      if (const auto want = jobfile::put(policy, *field, texts_of(value)); !want.empty()) {
        throw std::runtime_error(key + ": want " + want);
      }
    }
  } catch (const std::exception& error) {
    throw std::runtime_error("the stored policy of partition \"" + name + "\" cannot be read: " + error.what());
  }
  return policy;
}

}  // namespace partitions
