#include "worker/models/causal_model.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "worker/models/head_loss.h"
#include "worker/models/ops.h"

namespace worker {

Mask mask_of(const Rows& rows, const Cache* cache) {
  if (cache != nullptr) return continued_mask(cache->front().length, rows.ids.size(1), rows.ids.device());
  return rows.segments.defined() ? segment_mask(rows.segments) : causal_mask();
}

// Segments and positions are captured, because they need no gradient.

at::Tensor CausalModel::forward(const Rows& rows) const {
  return call(wrapper, rows.ids, [this, segments = rows.segments, positions = rows.positions](const at::Tensor& ids) {
    const Factors factors = head(hidden({ids, segments, positions}, nullptr));
    return worker::linear(factors.x, factors.weight);
  });
}

at::Tensor CausalModel::hidden_states(const Rows& rows) const {
  return call(wrapper, rows.ids, [this, segments = rows.segments, positions = rows.positions](const at::Tensor& ids) {
    return hidden({ids, segments, positions}, nullptr);
  });
}

at::Tensor CausalModel::loss(const Rows& rows, const at::Tensor& targets) const {
  return call(wrapper, rows.ids,
              [this, targets, segments = rows.segments, positions = rows.positions](const at::Tensor& ids) {
                const Factors factors = head(hidden({ids, segments, positions}, nullptr));
                return linear_cross_entropy(factors.x, factors.weight, targets);
              });
}

at::Tensor CausalModel::next(const at::Tensor& ids, Cache& cache) const {
  TORCH_CHECK(!at::GradMode::is_enabled(), "next: gradients are recorded; call it under at::NoGradGuard");
  TORCH_CHECK(cache.size() == blocks().size(), "next: the cache has ", cache.size(), " layers and the model ",
              blocks().size(), "; make it by this model's cache()");
  return call(wrapper, ids, [this, &cache](const at::Tensor& in) {
    const Factors last = head(hidden(in, &cache).narrow(1, in.size(1) - 1, 1));
    return worker::linear(last.x, last.weight).squeeze(1);
  });
}

}  // namespace worker
