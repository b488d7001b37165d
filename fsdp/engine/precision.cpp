#include "fsdp/engine/precision.h"

#include <cmath>

namespace fsdp {

DivideFactors divide_factors(at::ScalarType reduce_dtype, int ranks, std::optional<double> total) {
  const double factor = total.value_or(ranks);
  DivideFactors out{1, factor};
  if (reduce_dtype != at::kHalf) return out;
  while (std::fmod(factor, out.before) == 0 && factor / out.before > out.before) out.before *= 2;
  out.after = factor / out.before;
  return out;
}

}  // namespace fsdp
