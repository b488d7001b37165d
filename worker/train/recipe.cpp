#include "train/recipe.h"

#include <c10/util/Exception.h>

#include <map>
#include <string_view>

#include "rank/errors.h"
#include "train/causal_lm.h"

namespace worker {
namespace {

using Maker = std::unique_ptr<Recipe> (*)(const RunConfig&);

const std::map<std::string_view, Maker>& recipes() {
  static const std::map<std::string_view, Maker> all = {{"causal_lm", make_causal_lm}};
  return all;
}

}  // namespace

at::Tensor Recipe::loss_of(const std::vector<at::Tensor>& /*inputs*/) {
  TORCH_CHECK(false, "this recipe cannot tell its inputs; call loss()");
}

std::unique_ptr<Recipe> make_recipe(const RunConfig& config) {
  const auto found = recipes().find(config.recipe);
  if (found != recipes().end()) return found->second(config);
  std::string list;
  for (const auto& [name, maker] : recipes()) list += (list.empty() ? "" : ", ") + std::string(name);
  throw UsageError("recipe = \"" + config.recipe + "\": there is no such recipe; want one of: " + list);
}

}  // namespace worker
