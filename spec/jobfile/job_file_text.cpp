#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <array>
#include <vector>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

using google::protobuf::util::MessageDifferencer;
using muster::v1::JobSpec;

bool is_bare(const std::string& key) {
  const auto ok = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !key.empty() && std::ranges::all_of(key, ok);
}

std::string key_text(const std::string& key) {
  return is_bare(key) ? key : toml_text(key);
}

/// TOML wants a point or an exponent in a real number, and at least one digit before it. print() writes it so.
std::string value_text(const Key& field, const Value& value) {
  const bool bare = field.kind == Kind::kWhole || field.kind == Kind::kReal || field.kind == Kind::kFlag;
  return bare ? print(field, value) : toml_text(print(field, value));
}

/// A text of several lines, such as a script, stays readable where TOML can have it as it is.
std::string line_or_block(const std::string& text) {
  const auto is_control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
  };
  const bool fits = text.find('\n') != std::string::npos && text.find("'''") == std::string::npos &&
                    !text.ends_with('\'') && std::ranges::none_of(text, is_control);
  return fits ? "'''\n" + text + "'''" : toml_text(text);
}

std::string array_text(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "" : ", ") + line_or_block(text);
  return "[" + all + "]";
}

/// True for a budget that the partition would fill in if it were left out. The spec's budgets must be kept then.
bool may_be_the_partitions(const JobSpec& spec, const Key& field) {
  return field.name.starts_with("requeue.") && !slurm_text(spec, "partition").empty();
}

/// The spec without the values that fill_defaults() would derive from the others. Values are removed one after the
/// other, so that of two values that follow from each other one is kept.
JobSpec without_defaults(const JobSpec& spec) {
  auto reduced = spec;
  for (const auto& field : job_keys()) {
    if (!is_plain(field) || !get(reduced, field) || may_be_the_partitions(spec, field)) continue;
    auto without = reduced;
    clear(without, field);
    auto filled = without;
    fill_defaults(filled);
    if (MessageDifferencer::Equals(filled, spec)) reduced = std::move(without);
  }
  return reduced;
}

/// "key = value"; empty: the spec does not have the key.
std::string line_of(const JobSpec& spec, const Key& field) {
  const auto leaf = leaf_of(field.name) + " = ";
  if (field.kind == Kind::kWords || field.kind == Kind::kLines) {
    const auto texts = texts_of(spec, field);
    return texts.empty() ? "" : leaf + array_text(texts) + "\n";
  }
  const auto value = get(spec, field);
  return value ? leaf + value_text(field, *value) + "\n" : "";
}

std::string table_of_texts(const JobSpec& spec, const Key& field) {
  std::string text;
  for (const auto& [name, value] : sorted(texts_by_name(spec, field))) {
    const bool flag = field.kind == Kind::kOptions && value.empty();
    text += key_text(name) + " = " + (flag ? "true" : toml_text(value)) + "\n";
  }
  return text;
}

}  // namespace

std::string job_file_text(const JobSpec& given) {
  auto whole = given;
  fill_defaults(whole);
  const auto spec = without_defaults(whole);
  std::string top, tables, open;
  std::string last;
  for (const auto& field : job_keys()) {
    if (is_open_table(field.name)) {
      if (const auto text = table_of_texts(spec, field); !text.empty()) {
        open += "\n[" + std::string(field.name) + "]\n" + text;
      }
      continue;
    }
    const auto line = line_of(spec, field);
    if (line.empty()) continue;
    const auto table = table_of(field.name);
    if (table.empty()) {
      top += line;
      continue;
    }
    if (table != last) tables += "\n[" + table + "]\n";
    last = table;
    tables += line;
  }
  // Every key of the recipe has its default. The table says that the job trains a recipe.
  const auto has_table = [&](const std::string& name) {
    return tables.find("\n[" + name + "]\n") != std::string::npos;
  };
  if (spec.has_recipe() && std::ranges::none_of(std::array{"model", "data", "train", "fsdp"}, has_table)) {
    tables += "\n[train]\n";
  }
  return top + tables + open;
}

}  // namespace jobfile
