#include "data/prepare/images/decode.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "data/prepare/images/formats.h"

namespace data::prepare {
namespace formats {

void refuse(const std::string& name, const std::string& finding) {
  throw std::runtime_error(name + ": " + finding);
}

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

Picture empty_picture(int height, int width) {
  return {
      height, width,
      std::vector<std::uint8_t>(std::size_t{3} * static_cast<std::size_t>(height) * static_cast<std::size_t>(width))};
}

}  // namespace formats

namespace {

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

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

std::string read_bytes(const std::filesystem::path& file, std::int64_t most) {
  const auto failed = [&](const char* what) {
    formats::refuse(file.native(), std::string(what) + ": " + std::strerror(errno) + "; make it readable or remove it");
  };
  const OpenFile in{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // never waits for a pipe's writer
  if (in.fd < 0) failed("cannot be opened");
  struct stat status {};
  if (::fstat(in.fd, &status) != 0) failed("cannot be read");
  if (!S_ISREG(status.st_mode)) formats::refuse(file.native(), "is not a regular file; remove it");
  if (status.st_size > most) {
    formats::refuse(file.native(), "has " + std::to_string(status.st_size) + " bytes, and an image file may have " +
                                       std::to_string(most) + "; make it smaller");
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const auto got = ::read(in.fd, bytes.data() + have, bytes.size() - have);
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
  if (bytes.empty()) formats::refuse(name, "is empty; replace or remove it");
  if (bytes.starts_with("\xff\xd8\xff"sv)) return formats::decode_jpeg(bytes, name, limits);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return formats::decode_png(bytes, name, limits);
  if (bytes.size() > 2 && bytes[0] == 'P' && "2356"sv.find(bytes[1]) != std::string_view::npos) {
    return formats::decode_pnm(bytes, name, limits);
  }
  const auto other = unread_format(bytes);
  if (!other.empty()) {
    formats::refuse(name, "is a " + std::string(other) +
                              " image; want JPEG, PNG, PPM or PGM: convert it, for example with ImageMagick");
  }
  formats::refuse(name, "is not an image; want JPEG, PNG, PPM or PGM: replace or remove it");
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
