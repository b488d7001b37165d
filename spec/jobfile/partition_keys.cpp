#include "spec/jobfile/partition_keys.h"

#include <algorithm>
#include <array>

#include "base/numbers.h"
#include "base/words.h"
#include "spec/jobfile/spec.h"
#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

constexpr double kMostCount = 1'000'000;
constexpr double kMinute = 60'000;
constexpr double kLongest = 864'000'000'000;  // 10,000 days in ms
constexpr std::size_t kMostValues = 1000;
constexpr Key count(std::string_view name, std::string_view meaning) {
  return {.name = name, .kind = Kind::kWhole, .low = 1, .high = kMostCount, .meaning = meaning};
}

constexpr Key budget(std::string_view name) {
  return {
      .name = name, .kind = Kind::kWhole, .high = kMostCount, .meaning = "Of jobs that don't say; as in a job file."};
}

constexpr Key duration(std::string_view name, std::string_view meaning) {
  return {.name = name, .kind = Kind::kDuration, .low = kMinute, .high = kLongest, .meaning = meaning};
}

/// A row without a default or bounds.
constexpr Key plain(Kind kind, std::string_view name, std::string_view meaning) {
  return {.name = name, .kind = kind, .meaning = meaning};
}

constexpr auto kFields = std::to_array<Key>({
    plain(Kind::kWords, "users", "Who may use the partition. With groups as well, either is enough."),
    plain(Kind::kWords, "groups",
          "Members of these groups may use the partition. Without users and groups everybody may."),
    count("max_nodes", "The most nodes of a job."),
    count("max_ranks", "The most ranks of a job: nodes x ranks_per_node."),
    duration("max_time", "The longest time of one attempt. Without default_time also the limit of jobs that set none."),
    count("max_running_jobs_per_user", "How many jobs of a user are in Slurm at once. Further jobs wait in muster."),
    count("max_queued_jobs_per_user",
          "How many jobs of a user may wait, in muster or in Slurm's queue. Further jobs are refused at submit."),
    plain(Kind::kText, "default_account", "For jobs that set none."),
    plain(Kind::kText, "default_qos", "For jobs that set none."),
    plain(Kind::kText, "default_constraint", "For jobs that set none."),
    plain(Kind::kText, "default_gres", "For jobs that set neither slurm.gres nor resources.gpus_per_rank."),
    duration("default_time", "Time limit of jobs that set none."),
    plain(Kind::kFlag, "preemptible", "Whether Slurm may preempt jobs. Checked against Slurm's PreemptMode."),
    budget("requeue.max_failed"),
    budget("requeue.max_rank_silent"),
    budget("requeue.max_rank_hung"),
    budget("requeue.max_preempted"),
    budget("requeue.max_timed_out"),
    budget("requeue.max_node_failed"),
    budget("requeue.max_out_of_memory"),
    budget("requeue.max_same_error"),
    budget("requeue.max_controller_lost"),
    plain(Kind::kText, "health_check",
          "Command that runs on every node before the ranks start. A node where it fails gets no ranks."),
    plain(Kind::kLines, "setup",
          "Shell lines before the ranks and before the job's own, such as \"module load cuda\"."),
    plain(Kind::kFlag, "default", "For jobs that name no partition."),
});

bool is_line(std::string_view text) {
  return !text.empty() && text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

bool is_user_name(std::string_view text) {
  return is_line(text) && text.size() <= 64 && text.find_first_of(" ,\t:/") == std::string_view::npos;
}

std::string put_list(PartitionPolicy& policy, const Key& field, const std::vector<std::string>& values) {
  const bool names = field.kind == Kind::kWords;
  if (names && values.empty()) return "at least one name; leave the key out to let everybody in";
  if (values.size() > kMostValues) return "at most " + std::to_string(kMostValues) + " values";
  for (const auto& value : values) {
    if (names && !is_user_name(value)) return "names such as [\"ann\", \"bob\"]";
    if (!names && !is_line(value)) return "texts of one line each";
  }
  clear(policy, field);
  for (const auto& value : values) add(policy, field, value);
  return {};
}

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  PartitionFile read(std::string_view text) {
    toml::table root;
    try {
      root = toml::parse(text, name_);
    } catch (const toml::parse_error& error) {
      refuse(error.source(), syntax_problem(error.description()));
      return finish();
    }
    for (const auto& [key, node] : root) {
      const auto* table = key.str() == "partition" ? node.as_table() : nullptr;
      if (table == nullptr) {
        refuse(key.source(), shown(key.str()) + ": want [partition.NAME] tables and nothing else");
        continue;
      }
      for (const auto& [partition, body] : *table) read_partition(partition, body);
    }
    std::ranges::stable_sort(result_.policies, {}, &PartitionPolicy::name);
    return finish();
  }

 private:
  void refuse(const toml::source_region& at, const std::string& text) { found_.push_back({at.begin, text}); }

  void read_partition(const toml::key& key, const toml::node& node) {
    const std::string partition(key.str());
    const auto* table = node.as_table();
    if (table == nullptr || !is_partition_name(partition)) {
      return refuse(key.source(), "partition." + shown(partition) +
                                      ": want a table whose name is 1 to 64 letters, digits, \".\", \"_\" or \"-\"");
    }
    if (result_.policies.size() == kMostPartitions) {
      return refuse(key.source(), "more than " + std::to_string(kMostPartitions) + " partitions");
    }
    auto& policy = result_.policies.emplace_back();
    policy.set_name(partition);
    read_keys(*table, "", policy);
    for (const auto& problem : contradictions(policy)) refuse(key.source(), problem);
    if (!policy.is_default()) return;
    if (!default_.empty()) {
      refuse(key.source(), "default \"true\": partition " + default_ + " is the default already; keep one of them");
    }
    default_ = partition;
  }

  void read_keys(const toml::table& table, const std::string& prefix, PartitionPolicy& policy) {
    for (const auto& [key, node] : table) {
      const auto path = prefix + std::string(key.str());
      if (path == "requeue" && node.is_table()) {
        read_keys(*node.as_table(), "requeue.", policy);
        continue;
      }
      const auto* field = find_partition_key(path);
      if (field == nullptr || key.str().find('.') != std::string_view::npos) {
        const auto near = nearest_partition_key(path);
        refuse(key.source(),
               shown(path) + ": unknown key" +
                   (near.empty() ? "; muster admin partition set --help lists all" : ", did you mean " + near));
        continue;
      }
      read_value(*field, node, policy);
    }
  }

  void read_value(const Key& field, const toml::node& node, PartitionPolicy& policy) {
    std::vector<std::string> values;
    std::string want;
    if (is_list(field)) {
      const auto* array = node.as_array();
      if (array == nullptr) want = "an array of texts such as [\"a\", \"b\"]";
      for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
        const auto* text = array->get(i)->as_string();
        if (text == nullptr) want = "an array of texts such as [\"a\", \"b\"]";
        values.push_back(text == nullptr ? std::string() : text->get());
      }
    } else if (const auto value = value_of(field, node)) {
      values.push_back(print(field, *value));
    } else {
      want = wanted(field);
    }
    if (want.empty()) want = put(policy, field, values);
    if (!want.empty()) refuse(node.source(), std::string(field.name) + " \"" + shown(node) + "\": want " + want);
  }

  PartitionFile finish() {
    std::ranges::stable_sort(found_, [](const Found& a, const Found& b) {
      return std::tuple(a.at.line, a.at.column) < std::tuple(b.at.line, b.at.column);
    });
    for (const auto& [at, text] : found_) {
      if (result_.problems.size() == kMostProblems) {
        result_.problems.push_back(name_ + ": and " + std::to_string(found_.size() - kMostProblems) + " more problems");
        break;
      }
      result_.problems.push_back(name_ + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " + text);
    }
    return std::move(result_);
  }

  struct Found {
    toml::source_position at;
    std::string text;
  };
  const std::string name_;
  PartitionFile result_;
  std::vector<Found> found_;
  std::string default_;
};

}  // namespace

std::span<const Key> partition_keys() {
  return kFields;
}

const std::vector<std::string>& partition_defaults() {
  static const auto kNames = [] {
    constexpr std::string_view kDefault = "default_";
    std::vector<std::string> names;
    for (const auto& field : kFields) {
      if (!field.name.starts_with(kDefault)) continue;
      const auto name = std::string(field.name.substr(kDefault.size()));
      if (find_key("slurm." + name) != nullptr) names.push_back(name);
    }
    return names;
  }();
  return kNames;
}

const Key* find_partition_key(std::string_view key) {
  const auto found = std::ranges::find(kFields, key, &Key::name);
  return found == kFields.end() ? nullptr : &*found;
}

std::string nearest_partition_key(std::string_view wrong) {
  std::vector<std::string> keys;
  for (const auto& field : kFields) keys.emplace_back(field.name);
  return base::nearest(wrong, keys);
}

bool is_list(const Key& field) {
  return field.kind == Kind::kWords || field.kind == Kind::kLines;
}

void clear(PartitionPolicy& policy, const Key& field) {
  clear(static_cast<google::protobuf::Message&>(policy), field);
  if (policy.has_requeue() && policy.requeue().ByteSizeLong() == 0) policy.clear_requeue();
}

std::vector<std::string> texts(const PartitionPolicy& policy, const Key& field) {
  if (is_list(field)) return texts_of(policy, field);
  const auto value = get(policy, field);
  return value ? std::vector{print(field, *value)} : std::vector<std::string>();
}

std::string put(PartitionPolicy& policy, const Key& field, const std::vector<std::string>& values) {
  if (is_list(field)) return put_list(policy, field, values);
  if (values.size() != 1) return "one value";
  const auto value = parse(field, values.front());
  if (!value || !allowed(field, *value)) return wanted(field);
  if (const auto* text = std::get_if<std::string>(&*value); text != nullptr && !is_line(*text)) return wanted(field);
  set(policy, field, *value);
  return {};
}

bool is_partition_name(std::string_view name) {
  static constexpr Key kName{.name = "partition", .kind = Kind::kName};
  return allowed(kName, Value(std::string(name)));
}

std::vector<std::string> contradictions(const PartitionPolicy& policy) {
  std::vector<std::string> found;
  if (policy.has_max_time_ms() && policy.has_default_time_ms() && policy.default_time_ms() > policy.max_time_ms()) {
    found.push_back("default_time \"" + base::print_duration_ms(policy.default_time_ms()) +
                    "\": want at most max_time, " + base::print_duration_ms(policy.max_time_ms()));
  }
  if (policy.has_max_nodes() && policy.has_max_ranks() && policy.max_ranks() < policy.max_nodes()) {
    found.push_back("max_nodes \"" + std::to_string(policy.max_nodes()) + "\": want at most max_ranks, " +
                    std::to_string(policy.max_ranks()) + ": a node has at least one rank");
  }
  return found;
}

PartitionFile parse_partition_file(std::string_view text, const std::string& name) {
  if (text.size() > kMostPartitionFileBytes)
    return {{}, {name + ":1:1: larger than 1 MiB; this is no partitions file"}};
  return Reader(name).read(text);
}

}  // namespace jobfile
