#pragma once

#include <memory>
#include <string_view>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that the run names. `config` must outlive it. Throws base::UsageError listing the existing recipes, and
/// as the recipe's constructor.
std::unique_ptr<Recipe> make_recipe(const RunConfig& config);

/// The recipe that trains a decoder to predict the next token of real text.
std::unique_ptr<Recipe> make_causal_lm(const RunConfig& config);
/// The recipe that trains an encoder to sort texts into classes.
std::unique_ptr<Recipe> make_classify(const RunConfig& config);
/// The recipe that trains a vision transformer without labels, by self-distillation (Oquab et al., DINOv2, arXiv
/// 2304.07193): a student learns to say of crops of an image what a teacher says of others, and the teacher is the
/// average of the student's past.
std::unique_ptr<Recipe> make_dino(const RunConfig& config);
/// The recipe that trains an encoder to predict masked tokens (Devlin et al., BERT, arXiv 1810.04805).
std::unique_ptr<Recipe> make_masked_lm(const RunConfig& config);
/// The recipe that trains an encoder-decoder on pairs of texts, or to fill in spans that were cut out of texts (Raffel
/// et al., T5, arXiv 1910.10683).
std::unique_ptr<Recipe> make_seq2seq(const RunConfig& config);

/// Makes the recipe of one kind. The run must outlive it.
using RecipeMaker = std::unique_ptr<Recipe> (*)(const RunConfig& run);

/// Registers the maker of another kind of recipe for as long as this object lives. For tests that add a recipe. Not
/// thread-safe.
class ScratchMaker {
 public:
  /// `kind` must outlive the object, and no recipe may have it.
  ScratchMaker(std::string_view kind, RecipeMaker maker);
  ~ScratchMaker();
  ScratchMaker(const ScratchMaker&) = delete;
  ScratchMaker& operator=(const ScratchMaker&) = delete;

 private:
  const std::string_view kind_;
};

}  // namespace worker
