#include "worker/models/causal_model.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "worker/models/head_loss.h"
#include "worker/models/ops.h"

namespace worker {

Mask mask_of(const Rows& rows, const Cache* cache) {
  if (cache != nullptr) return continued_mask(cache->front().length, rows.ids.size(1), rows.ids.device());
  if (rows.documents) return {.bias = {}, .causal = false, .documents = rows.documents};
  return causal_mask();
}

DecoderContext context_of(const char* family, const Rows& rows, const Cache* cache, std::int64_t most,
                          const RopeOptions& rope, at::ScalarType dtype) {
  const at::Tensor& ids = rows.ids;
  const std::int64_t begin = cache == nullptr ? 0 : cache->front().length;
  TORCH_CHECK(ids.dim() == 2 && begin + ids.size(1) <= most, family, ": got token ids of shape ", ids.sizes(),
              begin > 0 ? " after cached ones" : "",
              "; want [batch, positions] with at most max_position_embeddings = ", most, " positions");
  return {rows.positions.defined() ? rope_table(rows.positions, rope, dtype)
                                   : rope_table(begin, ids.size(1), rope, dtype, ids.device()),
          mask_of(rows, cache)};
}

template <class Use>
at::Tensor CausalModel::at_head(at::Tensor x, Use use) const {
  const OuterPart* part = last_part();
  return call(part == nullptr ? call_directly : part->wrapper, std::move(x),
              [this, use = std::move(use)](const at::Tensor& in) { return use(final_norm(in)); });
}

// Documents and positions are captured, because they need no gradient.
template <class Use>
at::Tensor CausalModel::through(const Rows& rows, Use use) const {
  return call(
      wrapper, rows.ids,
      [this, documents = rows.documents, positions = rows.positions, use = std::move(use)](const at::Tensor& ids) {
        return at_head(hidden({ids, documents, positions}, nullptr), use);
      });
}

at::Tensor CausalModel::forward(const Rows& rows) const {
  return through(rows, [this](const at::Tensor& hidden) {
    const Factors factors = head(hidden);
    return worker::linear(factors.x, factors.weight);
  });
}

at::Tensor CausalModel::hidden_states(const Rows& rows) const {
  return through(rows, [](at::Tensor hidden) { return hidden; });
}

at::Tensor CausalModel::loss(const Rows& rows, const at::Tensor& targets) const {
  return through(rows, [this, targets](const at::Tensor& hidden) {
    const Factors factors = head(hidden);
    return linear_cross_entropy(factors.x, factors.weight, targets);
  });
}

at::Tensor CausalModel::next(const at::Tensor& ids, Cache& cache) const {
  TORCH_CHECK(!at::GradMode::is_enabled(), "next: gradients are recorded; call it under at::NoGradGuard");
  TORCH_CHECK(cache.size() == blocks().size(), "next: the cache has ", cache.size(), " layers and the model ",
              blocks().size(), "; make it by this model's cache()");
  return call(wrapper, ids, [this, &cache](const at::Tensor& in) {
    return at_head(hidden(in, &cache).narrow(1, in.size(1) - 1, 1), [this](const at::Tensor& hidden) {
      const Factors last = head(hidden);
      return worker::linear(last.x, last.weight).squeeze(1);
    });
  });
}

}  // namespace worker
