#include "worker/models/layers/cache.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace worker {

void KeyValues::append(const at::Tensor& more_keys, const at::Tensor& more_values) {
  const std::int64_t count = more_keys.size(2);
  TORCH_CHECK(length + count <= keys.size(2), "append: the cache holds ", length, " of ", keys.size(2),
              " positions, and ", count, " more do not fit; make the cache with a larger capacity");
  keys.narrow(2, length, count).copy_(more_keys);
  values.narrow(2, length, count).copy_(more_values);
  length += count;
}

Cache empty_cache(std::int64_t layers, at::IntArrayRef shape, const at::TensorOptions& options) {
  Cache cache(static_cast<std::size_t>(layers));
  for (auto& layer : cache) layer = {at::empty(shape, options), at::empty(shape, options), 0};
  return cache;
}

}  // namespace worker
