#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace infer {

/// The part of a checkpoint whose recipe has one model.
inline constexpr const char* kUsualPart = "model";

enum class Command { kGenerate, kEmbed, kClassify };

/// Settings that the command line asks for.
struct Options {
  Command command = Command::kGenerate;
  std::filesystem::path model{};
  // Choice in a folder of checkpoints: that step, the best one, or (neither) the newest.
  std::optional<std::int64_t> step{};
  bool best = false;
  std::string part = kUsualPart;     // of a checkpoint
  std::filesystem::path run_file{};  // of a checkpoint that does not describe its model; empty: look beside it
  std::string tokenizer{};           // empty: that of the model
  std::string dtype = "fp32";        // fp32, bf16 or fp16
  std::string device{};              // cpu, cuda, cuda:1; empty: the first GPU, or else the CPU

  std::vector<std::string> texts{};  // as arguments; "-" stands for standard input
  std::filesystem::path file{};      // of texts; empty: none
  bool whole = false;                // a file is one text, not one a line
  std::int64_t batch = 8;            // texts at a time
  bool json = false;

  // generate
  std::int64_t max_new_tokens = 128;
  double temperature = 0, top_p = 1;
  std::uint64_t seed = 0;
  // embed
  std::string pool{};          // cls, mean or last; empty: as the family has it
  std::filesystem::path to{};  // a safetensors file; empty: standard output
  // classify
  std::int64_t top = 3;

  bool help = false;
};

/// Reads the arguments behind the program's name. Throws base::UsageError naming the argument and what is wanted.
Options parse_options(std::span<const std::string> arguments);

/// The text of --help.
std::string help_text();

}  // namespace infer
