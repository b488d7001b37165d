#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slurm {

/// An option of sbatch or srun, as somebody wrote it.
struct WrittenOption {
  std::string name{};                  // the long name without dashes: "time", also for -t
  std::optional<std::string> value{};  // none: a flag
  std::string typed{};                 // "--time 90x", "-t90x"

  bool operator==(const WrittenOption&) const = default;
};

/// Words of a command line, read as sbatch or srun reads them.
struct OptionWords {
  std::vector<WrittenOption> options{};
  std::vector<std::string> others{};    // sbatch: words that are no options. srun: the program and its arguments
  std::vector<std::string> problems{};  // "--time: want a value"

  bool operator==(const OptionWords&) const = default;
};

enum class Reader { kSbatch, kSrun };

/// Reads long options with "=" or a word for their value, abbreviated ones, and short ones alone or in a row. srun's
/// options end at the first word that is none. An unknown option is taken as it is written, without its dashes. Pure.
OptionWords read_option_words(const std::vector<std::string>& words, Reader reader);

/// An #SBATCH line's words, or why there are none.
struct LineWords {
  std::vector<std::string> words{};
  std::string problem{};
};
/// Splits what follows "#SBATCH" as sbatch does: quotes keep spaces, a backslash protects any character but a space
/// outside of quotes, and # begins a comment anywhere. Pure.
LineWords words_of_line(std::string_view line);

}  // namespace slurm
