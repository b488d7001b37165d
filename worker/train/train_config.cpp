#include "worker/train/train_config.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "base/usage_error.h"
#include "base/words.h"
#include "fsdp/text/json.h"
#include "spec/recipes.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Key;
using spec::Kind;
using spec::Value;
using spec::Values;
using Tables = std::vector<const spec::Table*>;

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kMostFileBytes = 1 << 20;
constexpr std::size_t kLongestShown = 80;

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& remedy) {
  throw base::UsageError(key + " = " + value + ": " + remedy);
}

[[noreturn]] void refuse_unknown(const std::string& key, const Json& value, std::string_view leaf,
                                 const std::vector<std::string>& names) {
  const auto near = base::nearest(leaf, names);
  refuse(key, value.dump().substr(0, kLongestShown),
         "there is no such key" + (near.empty() ? std::string() : "; did you mean \"" + near + "\"?"));
}

const Json* member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<Value> value_of(const Key& key, const Json& json) {
  if (json.is_bool()) return spec::as_kind(key, json.as_bool());
  if (json.is_int()) return spec::as_kind(key, json.as_int());
  if (json.is_number()) return spec::as_kind(key, json.as_double());
  if (!json.is_string()) return std::nullopt;
  const bool may_be_text = key.kind != Kind::kReal && key.kind != Kind::kFlag;
  return may_be_text ? spec::parse(key, json.as_string()) : std::nullopt;
}

std::string leaf_of(std::string_view name) {
  return std::string(name.substr(name.find('.') + 1));
}

/// The names of the keys in a table of the file: "steps" in "train".
std::vector<std::string> keys_below(const Tables& tables, const std::string& parent) {
  std::vector<std::string> names;
  for (const auto* table : tables) {
    for (const auto& key : table->keys) {
      if (key.name.starts_with(parent + ".")) names.push_back(leaf_of(key.name));
    }
  }
  return names;
}

void read_table(const Json& file, const std::string& parent, const Tables& tables, Values& values) {
  const Json* object = member(file, parent);
  if (object == nullptr) return;
  if (!object->is_object()) refuse(parent, object->dump(), "want an object with named values");
  for (const auto& [leaf, json] : object->as_object()) {
    const auto name = parent + "." + leaf;
    if (json.is_null() || name == spec::family_key().name) continue;
    const auto* key = spec::find_key(tables, name);
    if (key == nullptr) refuse_unknown(name, json, leaf, keys_below(tables, parent));
    // An earlier version wrote "" for a path that was not given.
    if (key->kind == Kind::kPath && json.is_string() && json.as_string().empty()) continue;
    const auto value = value_of(*key, json);
    if (!value || !spec::allowed(*key, *value)) refuse(name, json.dump(), "want " + wanted(*key));
    values.set(name, *value);
  }
}

/// The text of a top-level key or of a choice, or its default when it is absent. Empty where it has no plain default.
std::string word_of(const Json* json, const Key& key, const std::string& name) {
  if (json == nullptr) return std::string(key.standard);
  const auto value = value_of(key, *json);
  if (!value || !spec::allowed(key, *value)) refuse(name, json->dump(), "want " + wanted(key));
  return std::get<std::string>(*value);
}

std::string shown(const Values& values, const Tables& tables, const std::string& name) {
  const auto* key = spec::find_key(tables, name);
  const auto* value = values.find(name);
  if (key == nullptr || value == nullptr) return "\"\"";
  const auto text = spec::print(*key, *value);
  return std::holds_alternative<std::string>(*value) ? "\"" + text + "\"" : text;
}

void check_top(const Json& file) {
  static const std::vector<std::string> kNames{"format", "name",  "recipe",     "model",
                                               "data",   "train", "checkpoint", "fsdp"};
  for (const auto& [name, json] : file.as_object()) {
    const bool known = std::find(kNames.begin(), kNames.end(), name) != kNames.end();
    if (!known) refuse_unknown(name, json, name, kNames);
  }
}

}  // namespace

RunConfig parse_run_config(std::string_view json) {
  Json file;
  try {
    file = Json::parse(json);
  } catch (const fsdp::JsonError& error) {
    throw base::UsageError(std::string("the run file is no JSON: ") + error.what());
  }
  if (!file.is_object()) throw base::UsageError("the run file holds no JSON object");
  for (const char* key : {"format", "name"}) {
    if (member(file, key) == nullptr) throw base::UsageError(std::string(key) + " is missing from the run file");
  }
  const Json& format = *member(file, "format");
  if (!format.is_int() || format.as_int() != kFormat) {
    refuse("format", format.dump(), "want " + std::to_string(kFormat));
  }
  check_top(file);

  RunConfig out;
  static constexpr Key kName{.name = "name", .kind = Kind::kText};
  out.name = word_of(member(file, "name"), kName, "name");
  out.recipe = word_of(member(file, "recipe"), spec::recipe_key(), "recipe");
  const Json* model = member(file, "model");
  if (model != nullptr && !model->is_object()) refuse("model", model->dump(), "want an object with named values");
  const Json* family = model == nullptr ? nullptr : member(*model, "family");
  out.family = family == nullptr ? std::string(spec::first_family(out.recipe))
                                 : word_of(family, spec::family_key(), "model.family");
  auto tables = spec::tables_of(out.recipe, out.family);
  if (tables.empty()) {
    refuse("model.family", "\"" + out.family + "\"",
           "the recipe " + out.recipe + " has no such family; want one of its own, such as \"" +
               std::string(spec::first_family(out.recipe)) + "\"");
  }
  tables.push_back(&spec::checkpoints());
  Values values;
  for (const char* parent : {"model", "data", "train", "checkpoint", "fsdp"}) {
    read_table(file, parent, tables, values);
  }
  spec::fill_defaults(values, tables, /*ranks=*/0);
  auto conflicts = spec::conflicts_of(values, tables, /*ranks=*/0);
  std::ranges::move(spec::conflicts_of_best(spec::series_of(out.recipe), values), std::back_inserter(conflicts));
  for (const auto& conflict : conflicts) {
    refuse(conflict.key, shown(values, tables, conflict.key),
           conflict.want + (conflict.remedy.empty() ? "" : "; " + conflict.remedy));
  }
  static_cast<spec::TextData&>(out.data) = spec::bind<spec::TextData>(spec::text_data(), values);
  out.data_options = spec::bind<spec::PreparedData>(spec::prepared_data(), values);
  out.train = spec::bind<spec::Training>(spec::training(), values);
  out.optimizer = spec::bind<spec::Optimizer>(spec::optimizer(), values);
  out.checkpoint = spec::bind<spec::Checkpoints>(spec::checkpoints(), values);
  if (out.checkpoint.folder.empty()) out.checkpoint.folder = "checkpoints";
  out.exports = spec::bind<spec::Exports>(spec::exports(), values);
  out.fsdp = spec::bind<spec::Sharding>(spec::sharding(), values);
  out.values = std::move(values);
  out.values.set(spec::recipe_key().name, out.recipe);
  out.values.set(spec::family_key().name, out.family);
  out.canonical = file.dump();
  return out;
}

RunConfig read_run_config(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostFileBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    throw base::UsageError("cannot read the run file " + file.native() +
                           "; give one with --run-file or MUSTER_RUN_FILE");
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostFileBytes) throw base::UsageError("the run file " + file.native() + " is larger than 1 MiB");
  try {
    return parse_run_config(text);
  } catch (const base::UsageError& error) {
    throw base::UsageError(file.native() + ": " + error.what());
  }
}

void set_steps(RunConfig& config, std::int64_t steps) {
  const Tables tables{&spec::training()};
  config.values.set("train.steps", std::max<std::int64_t>(steps, 1));
  // The batch stays as it is: split_batch() derives it for the ranks.
  spec::fill_defaults(config.values, tables, /*ranks=*/0);
  config.train = spec::bind<spec::Training>(spec::training(), config.values);
}

BatchSplit split_batch(const spec::Training& config, int world_size) {
  Values values;
  if (config.batch_size > 0) values.set("train.batch_size", config.batch_size);
  if (config.micro_batch_size > 0) values.set("train.micro_batch_size", config.micro_batch_size);
  const Tables tables{&spec::training()};
  const auto ranks = static_cast<std::uint64_t>(world_size);
  spec::fill_defaults(values, tables, ranks);
  for (const auto& conflict : spec::conflicts_of(values, tables, ranks)) {
    if (conflict.key != "train.batch_size") continue;
    refuse(conflict.key, shown(values, tables, conflict.key), conflict.want + "; " + conflict.remedy);
  }
  const auto batch = values.whole("train.batch_size"), micro = values.whole("train.micro_batch_size");
  return {batch, micro, batch / (micro * world_size)};
}

}  // namespace worker
