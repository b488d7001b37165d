#pragma once

#include <string>
#include <string_view>

#include "slurm/batch_script.h"

namespace slurm {

/// Whether there is a character below the space, or DEL: what an #SBATCH line can't carry.
bool has_control(std::string_view text);

/// Control characters become spaces.
std::string on_one_line(std::string text);

/// A value of an #SBATCH line. sbatch's own rules, not a shell's: a backslash protects any character, in quotes as
/// well.
std::string sbatch_quote(const std::string& value);

/// "--mail_type" -> "mail-type"; empty if that is no option's name.
std::string option_name(std::string name);

/// Letters, digits and _, no digit first.
bool is_environment_name(const std::string& name);

/// "USR2", "RTMIN+1".
bool is_signal_name(const std::string& name);

/// A literal path that no pattern of Slurm's can express: the script itself opens it.
bool needs_redirection(const LogFile& log);

/// The path as Slurm's pattern; in a literal one % is doubled, and %a stands where the index mark stood.
std::string log_pattern(const LogFile& log, const std::string& index_mark);

/// One word of bash in which each index mark became the array's task id.
std::string words_with_index(const std::string& word, const std::string& index_mark);

}  // namespace slurm
