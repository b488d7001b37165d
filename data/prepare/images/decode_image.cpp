#include "data/prepare/images/decode_image.h"

#include <fcntl.h>
#include <png.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "base/fd.h"

namespace data::prepare {
namespace {

/// Throws std::runtime_error "NAME: finding".
[[noreturn]] void refuse(const std::string& name, const std::string& finding) {
  throw std::runtime_error(name + ": " + finding);
}

/// Refuses sides that are not within 1 to kMostSide, and more pixels than `limits` allow. Call it before memory is
/// taken for the pixels.
void check_size(const std::string& name, std::int64_t width, std::int64_t height, const DecodeLimits& limits) {
  const std::string sides = std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (width < 1 || height < 1) refuse(name, "has " + sides + "; the file is damaged: replace or remove it");
  if (width > kMostSide || height > kMostSide) {
    refuse(name, "has " + sides + ", and a side may have " + std::to_string(kMostSide) + "; make it smaller");
  }
  if (width * height > limits.pixels) {
    refuse(name, "has " + sides + ", which is more than " + std::to_string(limits.pixels) +
                     " pixels in all; make it smaller");
  }
}

/// A picture of these sides, all bytes zero.
Picture empty_picture(int height, int width) {
  return {
      height, width,
      std::vector<std::uint8_t>(std::size_t{3} * static_cast<std::size_t>(height) * static_cast<std::size_t>(width))};
}

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Decoder = std::unique_ptr<void, Destroy>;

std::string damage(void* decoder) {
  return std::string("is not a whole JPEG (") + tjGetErrorStr2(decoder) + "); replace or remove it";
}

/// True if this is damage that leaves every pixel right. Cameras and old programs write such files.
bool is_harmless(void* decoder) {
  return tjGetErrorCode(decoder) == TJERR_WARNING &&
         std::string_view(tjGetErrorStr2(decoder)).find("extraneous bytes before marker") != std::string_view::npos;
}

/// True if an Adobe marker (APP14) comes before the pixels. Adobe's programs store CMYK inverted: 255 is no ink.
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

/// True if the chunks go on to the last one, IEND. libpng stops reading after the last pixel.
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

// Portable pixmaps (PPM: P3, P6) and graymaps (PGM: P2, P5), as netpbm's ppm(5) and pgm(5) describe them. Only the
// first image of a file is read.

constexpr std::int64_t kMostValue = 65'535;

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Reads the words of a pixmap.
class PnmReader {
 public:
  PnmReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  /// The next number. `what` is its name in errors. Comments run from '#' to the end of the line.
  std::int64_t number(const char* what, std::int64_t most) {
    while (at_ < bytes_.size() && (is_space(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') {
        while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
      } else {
        ++at_;
      }
    }
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9'; ++at_) {
      value = 10 * value + (bytes_[at_] - '0');
      if (value > most) wrong(std::string(what) + " is above " + std::to_string(most), begin);
    }
    if (at_ == begin) wrong(std::string("there is no ") + what, begin);
    return value;
  }

  /// The one white space between header and binary samples.
  void end_of_header() {
    if (at_ >= bytes_.size() || !is_space(bytes_[at_])) wrong("want white space after the header", at_);
    ++at_;
  }

  void skip(std::size_t count) { at_ += count; }
  std::string_view rest() const { return bytes_.substr(at_); }

  [[noreturn]] void wrong(const std::string& what, std::size_t at) const {
    refuse(name_, "is not a whole pixmap (byte " + std::to_string(at) + ": " + what + "); replace or remove it");
  }
  std::size_t at() const { return at_; }

 private:
  std::string_view bytes_;
  const std::string& name_;
  std::size_t at_ = 0;
};

Picture decode_pnm(std::string_view bytes, const std::string& name, const DecodeLimits& limits) {
  const bool is_text = bytes[1] == '2' || bytes[1] == '3';
  const int channels = bytes[1] == '3' || bytes[1] == '6' ? 3 : 1;
  PnmReader in(bytes, name);
  in.skip(2);
  const auto width = in.number("width", INT32_MAX);
  const auto height = in.number("height", INT32_MAX);
  const auto most = in.number("largest value", kMostValue);
  if (most == 0) in.wrong("the largest value is 0", in.at());
  check_size(name, width, height, limits);
  const int sample_bytes = is_text ? 2 : most > 255 ? 2 : 1;  // of a text: at least a digit and a space
  const std::int64_t samples = width * height * channels;
  if (!is_text) in.end_of_header();
  // A text may end without white space behind its last sample.
  const std::int64_t want = samples * sample_bytes - (is_text ? 1 : 0);
  if (static_cast<std::int64_t>(in.rest().size()) < want) {
    in.wrong("want " + std::to_string(want) + " bytes of samples, there are " + std::to_string(in.rest().size()),
             in.at());
  }
  Picture out = empty_picture(static_cast<int>(height), static_cast<int>(width));
  const auto binary = in.rest();
  for (std::int64_t i = 0; i < samples; ++i) {
    std::int64_t value = 0;
    if (is_text) {
      value = in.number("sample", most);
    } else {
      for (int b = 0; b < sample_bytes; ++b) {
        value = value << 8 | static_cast<std::uint8_t>(binary[static_cast<std::size_t>(i * sample_bytes + b)]);
      }
      if (value > most) {
        in.wrong("sample " + std::to_string(value) + " is above " + std::to_string(most),
                 in.at() + static_cast<std::size_t>(i * sample_bytes));
      }
    }
    const auto scaled = static_cast<std::uint8_t>((value * 255 + most / 2) / most);
    for (int copy = 0; copy < 3 / channels; ++copy)
      out.rgb[static_cast<std::size_t>(i * (3 / channels) + copy)] = scaled;
  }
  return out;
}

struct Unread {
  std::string_view name;
  std::size_t at;  // where its mark is
  std::string_view mark;
};

/// Formats that people have in image folders and that are not decoded here.
std::string_view unread_format(std::string_view bytes) {
  using namespace std::string_view_literals;
  static constexpr std::array<Unread, 10> kUnread{{{"GIF", 0, "GIF8"sv},
                                                   {"WebP", 8, "WEBP"sv},
                                                   {"BMP", 0, "BM"sv},
                                                   {"TIFF", 0, "II*\0"sv},
                                                   {"TIFF", 0, "MM\0*"sv},
                                                   {"HEIF or AVIF", 4, "ftyp"sv},
                                                   {"JPEG XL", 4, "JXL "sv},
                                                   {"JPEG 2000", 4, "jP  "sv},
                                                   {"PBM", 0, "P1"sv},
                                                   {"PBM", 0, "P4"sv}}};
  for (const auto& format : kUnread) {
    if (bytes.size() > format.at && bytes.substr(format.at).starts_with(format.mark)) return format.name;
  }
  return {};
}

std::string read_bytes(const std::filesystem::path& file, std::int64_t most) {
  const auto failed = [&](const char* what) {
    refuse(file.native(), std::string(what) + ": " + std::strerror(errno) + "; make it readable or remove it");
  };
  const base::Fd in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // never waits for a pipe's writer
  if (!in) failed("cannot be opened");
  struct stat status {};
  if (::fstat(in.get(), &status) != 0) failed("cannot be read");
  if (!S_ISREG(status.st_mode)) refuse(file.native(), "is not a regular file; remove it");
  if (status.st_size > most) {
    refuse(file.native(), "has " + std::to_string(status.st_size) + " bytes, and an image file may have " +
                              std::to_string(most) + "; make it smaller");
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const auto got = ::read(in.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) failed("cannot be read");
    if (got == 0) break;  // it became shorter: the decoder says what is missing
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

Picture decode(std::string_view bytes, const std::string& name, const DecodeLimits& limits) {
  using namespace std::string_view_literals;
  if (bytes.empty()) refuse(name, "is empty; replace or remove it");
  if (bytes.starts_with("\xff\xd8\xff"sv)) return decode_jpeg(bytes, name, limits);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return decode_png(bytes, name, limits);
  if (bytes.size() > 2 && bytes[0] == 'P' && "2356"sv.find(bytes[1]) != std::string_view::npos) {
    return decode_pnm(bytes, name, limits);
  }
  const auto other = unread_format(bytes);
  if (!other.empty()) {
    refuse(name, "is a " + std::string(other) +
                     " image; want JPEG, PNG, PPM or PGM: convert it, for example with ImageMagick");
  }
  refuse(name, "is not an image; want JPEG, PNG, PPM or PGM: replace or remove it");
}

Picture read_picture(const std::filesystem::path& file, const DecodeLimits& limits) {
  return decode(read_bytes(file, limits.file_bytes), file.native(), limits);
}

bool has_picture_name(const std::filesystem::path& file) {
  std::string ending = file.extension().native();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  constexpr std::array<std::string_view, 6> kEndings{".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".pnm"};
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

}  // namespace data::prepare
