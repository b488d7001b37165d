#include "worker/recipes/registry.h"

#include <map>
#include <string>

#include "base/usage_error.h"

namespace worker {
namespace {

/// The registration of a recipe is one line here and one row in spec/recipes.cpp.
std::map<std::string_view, RecipeMaker>& makers() {
  static std::map<std::string_view, RecipeMaker> all = {
      {"causal_lm", make_causal_lm}, {"classify", make_classify}, {"dino", make_dino},
      {"masked_lm", make_masked_lm}, {"seq2seq", make_seq2seq},
  };
  return all;
}

}  // namespace

std::unique_ptr<Recipe> make_recipe(const RunConfig& config) {
  const auto found = makers().find(config.recipe);
  if (found != makers().end()) return found->second(config);
  std::string list;
  for (const auto& [name, maker] : makers()) list += (list.empty() ? "" : ", ") + std::string(name);
  throw base::UsageError("recipe = \"" + config.recipe + "\": there is no such recipe; want one of: " + list);
}

ScratchMaker::ScratchMaker(std::string_view kind, RecipeMaker maker) : kind_(kind) {
  makers().emplace(kind, maker);
}

ScratchMaker::~ScratchMaker() {
  makers().erase(kind_);
}

}  // namespace worker
