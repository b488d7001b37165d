#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdp/text/json.h"
#include "spec/table.h"

namespace worker {

/// Throws std::invalid_argument for a size below 1. Names are those of rows, without "model.".
void check_sizes(std::initializer_list<std::pair<const char*, std::int64_t>> sizes);

/// Throws std::invalid_argument that tells the first contradiction.
void check_no_conflict(const std::vector<spec::Conflict>& conflicts);

// [Note: members of configuration files] A member that nobody reads may change what the model computes, and then the
// result is wrong in silence. So every member of config.json is one of three: read, without effect here, or refused by
// its name and value. The lists of a family are in its _hf.cpp, and those of all families in config_members.cpp. A
// member that no list has is refused. docs/model-files.md has the other files.

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

// generation_config.json, and the same members where an old config.json has them.

/// True if transformers has a member of this name for generation.
bool is_of_generation(std::string_view member);

/// Throws std::invalid_argument naming file, member, value and remedy for a member that would choose other tokens than
/// `muster generate` does, such as a repetition_penalty of 1.1. How tokens are searched and drawn is said by the
/// options of `muster generate`, so members such as temperature and num_beams have no effect. `file`: the name for
/// messages. `is_whole`: the file has no other members than those of generation; others are refused then.
void check_generation(const fsdp::Json& generation, std::string_view file, bool is_whole);

// [Note: rope in config.json] transformers 4 reads `rope_scaling`, and beside it the base and the rotated share under
// names of their own, such as `rope_theta`. transformers 5 reads `rope_scaling` if it holds anything, else
// `rope_parameters`; of these objects it takes base and share too, and what they lack from beside them. A file in which
// these places differ is not the same model everywhere, so it is refused. What only `rope_parameters` says is read: a
// transformers 5 has written it.

/// A number that a file may have in three places.
struct RopeNumber {
  std::string_view row;     ///< "model.rope_theta"
  std::string_view member;  ///< of the objects: "rope_theta"
  std::string_view alone;   ///< of config.json itself: "rope_theta", "rotary_emb_base"
  double usual = 0;         ///< where no place has it
};

/// The objects that say how positions are rotated. Null: absent or empty.
struct RopeObjects {
  const fsdp::Json* scaling = nullptr;     ///< `rope_scaling`
  const fsdp::Json* parameters = nullptr;  ///< `rope_parameters`
};

/// Throws std::invalid_argument naming a member that is no object, and a type or a number in an object that is null.
RopeObjects rope_objects(const fsdp::Json& config);

/// "default" where the object has neither rope_type nor type. `where` names the object in errors. Throws
/// std::invalid_argument where the two differ.
std::string rope_type_of(const fsdp::Json& object, const std::string& where);

/// Sets the row from the places that have the number. Throws std::invalid_argument naming the places and their values
/// where they differ.
void read_rope_number(const fsdp::Json& config, const spec::Table& table, const RopeNumber& number,
                      spec::Values& values);

/// The error for two objects that differ.
[[noreturn]] void refuse_two_ropes(const RopeObjects& objects);

}  // namespace worker
