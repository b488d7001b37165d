#include "worker/batch/augment.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "spec/tables/dinov2_keys.h"

namespace worker {
namespace {

constexpr double kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;  // width / height
constexpr int kBoxTries = 10;
constexpr std::int64_t kBlurReach = 4;

at::Tensor of_channels(const std::array<double, 3>& values) {
  return at::tensor(at::ArrayRef<double>(values), at::kFloat).view({3, 1, 1});
}

at::Tensor cut_off(const at::Tensor& image) {
  return image.clamp(0, 1);
}

/// [1, height, width]
at::Tensor luminance(const at::Tensor& image) {
  return 0.2989 * image.narrow(0, 0, 1) + 0.587 * image.narrow(0, 1, 1) + 0.114 * image.narrow(0, 2, 1);
}

at::Tensor blended(const at::Tensor& image, const at::Tensor& with, double factor) {
  return cut_off(factor * image + (1 - factor) * with);
}

/// A place for something of `size` in `room`.
std::int64_t random_place(std::int64_t room, std::int64_t size, data::order::Random& random) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room - size + 1)));
}

}  // namespace

Box random_box(std::int64_t height, std::int64_t width, double low, double high, data::order::Random& random) {
  const auto wide = static_cast<double>(width), tall = static_cast<double>(height);
  for (int i = 0; i < kBoxTries; ++i) {
    const double area = tall * wide * random.between(low, high);
    const double ratio = std::exp(random.between(std::log(kNarrowest), std::log(kWidest)));
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const std::int64_t top = random_place(height, h, random);
    return {.top = top, .left = random_place(width, w, random), .height = h, .width = w};
  }
  std::int64_t h = height, w = width;
  if (wide / tall < kNarrowest) h = std::min(height, static_cast<std::int64_t>(std::nearbyint(wide / kNarrowest)));
  if (wide / tall > kWidest) w = std::min(width, static_cast<std::int64_t>(std::nearbyint(tall * kWidest)));
  return {.top = (height - h) / 2, .left = (width - w) / 2, .height = h, .width = w};
}

at::Tensor resized_part(const data::format::Image& image, const Box& box, std::int64_t height, std::int64_t width) {
  TORCH_CHECK(
      image.height >= 1 && image.width >= 1 &&
          image.rgb.size() == static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width) * 3,
      "resized_part: the image has ", image.rgb.size(), " bytes; want height x width x 3 = ", image.height, " x ",
      image.width, " x 3");
  TORCH_CHECK(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
                  box.top + box.height <= image.height && box.left + box.width <= image.width,
              "resized_part: the box of ", box.height, " x ", box.width, " pixels at ", box.top, ", ", box.left,
              " is not inside of the image of ", image.height, " x ", image.width);
  // from_blob() takes no constant memory; nothing writes to it.
  const at::Tensor all = at::from_blob(const_cast<std::uint8_t*>(image.rgb.data()), {image.height, image.width, 3},
                                       at::TensorOptions(at::kByte));
  const at::Tensor part = all.narrow(0, box.top, box.height)
                              .narrow(1, box.left, box.width)
                              .permute({2, 0, 1})
                              .to(at::kFloat)
                              .contiguous()
                              .div_(255);
  return cut_off(at::_upsample_bicubic2d_aa(part.unsqueeze(0), {height, width}, /*align_corners=*/false)[0]);
}

at::Tensor mirrored(const at::Tensor& image) {
  return image.flip(-1);
}

at::Tensor grey(const at::Tensor& image) {
  return luminance(image).expand_as(image).contiguous();
}

at::Tensor with_brightness(const at::Tensor& image, double factor) {
  return cut_off(image * factor);
}

at::Tensor with_contrast(const at::Tensor& image, double factor) {
  return blended(image, luminance(image).mean(), factor);
}

at::Tensor with_saturation(const at::Tensor& image, double factor) {
  return blended(image, luminance(image), factor);
}

at::Tensor with_hue(const at::Tensor& image, double shift) {
  const at::Tensor r = image[0], g = image[1], b = image[2];
  const at::Tensor most = at::maximum(at::maximum(r, g), b), least = at::minimum(at::minimum(r, g), b);
  const at::Tensor range = most - least, is_grey = range == 0;
  const at::Tensor chroma = at::where(is_grey, at::tensor(1.0f), range);
  // The sextant of the colour circle, from 0 to 6. Grey has none, and no chroma that would make it matter.
  const at::Tensor sextant =
      at::where(most == r, (g - b) / chroma, at::where(most == g, 2 + (b - r) / chroma, 4 + (r - g) / chroma));
  const at::Tensor turned = sextant + 6 * shift;
  std::vector<at::Tensor> out;
  for (const int of_channel : {5, 3, 1}) {
    const at::Tensor place = (turned + of_channel).remainder(6);
    out.push_back(most - range * at::minimum(place, 4 - place).clamp(0, 1));
  }
  return cut_off(at::stack(out));
}

at::Tensor blurred(const at::Tensor& image, double sigma) {
  TORCH_CHECK(sigma > 0 && image.size(1) > kBlurReach && image.size(2) > kBlurReach, "blurred: got sigma ", sigma,
              " and an image of shape ", image.sizes(), "; want a sigma above 0 and sides of at least ",
              kBlurReach + 1);
  const at::Tensor places = at::arange(-kBlurReach, kBlurReach + 1, at::kFloat);
  const at::Tensor weights = (-0.5 * (places / sigma).square()).exp();
  const at::Tensor line = weights / weights.sum();
  // Channels are images of a batch with one channel.
  const at::Tensor wide = at::reflection_pad2d(image.unsqueeze(1), {kBlurReach, kBlurReach, kBlurReach, kBlurReach});
  const at::Tensor by_rows = at::conv2d(wide, line.view({1, 1, 1, -1}));
  return at::conv2d(by_rows, line.view({1, 1, -1, 1})).squeeze(1);
}

at::Tensor solarized(const at::Tensor& image, double threshold) {
  return at::where(image >= threshold, 1 - image, image);
}

at::Tensor normalised(const at::Tensor& image) {
  static const at::Tensor mean = of_channels(spec::kImageNetMean);
  static const at::Tensor deviation = of_channels(spec::kImageNetDeviation);
  return (image - mean) / deviation;
}

at::Tensor normalised(const at::Tensor& image, const std::array<double, 3>& mean,
                      const std::array<double, 3>& deviation) {
  return (image - of_channels(mean)) / of_channels(deviation);
}

}  // namespace worker
