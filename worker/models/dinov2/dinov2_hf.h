#pragma once

#include "worker/models/family.h"

namespace worker {

/// DINOv2 as transformers stores it: Dinov2Model, or Dinov2WithRegistersModel where model.num_register_tokens is above
/// 0. Files of transformers' models with a classifier, and of its backbones, are read as these.
const Family& dinov2_family();

/// The file with which transformers prepares images for a model.
inline constexpr const char* kPreprocessorFile = "preprocessor_config.json";

/// A kPreprocessorFile for images as training sees them: the shorter side is made 256/224 of model.image_size, the
/// middle is cut out, and ImageNet's mean and deviation are taken away.
fsdp::Json dinov2_preprocessor(const spec::Values& values);

}  // namespace worker
