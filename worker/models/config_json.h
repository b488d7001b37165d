#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fsdp/text/json.h"
#include "spec/table.h"

// Functions that the families' readers of config.json share. All of them throw std::invalid_argument with a text such
// as "config.json has hidden_act = \"gelu\", and this model has \"silu\" only; choose another model".
namespace worker {

/// The file that describes a Hugging Face model.
inline constexpr const char* kModelConfigFile = "config.json";
/// The file beside it that says how its texts end, and how transformers draws them.
inline constexpr const char* kGenerationConfigFile = "generation_config.json";
/// Where a checkpoint's extra.model has the content of that file.
inline constexpr const char* kGenerationOfExtra = "generation_config";
/// The most bytes that such a file may have.
inline constexpr std::uintmax_t kMostConfigBytes = 1 << 20;

/// A member that is neither absent nor null, or null.
const fsdp::Json* given(const fsdp::Json& object, std::string_view name);

/// A member of a member, and so on: {"model", "config"}. Null where one of them is absent or null.
const fsdp::Json* given(const fsdp::Json& object, std::initializer_list<std::string_view> path);

/// Numbers compare as numbers: 2 and 2.0 are equal.
bool equal_members(const fsdp::Json& one, const fsdp::Json& other);

/// A given member must be equal to `wanted`, the only value that the model has, as equal_members() compares.
void want_member(const fsdp::Json& config, std::string_view name, const fsdp::Json& wanted);

/// A member that is an object, or null where it is absent. Throws for another type.
const fsdp::Json* given_object(const fsdp::Json& config, std::string_view name);

/// The members of an object in config.json must be among `known`. `where` names the object in errors.
void want_known_members(const fsdp::Json& object, const std::string& where, std::span<const std::string_view> known);

/// config.json must be an object with this model_type and, where it names one, one of these architectures.
void want_family(const fsdp::Json& config, std::string_view model_type,
                 std::span<const std::string_view> architectures);

/// The value of a row from JSON. `where` names the member in errors: "config.json's rope_scaling.factor". Refuses
/// another kind, and what the row does not allow.
spec::Value value_of_member(const spec::Key& key, const fsdp::Json& json, std::string_view where);
/// Sets a row of the table to that.
void set_row(spec::Values& values, const spec::Table& table, std::string_view row, const fsdp::Json& json,
             std::string_view where);

/// The rows of a table "model.*" whose last names are members of config.json. Paths are left out: they are ours.
spec::Values values_of_config(const spec::Table& table, const fsdp::Json& config);

/// Sets a value that is absent: what transformers takes where the file says nothing.
void set_absent(spec::Values& values, std::string_view name, spec::Value value);
void set_absent(spec::Values& values, std::initializer_list<std::pair<std::string_view, spec::Value>> usual);

/// Writes a value as a member, unless the member is equal already: 1e-05 stays as the file spells it.
void write_member(fsdp::Json& config, std::string_view name, const spec::Value& value);

/// Writes the values of the family's rows under their last names, but for these rows and model.pretrained.
void write_members(fsdp::Json& config, const spec::Values& values, const spec::Table& family,
                   std::initializer_list<std::string_view> but_for = {});

/// Writes null for tokens that the file lacks: transformers would take ids of its own tokenizer for them.
void write_absent_ids(fsdp::Json& config, std::initializer_list<const char*> tokens);

/// Writes a number as a whole one if it is one: 4 and not 4.0, which transformers 5 refuses where it wants a whole
/// number.
void write_whole(fsdp::Json& config, std::string_view name, double value);

/// Sets the dtype of the weights, under the names that the file has for it: "dtype", or "torch_dtype" (transformers 4).
void write_dtype(fsdp::Json& config, at::ScalarType dtype);

}  // namespace worker
