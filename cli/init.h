#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// The job file of this name that `muster init` writes: "chess", or a recipe such as "causal_lm", which stands for its
/// first one. Empty: there is none. `full`: the one of full size.
std::string_view starter(std::string_view name, bool full);

/// The names that starter() knows, recipes left out.
std::vector<std::string> starters(bool full);

}  // namespace cli
