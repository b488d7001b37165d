#pragma once

#include <span>
#include <string_view>

#include "fsdp/text/json.h"
#include "spec/table.h"

// [Note: members of configuration files] A member that nobody reads may change what the model computes, and then the
// result is wrong in silence. So every member of config.json is one of three: read, without effect here, or refused by
// its name and value. The lists of a family are in its hf.cpp, and those of all families in config_members.cpp. A
// member that no list has is refused. docs/model-files.md has the other files.
namespace worker {

/// A member that must have one value, because this program computes nothing else.
struct OnlyValue {
  std::string_view member;
  std::string_view json;  ///< the value as JSON: false, "silu" with its quotes, {}
};

/// The members of a family's config.json.
struct ConfigMembers {
  std::span<const std::string_view> read;       ///< read by the family, beside the rows of its table
  std::span<const OnlyValue> only;              ///< refused with another value
  std::span<const std::string_view> no_effect;  ///< change nothing that is computed here
  /// Members of `read` and `only`, and rows, for which null is the same as no member, in every version of transformers.
  /// Another one of them that is null is refused: transformers 4 takes it as false, and transformers 5 mostly refuses
  /// it. Null is false for a member that must be false or {}.
  std::span<const std::string_view> nullable = {};
};

/// Throws std::invalid_argument naming file, member, value and remedy for a member that the family does not have. Known
/// are the rows of `table` by the last part of their names, the lists of `members`, and those of all families. A member
/// without effect, or that nobody knows, may be null.
void check_config(const fsdp::Json& config, const spec::Table& table, const ConfigMembers& members);

/// A value as it stands in a message, at most some 60 bytes of it.
std::string shown_value(const fsdp::Json& value);

}  // namespace worker
