#include <png.h>

#include "prepare/images/formats.h"

namespace prepare::formats {
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
  png.image.format = PNG_FORMAT_RGB;
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // without gamma, libpng takes 16 bits for linear light
  Picture out = empty_picture(static_cast<int>(png.image.height), static_cast<int>(png.image.width));
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&png.image, &white, out.rgb.data(), 3 * out.width, nullptr) == 0) {
    refuse(name, damage(png.image));
  }
  return out;
}

}  // namespace prepare::formats
