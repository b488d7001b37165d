#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace base {

/// Why one file is a save that was cut off, beginning with the file's name; empty: nothing shows that. What shows it is
/// listed at why_torn() in base/torn_save.h. Reads the file's head, which of .safetensors may be long, and its last 64
/// KiB.
std::string why_file_is_torn(const std::filesystem::path& path);

/// Why the file, or the folder with all below it, is a save that was cut off. Empty: nothing shows that.
///
/// The signs of a torn file:
/// - a zip archive without its end: torch.save, .npz, .keras
/// - a .safetensors file shorter than its header says
/// - a pickle without its STOP: .pkl, .joblib, and .pt of pickle.dump
/// - a file for weights that is empty
/// And of several files:
/// - a part that is missing: "model-00001-of-00003.safetensors", but not "step100-of-4000.pt"; see number_of()
/// - a folder with .distcp files (torch.distributed.checkpoint) without .metadata, which is written last
/// - one with an optimizer of the Trainer of transformers without trainer_state.json, which is written last
/// - no byte in any of them
///
/// Reads the head and the end of each file. At most `most` files are looked at; what is beyond them is taken for whole.
std::string why_torn(const std::string& path, std::size_t most = 5'000);

/// Why the save that consists of these files, by paths below `root`, was cut off. Empty: nothing shows that.
std::string why_torn(const std::filesystem::path& root, const std::vector<std::string>& files,
                     std::size_t most = 5'000);

}  // namespace base
