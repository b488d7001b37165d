#include "jobfile/key_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "jobfile/job_keys.h"
#include "schema/nearest.h"

namespace jobfile {

std::string leaf_of(std::string_view key) {
  return std::string(key.substr(key.rfind('.') + 1));
}

std::string table_of(std::string_view key) {
  const auto dot = key.rfind('.');
  return std::string(dot == std::string_view::npos ? std::string_view() : key.substr(0, dot));
}

bool is_table_name(std::string_view path) {
  const auto start = std::string(path) + ".";
  return path.find('.') == std::string_view::npos &&
         std::ranges::any_of(job_keys(), [&](const Key& f) { return f.name.starts_with(start); });
}

bool is_open_table(std::string_view path) {
  const auto* field = find_key(path);
  return field != nullptr && (field->kind == Kind::kVariables || field->kind == Kind::kOptions);
}

std::vector<std::string> keys_ending_in(std::string_view word, const std::vector<std::string>& keys) {
  std::vector<std::string> meant;
  for (const auto& key : keys) {
    if (word.find('.') == std::string_view::npos && leaf_of(key) == word) meant.push_back(key);
  }
  return meant;
}

std::string several_keys(const std::vector<std::string>& keys) {
  std::string list;
  for (const auto& key : keys) list += (list.empty() ? "" : ", ") + key;
  return "several keys end in this name; want one of " + list;
}

std::vector<std::string> settable_keys() {
  std::vector<std::string> keys;
  for (const auto& field : job_keys()) {
    if (field.name != "extends" && field.name != "sweep") keys.emplace_back(field.name);
  }
  return keys;
}

std::string did_you_mean(std::string_view path) {
  std::map<std::string, std::vector<std::string>> leaves;
  std::set<std::string> tables;
  for (const auto& field : job_keys()) {
    leaves[table_of(field.name)].push_back(leaf_of(field.name));
    if (!table_of(field.name).empty()) tables.insert(table_of(field.name));
  }
  const auto table = table_of(path), leaf = leaf_of(path);
  auto candidates = leaves[table];
  if (table.empty()) candidates.insert(candidates.end(), tables.begin(), tables.end());
  if (const auto near = schema::nearest(leaf, candidates); !near.empty())
    return table.empty() ? near : table + "." + near;
  if (const auto near = table.empty() ? "" : schema::nearest(table, {tables.begin(), tables.end()}); !near.empty()) {
    if (const auto key = schema::nearest(leaf, leaves[near]); !key.empty()) return near + "." + key;
  }
  for (const auto& [other, names] : leaves) {
    if (const auto near = schema::nearest(leaf, names); !near.empty()) return other.empty() ? near : other + "." + near;
  }
  return {};
}

std::string unknown_key(std::string_view path) {
  const auto near = did_you_mean(path);
  return near.empty() ? "unknown key; muster submit --help lists all" : "unknown key, did you mean " + near;
}

}  // namespace jobfile
