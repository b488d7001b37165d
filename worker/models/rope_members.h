#pragma once

#include <string>
#include <string_view>

#include "fsdp/text/json.h"
#include "spec/table.h"

// [Note: rope in config.json] transformers 4 reads `rope_scaling`, and beside it the base and the rotated share under
// names of their own, such as `rope_theta`. transformers 5 reads `rope_scaling` if it holds anything, else
// `rope_parameters`; of these objects it takes base and share too, and what they lack from beside them. A file in which
// these places differ is not the same model everywhere, so it is refused. What only `rope_parameters` says is read: a
// transformers 5 has written it.
namespace worker {

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
