#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace base {

/// The name that `wrong` most likely stands for. Empty if no name is near: about one letter in three may be wrong.
std::string nearest(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace base
