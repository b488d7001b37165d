#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace schema {

/// The name that `wrong` was most likely meant to be; empty if none is near (about one letter in three wrong).
std::string nearest(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace schema
