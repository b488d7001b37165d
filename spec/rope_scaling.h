#pragma once

namespace spec {

/// How the angles of rotary position embedding (Su et al., arXiv 2104.09864) grow with the position. Texts longer than
/// those that a model was first trained on need them scaled.
enum class RopeScaling {
  kDefault,  ///< theta^(-2i / dim) a position for pair i
  kLinear,   ///< the same divided by a factor: position interpolation (Chen et al., arXiv 2306.15595)
  kLlama3    ///< pairs with long wavelengths are divided by the factor, those with short ones stay, with a ramp between
};

}  // namespace spec
