#include <png.h>

#include <algorithm>

#include "data/prepare/images/formats.h"

namespace data::prepare::formats {
namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kAroundChunk = 12;  // length, name and checksum

/// Frees what libpng keeps of an image.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

std::string damage(const png_image& image) {
  return std::string("is not a whole PNG (") + image.message + "); replace or remove it";
}

/// Whether the chunks go on to the last one, IEND. libpng stops reading after the last pixel.
bool has_end(std::string_view bytes) {
  std::size_t at = kSignatureBytes;
  while (at + kAroundChunk <= bytes.size()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    if (length > bytes.size() - at - kAroundChunk) return false;
    if (bytes.substr(at + 4, 4) == "IEND") return true;
    at += length + kAroundChunk;
  }
  return false;
}

}  // namespace

Picture decode_png(std::string_view bytes, const std::string& name, const DecodeLimits& limits) {
  PngImage png;
  if (png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) == 0) refuse(name, damage(png.image));
  check_size(name, png.image.width, png.image.height, limits);
  if (!has_end(bytes)) refuse(name, "is not a whole PNG (its last chunk, IEND, is missing); replace or remove it");
  // Colors are kept as they are where there is transparency, as Pillow's convert("RGB") does.
  const bool has_alpha = (png.image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.image.format = has_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // without gamma, libpng takes 16 bits for linear light
  Picture out = empty_picture(static_cast<int>(png.image.height), static_cast<int>(png.image.width));
  const std::size_t pixels = out.rgb.size() / 3;
  if (has_alpha) out.rgb.resize(4 * pixels);
  if (png_image_finish_read(&png.image, nullptr, out.rgb.data(), (has_alpha ? 4 : 3) * out.width, nullptr) == 0) {
    refuse(name, damage(png.image));
  }
  for (std::size_t i = 0; has_alpha && i < pixels; ++i) std::copy_n(&out.rgb[4 * i], 3, &out.rgb[3 * i]);
  out.rgb.resize(3 * pixels);
  return out;
}

}  // namespace data::prepare::formats
