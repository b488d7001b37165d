#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "fsdp/engine/layout.h"

namespace fsdp {

/// How Adam keeps its two averages ("moments") between steps. The arithmetic of a step is in fp32, and what a weight
/// gets is computed before the moments are rounded.
enum class Moments {
  /// 8 bytes an element. States "exp_avg" and "exp_avg_sq".
  kFp32,
  /// 4 bytes an element. States "exp_avg_bf16" and "exp_avg_sq_bf16". Rounded stochastically: a value goes up or down
  /// with the probabilities that give it on average. Rounding to nearest would lose every gradient that is smaller than
  /// 1/256 of its average. The random bits depend on seed, name and step count of the parameter, and on the element's
  /// place in the whole parameter alone. So a resumed run has the bits of one that went through, at any world size.
  kBf16,
  /// 2 bytes an element, and 8 for each block of kQuantisedBlock. A moment is a code of 8 bits times the largest
  /// absolute
  /// value of its block (Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861), as in
  /// bitsandbytes and torchao: the dynamic map with signs for the first moment, the one without for the second, rounded
  /// to nearest. Blocks are counted from the start of a parameter, so they are the same at any world size. That needs
  /// ShardOptions::alignment = kQuantisedBlock. A parameter of fewer than kLeastQuantised elements has its moments in
  /// fp32. States "exp_avg" and "exp_avg_sq" of such, and of others "exp_avg_codes", "exp_avg_scales",
  /// "exp_avg_sq_codes" and "exp_avg_sq_scales".
  kInt8,
};
inline constexpr std::int64_t kQuantisedBlock = 256, kLeastQuantised = 4096;

/// The states of Adam.
std::vector<StateSpec> states_of(Moments moments);
/// True if the parameter's moments are kept in fp32.
bool has_plain_moments(Moments moments, const ParameterInfo& parameter);

/// Numbers of one update of one parameter.
struct AdamStep {
  double grad_scale = 1;  // gradients are divided by it, in place
  double decay = 0;       // share of the weights that goes first
  double penalty = 0;     // times the weights, added to the gradients
  double beta1 = 0, beta2 = 0, eps = 0;
  double size = 0;  // the learning rate over the correction of the first moment
  double root = 1;  // of the correction of the second moment
};

/// A rank's slice of one parameter, 1-D, with its states as states_of(). States that the parameter does not have are
/// undefined.
struct SmallMoments {
  at::Tensor parameter, gradient;
  std::vector<at::Tensor> states;
  std::int64_t begin = 0;  // of the slice in the parameter
};

/// The key of the random bits of one update of one parameter.
std::uint64_t random_key(std::uint64_t seed, std::string_view parameter, std::uint64_t step);

/// Makes an Adam step on a slice whose moments are not in fp32: on the CPU in one pass over memory, elsewhere by
/// update_by_operations().
void update_moments(Moments moments, const SmallMoments& slice, const AdamStep& step, std::uint64_t key);
/// Makes the same step by LibTorch's operations on any device. Moments get the same bits; weights may differ by how a
/// square root is rounded. Pieces of up to 2^20 elements need 64 MiB for a moment.
void update_by_operations(Moments moments, const SmallMoments& slice, const AdamStep& step, std::uint64_t key);

}  // namespace fsdp
