#pragma once

#include <string_view>

#include "fsdp/text/json.h"

// generation_config.json, and the same members where an old config.json has them; see [Note: members of configuration
// files] in config_members.h.
namespace worker {

/// True if transformers has a member of this name for generation.
bool is_of_generation(std::string_view member);

/// Throws std::invalid_argument naming file, member, value and remedy for a member that would choose other tokens than
/// `muster generate` does, such as a repetition_penalty of 1.1. How tokens are searched and drawn is said by the
/// options of `muster generate`, so members such as temperature and num_beams have no effect. `file`: the name for
/// messages. `is_whole`: the file has no other members than those of generation; others are refused then.
void check_generation(const fsdp::Json& generation, std::string_view file, bool is_whole);

}  // namespace worker
