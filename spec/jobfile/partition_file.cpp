#include "spec/jobfile/partition_file.h"

#include <algorithm>

#include "spec/jobfile/partition_keys.h"
#include "spec/jobfile/spec.h"
#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

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

PartitionFile parse_partition_file(std::string_view text, const std::string& name) {
  if (text.size() > kMostPartitionFileBytes)
    return {{}, {name + ":1:1: larger than 1 MiB; this is no partitions file"}};
  return Reader(name).read(text);
}

}  // namespace jobfile
