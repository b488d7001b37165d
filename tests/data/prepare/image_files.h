#pragma once

#include <turbojpeg.h>
#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/images/decode_image.h"

namespace data::prepare {

using Bytes = std::vector<std::uint8_t>;

inline std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

/// A chunk of a PNG file.
inline std::string png_chunk(const std::string& name, const std::string& data) {
  const std::string body = name + data;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(static_cast<std::uint32_t>(crc));
}

/// Color types of PNG.
enum PngColors : char { kPngGray = 0, kPngRgb = 2, kPngPalette = 3, kPngGrayAlpha = 4, kPngRgba = 6 };

/// A PNG file written by this test. `rows`: the samples of each row as PNG stores them. `before`: chunks between header
/// and pixels.
inline std::string png_file(int width, int height, PngColors colors, int bits, const std::vector<Bytes>& rows,
                            const std::string& before = {}) {
  std::string raw;
  for (const auto& row : rows) raw += '\0' + text_of(row);  // filter 0: samples as they are
  uLongf size = ::compressBound(static_cast<uLong>(raw.size()));
  std::string packed(size, '\0');
  if (::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()),
                 static_cast<uLong>(raw.size())) != Z_OK) {
    throw std::runtime_error("zlib cannot compress");
  }
  packed.resize(size);
  const std::string header = big_endian(static_cast<std::uint32_t>(width)) +
                             big_endian(static_cast<std::uint32_t>(height)) +
                             std::string{static_cast<char>(bits), colors, 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + before + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

/// A JPEG file of this picture in pixel format `format` of TurboJPEG.
inline std::string jpeg_file(int width, int height, const Bytes& pixels, int format, int subsampling, int flags = 0) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;
  const int failed = tjCompress2(encoder, pixels.data(), width, 0, height, format, &out, &size, subsampling, 95, flags);
  const std::string message = failed == 0 ? "" : tjGetErrorStr2(encoder);
  std::string file(reinterpret_cast<const char*>(out), failed == 0 ? size : 0);
  tjFree(out);
  tjDestroy(encoder);
  if (failed != 0) throw std::runtime_error(message);
  return file;
}

/// RGB that changes slowly over the picture: a JPEG keeps it nearly as it is.
inline Picture smooth_picture(int height, int width) {
  Picture out{height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      out.rgb.push_back(static_cast<std::uint8_t>(40 + 180 * x / width));
      out.rgb.push_back(static_cast<std::uint8_t>(220 - 180 * y / height));
      out.rgb.push_back(static_cast<std::uint8_t>(60 + 90 * (x + y) / (width + height)));
    }
  }
  return out;
}

/// The rows of a picture, for png_file().
inline std::vector<Bytes> rows_of(const Picture& picture) {
  std::vector<Bytes> rows;
  const auto bytes = static_cast<std::ptrdiff_t>(picture.width) * 3;
  for (int y = 0; y < picture.height; ++y) {
    rows.emplace_back(picture.rgb.begin() + y * bytes, picture.rgb.begin() + (y + 1) * bytes);
  }
  return rows;
}

inline std::string ppm_file(const Picture& picture) {
  return "P6\n" + std::to_string(picture.width) + " " + std::to_string(picture.height) + "\n255\n" +
         text_of(picture.rgb);
}

/// The error of decode() for a damaged file; "decoded" if it is not damaged.
inline std::string refusal(std::string_view bytes, const std::string& name, const DecodeLimits& limits = {}) {
  try {
    decode(bytes, name, limits);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "decoded";
}

}  // namespace data::prepare
