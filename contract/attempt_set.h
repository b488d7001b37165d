#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace contract {

/// In the folder of a Slurm array: the attempt folders of its elements by index. musterd writes it. muster-task reads
/// it when an element starts, and musterd when it finds an array that it does not remember.
inline constexpr const char* kSetFile = "set.json";

std::string to_set_text(const std::vector<std::string>& attempt_folders);

/// What stands at each index; empty for what is no text. An empty list: the text is damaged.
std::vector<std::string> parse_set(std::string_view text);

/// The attempt folder of element `index`. Throws std::runtime_error that names the file and what is wrong.
std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index);

}  // namespace contract
