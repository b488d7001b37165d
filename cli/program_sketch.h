#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// A Python program or a shell script of a folder.
struct SourceText {
  std::string name;  // without its folder
  std::string text;
};

/// The folder's *.py, *.sh, *.slurm and *.sbatch files, in the order of their names. Files of its subfolders, files
/// above 1 MiB and files after the first kMostSources are left out. Throws std::filesystem::filesystem_error.
std::vector<SourceText> sources_in(const std::filesystem::path& folder);
inline constexpr std::size_t kMostSources = 1000;

/// The library whose training loop a program uses. kTorch: the program has its own loop.
enum class Library { kTorch, kTransformers, kLightning };

/// The program of a folder that most likely trains, and how people start it there.
struct TrainerFound {
  std::string file;
  Library library = Library::kTorch;
  bool hydra = false;                       // its settings are words of the command
  bool reports = false;                     // it imports muster
  std::string starter = {};                 // "torchrun", "accelerate", "srun" or "python"; empty: no script starts it
  std::string script = {};                  // the script that does
  unsigned processes = 1;                   // on a node
  bool asks_slurm = false;                  // the script has #SBATCH lines
  std::vector<std::string> launch = {};     // of accelerate: the words before the program
  std::vector<std::string> arguments = {};  // of the program
  std::vector<std::string> others = {};     // programs that might be meant instead
};

/// Looks at imports, names and the scripts' commands. nullopt: no program imports torch, transformers, lightning or
/// hydra. Pure.
std::optional<TrainerFound> find_trainer(const std::vector<SourceText>& sources);

/// A job file for the program, with comments: its command and launcher, ranks and GPUs, and the ways to report.
/// `file`: the job file's name, for its first lines. `has_gpus`: this machine has GPUs. Pure.
std::string job_file_of(const TrainerFound& found, const std::string& file, bool has_gpus);

}  // namespace cli
