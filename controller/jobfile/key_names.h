#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jobfile {

/// "steps" of "train.steps".
std::string leaf_of(std::string_view key);
/// "train" of "train.steps"; empty at the top level.
std::string table_of(std::string_view key);
/// Some key begins with it and a dot.
bool is_table_name(std::string_view path);
/// A key of the same table that is spelt nearly so, or else of another table; empty if none is near.
std::string did_you_mean(std::string_view path);
/// "unknown key, did you mean train.steps"
std::string unknown_key(std::string_view path);
/// Those of `keys` whose last part is this word.
std::vector<std::string> keys_ending_in(std::string_view word, const std::vector<std::string>& keys);
/// "several keys end so; want one of a.x, b.x"
std::string several_keys(const std::vector<std::string>& keys);
/// Every key that --set takes, but for those below open tables.
std::vector<std::string> settable_keys();
/// Holds names that people choose: a key below it may be any.
bool is_open_table(std::string_view path);

}  // namespace jobfile
