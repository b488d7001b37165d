#pragma once

#include <string>
#include <string_view>

#include "slurm/batch_script.h"

namespace slurm {

/// Whether the text has a character below the space, or DEL. An #SBATCH line cannot contain those.
bool has_control(std::string_view text);

/// The text with each control character replaced by a space.
std::string on_one_line(std::string text);

/// Quotes a value of an #SBATCH line by sbatch's own rules, which differ from a shell's: a backslash protects any
/// character, even inside quotes.
std::string sbatch_quote(const std::string& value);

/// Whether the text can be the long name of an option: lower-case letters, digits and dashes.
bool is_option_name(std::string_view name);

/// Whether no pattern of Slurm can express this literal path. The script then opens the file itself.
bool needs_redirection(const LogFile& log);

/// The path as a Slurm pattern. In a literal path each % is doubled, and %a replaces the index mark.
std::string log_pattern(const LogFile& log, const std::string& index_mark);

/// The word quoted for bash, with each index mark replaced by the array's task id.
std::string words_with_index(const std::string& word, const std::string& index_mark);

}  // namespace slurm
