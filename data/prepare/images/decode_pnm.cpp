#include "data/prepare/images/formats.h"

// Portable pixmaps (PPM: P3, P6) and graymaps (PGM: P2, P5), as netpbm's ppm(5) and pgm(5) describe them. Only the
// first image of a file is read.
namespace data::prepare::formats {
namespace {

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

}  // namespace

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

}  // namespace data::prepare::formats
