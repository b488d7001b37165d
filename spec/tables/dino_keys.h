#pragma once

#include <cstdint>
#include <optional>

#include "spec/table.h"
#include "spec/tables/sharding_keys.h"
#include "spec/tables/training_keys.h"

namespace spec {

enum class Centering { kCentering, kSinkhornKnopp };

/// The settings of self-distillation alone: crops, heads, losses, schedules. Names are DINOv2's where it has one.
struct Dino {
  std::int64_t global_crops_size = 0, local_crops_size = 0, local_crops = 0;  // pixels, pixels, count
  double global_scale_low = 0, global_scale_high = 0, local_scale_low = 0, local_scale_high = 0;
  std::int64_t prototypes = 0, head_hidden_size = 0, head_bottleneck_size = 0, head_layers = 0;
  double dino_weight = 0, ibot_weight = 0, koleo_weight = 0;
  bool ibot_separate_head = false;
  double mask_probability = 0, mask_share_low = 0, mask_share_high = 0;
  Centering centering = Centering::kCentering;
  double student_temperature = 0, teacher_temperature = 0, first_teacher_temperature = 0;
  double temperature_warmup_epochs = 0;
  double teacher_momentum = 0, final_teacher_momentum = 0, center_momentum = 0;
  double freeze_last_layer_epochs = 0, patch_embed_rate = 0;
  std::int64_t knn_neighbours = 0, knn_samples = 0;
  std::optional<Precision> teacher_precision;       // none: train.precision
  std::optional<Precision> heads_precision;         // none: that of the backbone
  std::optional<Precision> heads_reduce_precision;  // none: fsdp.reduce_precision
  std::optional<Strategy> teacher_strategy;         // none: fsdp.strategy; never kShardGradOp
  std::optional<Strategy> heads_strategy;           // none: fsdp.strategy
};

const Table& dino();  // the rows of Dino

}  // namespace spec
