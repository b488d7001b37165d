#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jobfile {

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
/// The keys whose last part is this word.
std::vector<std::string> keys_ending_in(std::string_view word, const std::vector<std::string>& keys);
/// "several keys end in this name; want one of a.x, b.x"
std::string several_keys(const std::vector<std::string>& keys);
/// Every key that --set takes, except keys of open tables.
std::vector<std::string> settable_keys();
/// True for a table in which people choose the names of keys: [env], [slurm.options].
bool is_open_table(std::string_view path);

}  // namespace jobfile
