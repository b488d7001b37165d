#include <turbojpeg.h>

#include <memory>

#include "data/prepare/images/formats.h"

namespace data::prepare::formats {
namespace {

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Decoder = std::unique_ptr<void, Destroy>;

std::string damage(void* decoder) {
  return std::string("is not a whole JPEG (") + tjGetErrorStr2(decoder) + "); replace or remove it";
}

/// Whether this is damage that leaves every pixel right. Cameras and old programs write such files.
bool is_harmless(void* decoder) {
  return tjGetErrorCode(decoder) == TJERR_WARNING &&
         std::string_view(tjGetErrorStr2(decoder)).find("extraneous bytes before marker") != std::string_view::npos;
}

/// Whether an Adobe marker (APP14) comes before the pixels. Adobe's programs store CMYK inverted: 255 is no ink.
bool has_adobe_marker(std::string_view bytes) {
  std::size_t at = 2;  // behind the start of the image
  while (at + 4 <= bytes.size() && bytes[at] == '\xff') {
    const auto kind = static_cast<std::uint8_t>(bytes[at + 1]);
    if (kind == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    if (kind == 0xda) return false;  // the pixels begin
    if (kind == 0xee && bytes.substr(at + 4).starts_with("Adobe")) return true;
    at += std::size_t{2} + static_cast<std::uint8_t>(bytes[at + 2]) * 256U + static_cast<std::uint8_t>(bytes[at + 3]);
  }
  return false;
}

/// Decodes into `out` of width x height pixels in this format.
void decompress(void* decoder, std::string_view bytes, const std::string& name, const Picture& size, int format,
                std::uint8_t* out) {
  // A progressive JPEG of thousands of scans takes minutes to decode. TurboJPEG allows 500 scans.
  const int failed = tjDecompress2(decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), out,
                                   size.width, 0, size.height, format, TJFLAG_LIMITSCANS | TJFLAG_ACCURATEDCT);
  if (failed != 0 && !is_harmless(decoder)) refuse(name, damage(decoder));
}

}  // namespace

Picture decode_jpeg(std::string_view bytes, const std::string& name, const DecodeLimits& limits) {
  const Decoder decoder(tjInitDecompress());
  if (decoder == nullptr) refuse(name, std::string("cannot be decoded: ") + tjGetErrorStr2(nullptr));
  int width = 0, height = 0, subsampling = 0, colors = 0;
  const int failed = tjDecompressHeader3(decoder.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                                         bytes.size(), &width, &height, &subsampling, &colors);
  if (failed != 0 && !is_harmless(decoder.get())) refuse(name, damage(decoder.get()));
  check_size(name, width, height, limits);
  Picture out = empty_picture(height, width);
  if (colors != TJCS_CMYK && colors != TJCS_YCCK) {
    decompress(decoder.get(), bytes, name, out, TJPF_RGB, out.rgb.data());
    return out;
  }
  const std::size_t pixels = out.rgb.size() / 3;
  std::vector<std::uint8_t> inks(4 * pixels);
  decompress(decoder.get(), bytes, name, out, TJPF_CMYK, inks.data());
  const unsigned flip = has_adobe_marker(bytes) ? 0 : 255;
  for (std::size_t i = 0; i < pixels; ++i) {
    const unsigned paper = inks[4 * i + 3] ^ flip;  // 255: no black
    for (std::size_t c = 0; c < 3; ++c) {
      out.rgb[3 * i + c] = static_cast<std::uint8_t>(((inks[4 * i + c] ^ flip) * paper + 127) / 255);
    }
  }
  return out;
}

}  // namespace data::prepare::formats
