#pragma once

#include <string>
#include <string_view>

#include "slurm/batch_script.h"

namespace slurm {

/// Options whose value is a text: the name in an #SBATCH line, and the member that holds the value.
template <class T>
struct TextOption {
  const char* name;
  std::string T::*value;
};
inline constexpr TextOption<Resources> kResourceTexts[] = {
    {"gpus", &Resources::gpus},
    {"gpus-per-node", &Resources::gpus_per_node},
    {"gpus-per-task", &Resources::gpus_per_task},
    {"gres", &Resources::gres},
    {"mem", &Resources::mem},
    {"mem-per-cpu", &Resources::mem_per_cpu},
    {"mem-per-gpu", &Resources::mem_per_gpu},
    {"constraint", &Resources::constraint},
    {"licenses", &Resources::licenses},
};
inline constexpr TextOption<Terms> kTermTexts[] = {
    {"partition", &Terms::partition},     {"account", &Terms::account},       {"qos", &Terms::qos},
    {"reservation", &Terms::reservation}, {"wckey", &Terms::wckey},           {"begin", &Terms::begin},
    {"deadline", &Terms::deadline},       {"dependency", &Terms::dependency}, {"mail-type", &Terms::mail_type},
    {"mail-user", &Terms::mail_user},
};

/// Whether the text has a character below the space, or DEL. An #SBATCH line cannot contain those.
bool has_control(std::string_view text);

/// The text with each control character replaced by a space.
std::string on_one_line(std::string text);

/// Quotes a value of an #SBATCH line by sbatch's own rules, which differ from a shell's: a backslash protects any
/// character, even inside quotes.
std::string sbatch_quote(const std::string& value);

/// "--mail_type" -> "mail-type". Empty if the text is no option's name.
std::string option_name(std::string name);

/// Whether the name consists of letters, digits and _ and does not start with a digit.
bool is_environment_name(const std::string& name);

/// Whether no pattern of Slurm can express this literal path. The script then opens the file itself.
bool needs_redirection(const LogFile& log);

/// The path as a Slurm pattern. In a literal path each % is doubled, and %a replaces the index mark.
std::string log_pattern(const LogFile& log, const std::string& index_mark);

/// The word quoted for bash, with each index mark replaced by the array's task id.
std::string words_with_index(const std::string& word, const std::string& index_mark);

}  // namespace slurm
