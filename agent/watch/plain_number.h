#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace agent::watch {

/// A number as people and programs print it: "2.31,", "1e-4", "85.2%", "+3", "1,234.5", "1_200", "1.2k", "350M",
/// "tensor(2.31,", "[0.5]", a minus of Unicode. NaN for the words that say so, and for infinity. nullopt: it is none.
/// "2,31" is none: a comma is the sign between thousands.
std::optional<double> plain_number(std::string_view text);

/// The same for a count: "1,200", "120/9000" and "12k" are 1200, 120 and 12000. "1,5" is none, and neither are "0,120"
/// and "12,34": a comma stands between groups of three.
std::optional<std::int64_t> plain_count(std::string_view text);

}  // namespace agent::watch
