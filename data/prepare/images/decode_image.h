#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "data/prepare/images/image_source.h"

namespace data::prepare {

/// The most pixels and bytes that an image may have. Both limits are checked before memory is taken for the image.
struct DecodeLimits {
  std::int64_t pixels = std::int64_t{64} << 20;  // 192 MiB decoded; each side is at most kMostSide besides
  std::int64_t file_bytes = std::int64_t{256} << 20;
};

/// Decodes a JPEG, PNG, PPM or PGM file (P2, P3, P5, P6). The format is read from the content, not from the name.
///
/// - Gray becomes RGB of three equal values. Palettes become their colors.
/// - 16 bits become 8 by rounding. A PNG without gamma is taken for sRGB; one with gamma is converted to sRGB.
/// - Transparency is dropped, and pixels keep their colors, as Pillow's convert("RGB") does.
/// - CMYK of JPEG becomes RGB by (1 - C)(1 - K), without a color profile. Profiles and Exif rotation are ignored.
/// - A JPEG with harmless extra bytes between markers is decoded. Any other damage is an error.
///
/// `name` is what errors call the file. Throws std::runtime_error "NAME: finding; remedy" for damage, other formats and
/// images beyond the limits. Time and memory are bounded by the limits on any input.
Picture decode(std::string_view bytes, const std::string& name, const DecodeLimits& limits = {});

/// Reads and decodes a regular file. Throws as decode() does, and for a file that cannot be read.
Picture read_picture(const std::filesystem::path& file, const DecodeLimits& limits = {});

/// True if a name ends as files that decode() reads: .jpg, .jpeg, .png, .ppm, .pgm or .pnm, in any case.
bool has_picture_name(const std::filesystem::path& file);

}  // namespace data::prepare
