#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "data/format/format.h"
#include "data/order/random.h"

// Augmentations of images. Each is a function of its arguments alone. Images are fp32 [3, height, width], RGB from 0 to
// 1, on the host. Formulas are those of torchvision's transforms, which DINOv2 uses.
namespace worker {

/// A part of an image, in pixels.
struct Box {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

/// A box whose area is a share of the image's from [low, high), and whose width is from 3/4 to 4/3 of its height, at a
/// uniform place. After ten boxes that do not fit it is the largest one in the middle with a side ratio in this range.
Box random_box(std::int64_t height, std::int64_t width, double low, double high, data::order::Random& random);

/// The part of the image that `box` names, resized to [3, height, width] by bicubic interpolation with antialiasing, as
/// torch.nn.functional.interpolate(antialias=True) does, and cut off at 0 and 1. Throws c10::Error for a box that is
/// not inside of the image, and for an image whose bytes are not height x width x 3.
at::Tensor resized_part(const data::format::Image& image, const Box& box, std::int64_t height, std::int64_t width);

/// Left and right exchanged.
at::Tensor mirrored(const at::Tensor& image);

/// Luminance, three times.
at::Tensor grey(const at::Tensor& image);

// A factor of 1, or a shift of 0, changes nothing. Results are cut off at 0 and 1.
at::Tensor with_brightness(const at::Tensor& image, double factor);  ///< times the factor
at::Tensor with_contrast(const at::Tensor& image, double factor);    ///< factor 0: all pixels are the mean luminance
at::Tensor with_saturation(const at::Tensor& image, double factor);  ///< factor 0: grey
at::Tensor with_hue(const at::Tensor& image, double shift);          ///< in turns of the colour circle, -0.5 to 0.5

/// Averages over 9 x 9 pixels with a normal distribution's weights. `sigma` is its deviation in pixels, above 0. The
/// image is reflected at its borders. Sides of at least 5.
at::Tensor blurred(const at::Tensor& image, double sigma);

/// Values of at least `threshold` become 1 - value.
at::Tensor solarized(const at::Tensor& image, double threshold);

/// Without ImageNet's mean, divided by its deviation, channel by channel: what DINOv2 models read.
at::Tensor normalised(const at::Tensor& image);
/// Normalises an image in the same way with another mean and deviation.
at::Tensor normalised(const at::Tensor& image, const std::array<double, 3>& mean,
                      const std::array<double, 3>& deviation);

}  // namespace worker
