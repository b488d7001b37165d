#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/job.pb.h"
#include "schema/key.h"

namespace jobfile {

using schema::Key;
using schema::Kind;
using schema::Value;

/// Every key of a job file, in the order of the help: the job's own and those of all recipes (schema/recipes.h). The
/// parser, the validation, the defaults and the help read these rows.
std::span<const Key> job_keys();
/// nullptr: there is no such key.
const Key* find_key(std::string_view name);
/// Of a training: model, data, train and fsdp tables. Such keys and `command` exclude each other.
bool is_recipe_key(const Key& key);
/// Has one value of its own, and a place in JobSpec: no array, no table, and not read by the parser alone.
bool is_plain(const Key& key);

/// Absent: the message does not have it, or has 0 or "" where the field cannot tell.
std::optional<Value> get(const muster::v1::JobSpec& spec, const Key& key);
/// The value must be of the key's kind and within its range.
void set(muster::v1::JobSpec& spec, const Key& key, const Value& value);
/// Adds a text to an array (kWords, kLines).
void add(muster::v1::JobSpec& spec, const Key& key, const std::string& text);
/// The texts of an array (kWords, kLines).
std::vector<std::string> texts_of(const muster::v1::JobSpec& spec, const Key& key);
/// The entries of a table (kVariables, kOptions) by name.
std::map<std::string, std::string> texts_by_name(const muster::v1::JobSpec& spec, const Key& key);
void set_text(muster::v1::JobSpec& spec, const Key& key, const std::string& name, const std::string& text);
/// As if the key had not been given.
void clear(muster::v1::JobSpec& spec, const Key& key);

/// The value of a recipe's whole-number key, such as "train.steps"; 0: it has none.
std::int64_t whole_of(const muster::v1::Recipe& recipe, const std::string& name);

/// Where a message keeps a key, "resources.time_limit_ms": the key's name, with the unit that a duration or a size has
/// there.
std::string path_of(const Key& key);

}  // namespace jobfile
