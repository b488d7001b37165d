#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>

#include "jobfile/job_keys.h"

namespace jobfile {

/// A TOML value as a field's; nullopt if its type is not what the field takes. The range is not looked at.
std::optional<Value> value_of(const Key& field, const toml::node& node);

/// A value in short, for messages: texts without quotes, about 120 bytes at most, nothing that moves a terminal's
/// cursor, and bytes that are no UTF-8 as "\xE8".
std::string shown(const toml::node& node);
std::string shown(std::string_view text);

/// What is wrong with a text that is no TOML, and what to do: in our words where we know what the parser's mean.
std::string syntax_problem(std::string_view description);

/// Puts the text of a command-line value into `table` under `key`: as a TOML value, else as a text.
void insert_text(toml::table& table, std::string_view key, const Key* field, const std::string& text);

}  // namespace jobfile
