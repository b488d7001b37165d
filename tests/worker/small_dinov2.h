#pragma once

#include <ATen/ops/randn.h>

#include <cstdint>
#include <memory>
#include <string>

#include "fsdp/engine/initialize.h"
#include "worker/models/dinov2/dinov2_model.h"
#include "worker/models/dinov2/heads.h"
#include "worker/models/family.h"

namespace worker::testing {

/// The sizes of a DINOv2 that computes in milliseconds: images of 16 x 16 pixels in 16 patches, 2 layers of 2 heads.
inline spec::Dinov2 small_dinov2() {
  auto c = spec::standard<spec::Dinov2>(spec::dinov2());
  c.hidden_size = 16;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.image_size = 16;
  c.patch_size = 4;
  c.layerscale_value = 0.5;
  return c;
}

inline DinoHeadSizes small_head() {
  return {.hidden = 24, .bottleneck = 8, .prototypes = 20, .layers = 3};
}

/// A model with drawn values.
inline std::shared_ptr<Dinov2Model> drawn_dinov2(const spec::Dinov2& config) {
  spec::Values values;
  values.set("model.initializer_range", 0.2);
  values.set("model.layerscale_value", config.layerscale_value);
  auto model = std::make_shared<Dinov2Model>(config);
  fsdp::initialize(*model, 1, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
    dinov2_family().draw(values, name, into, random);
  });
  return model;
}

inline std::shared_ptr<SelfDistilled> drawn_self_distilled(const spec::Dinov2& config, bool separate_ibot_head,
                                                           std::uint64_t seed = 1) {
  spec::Values values;
  values.set("model.initializer_range", 0.2);
  values.set("model.layerscale_value", config.layerscale_value);
  auto model = std::make_shared<SelfDistilled>(config, small_head(), separate_ibot_head);
  fsdp::initialize(*model, seed, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
    if (is_of_dino_head(name)) return draw_dino_head(small_head(), name, into, random);
    dinov2_family().draw(values, name, into, random);
  });
  return model;
}

/// Images that are the same for equal shapes.
inline at::Tensor small_images(std::int64_t batch, std::int64_t height, std::int64_t width) {
  at::manual_seed(6);
  return at::randn({batch, 3, height, width});
}

}  // namespace worker::testing
