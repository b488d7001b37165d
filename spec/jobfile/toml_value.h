#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>

#include "spec/jobfile/job_keys.h"

namespace jobfile {

/// Converts a TOML value to the key's kind; nullopt: it has another type. Does not check the range.
std::optional<Value> value_of(const Key& field, const toml::node& node);

/// A value for messages: a text has no quotes, and a value longer than about 120 bytes is cut. Control characters
/// become spaces. A byte that is not valid UTF-8 becomes "\xE8".
std::string shown(const toml::node& node);
std::string shown(std::string_view text);

/// The text as a TOML string, with quotes.
std::string toml_text(const std::string& text);

/// Explains a syntax error with a remedy. Errors of the parser that are not known here keep the parser's words.
std::string syntax_problem(std::string_view description);

/// Inserts a value from the command line into `table`. If it is not a TOML value, it is a text.
void insert_text(toml::table& table, std::string_view key, const Key* field, const std::string& text);

}  // namespace jobfile
