#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/job.pb.h"
#include "spec/recipes.h"

namespace jobfile {

using spec::Key;
using spec::Kind;
using spec::Value;

/// Every key of a job file, in the order of the help: the keys of jobs, and the keys of all recipes (spec/recipes.h).
/// The parser, the validation, the defaults and the help come from these rows.
std::span<const Key> job_keys();
/// The keys with a field of their own in the job: those of any job, and for a recipe also the two that choose it.
std::span<const Key* const> plain_keys_of(const muster::v1::JobSpec& spec);
/// Those that are paths.
std::span<const Key* const> path_keys();
/// True for a table that has keys of recipes: "train".
bool is_recipe_table(std::string_view name);
/// The keys with a default that depends on no other key, without those of the tables of recipes.
struct Standard {
  const Key* key = nullptr;
  Value value;
  bool is_of_recipe = false;
};
std::span<const Standard> plain_standards();
/// Null: there is no such key.
const Key* find_key(std::string_view name);
/// True for keys of the tables model, data, train and fsdp. A job has either such keys or `command`.
bool is_recipe_key(const Key& key);
/// True for a key with one value that is stored in JobSpec. False for arrays and tables, and for keys that only the
/// parser reads.
bool is_plain(const Key& key);

// The names of keys.

/// "steps" of "train.steps".
std::string leaf_of(std::string_view key);
/// "train" of "train.steps"; empty at the top level.
std::string table_of(std::string_view key);
/// True if some key begins with this path and a dot.
bool is_table_name(std::string_view path);
/// A key with a similar name, in the same table or else in another one; empty: none is similar.
std::string did_you_mean(std::string_view path);
/// "unknown key, did you mean train.steps"
std::string unknown_key(std::string_view path);
/// Why an option may not set this key of a recipe for a job with a command, with the way that works.
std::string not_of_a_command(std::string_view key);
/// The keys whose last part is this word.
std::vector<std::string> keys_ending_in(std::string_view word, const std::vector<std::string>& keys);
/// "several keys end in this name; want one of a.x, b.x"
std::string several_keys(const std::vector<std::string>& keys);
/// Every key that --set takes, except keys of open tables.
std::vector<std::string> settable_keys();
/// True for a table in which people choose the names of keys: [env], [slurm.options], [report.log].
bool is_open_table(std::string_view path);

// The values of a message whose fields are named after keys: a JobSpec, or a PartitionPolicy. The keys of a recipe and
// the plain ones of [slurm] are entries of maps in JobSpec.

/// The key's value; nullopt: the message does not have it. A field without presence counts as absent if it is 0 or "".
std::optional<Value> get(const google::protobuf::Message& message, const Key& key);
std::optional<Value> get(const muster::v1::JobSpec& spec, const Key& key);
/// The value must have the key's kind and be in its range.
void set(google::protobuf::Message& message, const Key& key, const Value& value);
void set(muster::v1::JobSpec& spec, const Key& key, const Value& value);
/// Removes the key's value.
void clear(google::protobuf::Message& message, const Key& key);
void clear(muster::v1::JobSpec& spec, const Key& key);
/// Adds a text to an array (kWords, kLines).
void add(google::protobuf::Message& message, const Key& key, const std::string& text);
/// The texts of an array (kWords, kLines).
std::vector<std::string> texts_of(const google::protobuf::Message& message, const Key& key);
/// The entries of a table (kVariables, kOptions, kPatterns).
using Texts = google::protobuf::Map<std::string, std::string>;
const Texts& texts_by_name(const muster::v1::JobSpec& spec, const Key& key);
Texts& texts_by_name(muster::v1::JobSpec& spec, const Key& key);
/// A map of a message in the order of its keys.
template <typename Entry>
std::map<std::string, Entry> sorted(const google::protobuf::Map<std::string, Entry>& map) {
  return {map.begin(), map.end()};
}

/// The value of a plain key of [slurm] by its name without the table, such as "partition"; empty or 0: the job does not
/// have it.
std::string slurm_text(const muster::v1::JobSpec& spec, const std::string& name);
std::int64_t slurm_whole(const muster::v1::JobSpec& spec, const std::string& name);
/// Sets it; an empty text removes it.
void set_slurm_text(muster::v1::JobSpec& spec, const std::string& name, const std::string& text);

/// The GPUs of each rank; 0: none.
std::uint32_t gpus_of_rank(const muster::v1::JobSpec& spec);

/// The value of a recipe's key of kind kWhole, such as "train.steps"; 0: the recipe does not have it.
std::int64_t whole_of(const muster::v1::Recipe& recipe, const std::string& name);

/// The tables of keys that the recipe's kind and family use; empty: there is no such kind or family.
std::vector<const spec::Table*> tables_of(const muster::v1::Recipe& recipe);

/// The recipe's values whose keys are in these tables, converted to the keys' kinds. Values that do not fit are left
/// out; validate() reports them.
spec::Values values_of(const muster::v1::JobSpec& spec, const std::vector<const spec::Table*>& tables);

/// The path of the key's field in the message: the key's name, with the unit of a duration or a size
/// ("resources.time_limit_ms").
std::string path_of(const Key& key);

/// Adds rows for as long as this object lives. For tests: a new key of [slurm] is one row. One at a time; not
/// thread-safe.
class ScratchJobKeys {
 public:
  explicit ScratchJobKeys(std::span<const Key> keys);
  ~ScratchJobKeys();
  ScratchJobKeys(const ScratchJobKeys&) = delete;
  ScratchJobKeys& operator=(const ScratchJobKeys&) = delete;
};

}  // namespace jobfile
