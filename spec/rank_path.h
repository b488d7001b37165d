#pragma once

#include <functional>
#include <optional>
#include <string>

namespace spec {

/// A path of [report] after its variables, or what is wrong with it.
struct RankPath {
  std::string path;
  std::string problem;  // empty: nothing
};

/// Puts the values of a rank's variables in the place of $NAME and ${NAME}. A "$" without a name stays. `value_of`
/// returns nullopt for a variable that is not set, which is a problem.
RankPath expand_rank_path(const std::string& text,
                          const std::function<std::optional<std::string>(const std::string&)>& value_of);

}  // namespace spec
