#pragma once

#include <array>
#include <string_view>

namespace spec {

/// The commands of muster-infer, as bits.
inline constexpr unsigned kGenerates = 1, kEmbeds = 2, kClassifies = 4, kAllCommands = 7;

/// An option of muster-infer. `muster` has the same ones.
struct InferFlag {
  std::string_view name;
  std::string_view value;  // what it takes; empty: nothing
  unsigned commands;       // that have it
  std::string_view meaning;
};

inline constexpr auto kInferFlags = std::to_array<InferFlag>({
    {"--step", "N", kAllCommands, "Of a training: the checkpoint of this step, not the newest one"},
    {"--best", "", kAllCommands, "Of a training: the checkpoint that checkpoint.best has kept"},
    {"--part", "NAME", kAllCommands, "Of a checkpoint with several parts (default: model; teacher of dino)"},
    {"--run-file", "FILE", kAllCommands, "The training's run file, for a checkpoint that does not describe its model"},
    {"--tokenizer", "PATH", kAllCommands, "Folder or file of a tokenizer, or bytes (default: the model's own)"},
    {"--dtype", "TYPE", kAllCommands, "fp32, bf16 or fp16: what weights are kept and multiplied in (default: fp32)"},
    {"--device", "NAME", kAllCommands, "cpu, cuda or cuda:N (default: the first GPU, or else the CPU)"},
    {"--file", "FILE", kAllCommands,
     "A text, or the path of an image, in each line of this file; - is standard input; also -f"},
    {"--whole", "", kAllCommands, "The file or standard input is one text"},
    {"--batch", "N", kAllCommands, "How many texts or images at a time (default: 8)"},
    {"--json", "", kAllCommands, "Print an object a line"},
    {"--max-new-tokens", "N", kGenerates, "The most tokens of a text (default: 128)"},
    {"--temperature", "T", kGenerates,
     "0: the most likely token; above: drawn, the more evenly the higher (default: 0)"},
    {"--top-p", "P", kGenerates, "Draw among the most likely tokens of this much probability (default: 1)"},
    {"--seed", "N", kGenerates, "Of the draws (default: 0)"},
    {"--pool", "WHICH", kEmbeds,
     "cls: the first token; mean: of all tokens or patches; last: the last token (default: cls; mean for a decoder)"},
    {"--to", "FILE", kEmbeds, "Write the vectors as \"embeddings\" into a new safetensors file"},
    {"--top", "N", kClassifies, "How many labels (default: 3)"},
});

}  // namespace spec
