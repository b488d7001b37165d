#include "worker/train/recipe.h"

#include "worker/train/evaluation.h"

namespace worker {

void Recipe::evaluate(Evaluation& evaluation) {
  evaluation.each([&](const Batch& batch, bool counts) {
    const double sum = loss(batch).sum.item<double>();
    if (counts) evaluation.add("validation/loss", sum, batch.weight);
  });
}

}  // namespace worker
