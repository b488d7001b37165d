#pragma once

#include <cstddef>
#include <string>

namespace os {

/// Why the file, or the folder with all below it, is a save that was cut off. Empty: nothing shows that.
///
/// What shows it: a zip archive without its end (torch.save, .npz, .keras), a .safetensors file shorter than its header
/// says, a part of "name-00001-of-00003" that is missing, a folder with .distcp files (torch.distributed.checkpoint)
/// without the file .metadata, and a folder of the Trainer of transformers with an optimizer and without
/// trainer_state.json. The writers write those two last.
///
/// Reads a few KiB of each file. At most `most` files are looked at; what is beyond them is taken for whole.
std::string why_torn(const std::string& path, std::size_t most = 5'000);

}  // namespace os
