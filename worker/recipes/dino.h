#pragma once

#include <memory>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that trains a vision transformer without labels, by self-distillation (Oquab et al., DINOv2, arXiv
/// 2304.07193): a student learns to say of crops of an image what a teacher says of others, and the teacher is the
/// average of the student's past.
std::unique_ptr<Recipe> make_dino(const RunConfig& config);

}  // namespace worker
