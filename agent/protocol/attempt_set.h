#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/protocol/task_launch.h"

namespace agent::protocol {

// The files of a Slurm array, in a folder of its own. musterd writes them when it submits the array, so a waiting
// element has no file of its own. `muster-task --prepare` makes an element's folders and files when the element starts.

/// The attempt folders of the elements by index. musterd also reads it, when it finds an array that it does not
/// remember.
inline constexpr const char* kSetFile = "set.json";
/// The launch files of the elements, mode 0600: what most of them share, and what is different in each.
inline constexpr const char* kSetLaunchFile = "set_launch.json";

std::string to_set_text(const std::vector<std::string>& attempt_folders);

/// What stands at each index; empty for what is no text. An empty list: the text is damaged.
std::vector<std::string> parse_set(std::string_view text);

/// The attempt folder of element `index`. Throws std::runtime_error that names the file and what is wrong.
std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index);

/// Throws nlohmann::json::exception when a text in it is not UTF-8.
std::string to_set_launch_text(const std::vector<TaskLaunch>& launches);

/// The launch file of element `index`. Throws std::runtime_error that names the file and what is wrong.
TaskLaunch launch_of_set(const std::filesystem::path& set_launch_file, std::size_t index);

/// Where an element of an array has its log, in the attempt's folder once the element has started.
struct ElementPlace {
  std::string set_folder;
  std::uint32_t index = 0;
  bool operator==(const ElementPlace&) const = default;
};
inline constexpr const char* kElementFile = "element.json";
std::string to_text(const ElementPlace& place);
/// nullopt: the text is no such file's.
std::optional<ElementPlace> parse_element(std::string_view text);

}  // namespace agent::protocol
