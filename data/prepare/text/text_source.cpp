#include "data/prepare/text/text_source.h"

#include <fcntl.h>
#include <lz4frame.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "fixture_texts.h"

namespace data::prepare {

TextSource in_parts(TextSource source, std::int64_t items, std::int64_t items_a_part,
                    std::function<void(std::int64_t item, const RecordSink& sink)> tell) {
  const auto parts = items <= items_a_part ? 1 : (items - 1) / items_a_part + 1;
  source.parts = parts;
  source.read = [items, items_a_part, parts, tell = std::move(tell)](std::int64_t part, const RecordSink& sink) {
    if (part < 0 || part >= parts) {
      throw std::out_of_range("part " + std::to_string(part) + ": the source has " + std::to_string(parts) + " parts");
    }
    const auto end = std::min(items, (part + 1) * items_a_part);
    for (auto item = part * items_a_part; item < end; ++item) tell(item, sink);
  };
  return source;
}

void check_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw std::runtime_error(std::string(what) + " = " + std::to_string(value) + ": want " + std::to_string(least) +
                           " to " + std::to_string(most));
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else {
      out += c;
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string_view cut_text(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  for (int back = 0; back < 3 && end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xc0) == 0x80; ++back) --end;
  return text.substr(0, end);
}

namespace {

[[noreturn]] void refuse(const std::string& finding) {
  throw std::runtime_error(finding);
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& finding) {
  refuse(path.native() + ": " + finding);
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!fd_) {
    for (const int wrong : {ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG}) {
      if (errno != wrong) continue;
      refuse(path,
             std::string("cannot be opened: ") + std::strerror(wrong) + "; name a file that exists and can be read");
    }
    throw std::system_error(errno, std::generic_category(), path.native() + ": cannot be opened");
  }
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse(path, "is not a regular file; name a file");
  bytes_ = status.st_size;
  state_ = std::to_string(status.st_size) + ":" + std::to_string(status.st_mtim.tv_sec) + "." +
           std::to_string(status.st_mtim.tv_nsec) + ":" + std::to_string(status.st_ctim.tv_sec) + "." +
           std::to_string(status.st_ctim.tv_nsec);
}

std::size_t InputFile::read(std::int64_t offset, std::span<char> out) const {
  std::size_t have = 0;
  while (have < out.size()) {
    const auto got = ::pread(fd_.get(), out.data() + have, out.size() - have, offset + static_cast<std::int64_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw std::system_error(
          errno, std::generic_category(),
          path_.native() + ": cannot be read at byte " + std::to_string(offset + static_cast<std::int64_t>(have)));
    }
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

std::string InputFile::read_all(std::int64_t most) const {
  if (bytes_ > most) {
    refuse(path_, "has " + std::to_string(bytes_) + " bytes, and at most " + std::to_string(most) +
                      " are read; name a smaller file");
  }
  std::string text(static_cast<std::size_t>(bytes_), '\0');
  text.resize(read(0, text));
  return text;
}

namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kLz4Magic = "\x04\x22\x4d\x18";
constexpr int kGzipOfAnyWindow = 16 + MAX_WBITS;

class Inflate {
 public:
  Inflate() {
    if (inflateInit2(&stream, kGzipOfAnyWindow) != Z_OK) throw std::bad_alloc();
  }
  ~Inflate() { inflateEnd(&stream); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;

  z_stream stream{};
};

}  // namespace

std::string gunzip(std::string_view bytes, std::size_t max_bytes) {
  Inflate inflater;
  auto& stream = inflater.stream;
  std::array<char, 1 << 15> part;
  std::string out;
  if (!bytes.starts_with(kGzipMagic)) refuse("gzip: the data is no gzip file");
  // Bytes after the last member, such as zeros that fill a block, are left out. The program gunzip does so, too.
  while (bytes.starts_with(kGzipMagic)) {
    inflateReset(&stream);
    for (int said = Z_OK; said != Z_STREAM_END;) {
      const auto given = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      // zlib does not write to its input.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = static_cast<uInt>(given);
      stream.next_out = reinterpret_cast<Bytef*>(part.data());
      stream.avail_out = static_cast<uInt>(part.size());
      said = inflate(&stream, Z_NO_FLUSH);
      bytes.remove_prefix(given - stream.avail_in);
      const auto made = part.size() - stream.avail_out;
      if (made > max_bytes - out.size()) return out.append(part.data(), max_bytes - out.size());
      out.append(part.data(), made);
      if (said == Z_BUF_ERROR) refuse("gzip: the data ends too early");
      if (said == Z_MEM_ERROR) throw std::bad_alloc();
      if (said == Z_OK || said == Z_STREAM_END) continue;
      const std::string why = stream.msg == nullptr ? "a preset dictionary is needed" : stream.msg;
      refuse("gzip: " + why + (why == "incorrect data check" ? ": the checksum does not fit" : ""));
    }
  }
  return out;
}

bool is_lz4(std::string_view bytes) {
  return bytes.starts_with(kLz4Magic);
}

std::string unlz4(std::string_view bytes, std::size_t max_bytes) {
  if (!is_lz4(bytes)) refuse("not an LZ4 frame");
  if (bytes.size() > kLz4Magic.size() && (bytes[kLz4Magic.size()] & 1) != 0) {
    refuse("the LZ4 frame needs a dictionary");
  }
  LZ4F_dctx* made = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&made, LZ4F_VERSION)) != 0) throw std::bad_alloc();
  const std::unique_ptr<LZ4F_dctx, decltype(&LZ4F_freeDecompressionContext)> context(made,
                                                                                     &LZ4F_freeDecompressionContext);
  std::array<char, 1 << 15> part;
  std::string out;
  for (std::size_t wanted = 1; wanted != 0;) {
    std::size_t taken = bytes.size(), given = part.size();
    wanted = LZ4F_decompress(context.get(), part.data(), &given, bytes.data(), &taken, nullptr);
    if (LZ4F_isError(wanted) != 0) refuse(std::string("the LZ4 frame is damaged: ") + LZ4F_getErrorName(wanted));
    if (given > max_bytes - out.size()) {
      refuse("the LZ4 frame unpacks to more than " + std::to_string(max_bytes) + " bytes");
    }
    out.append(part.data(), given);
    bytes.remove_prefix(taken);
    if (wanted != 0 && taken == 0 && given == 0) refuse("the LZ4 frame is truncated");
  }
  return out;
}

std::vector<std::string_view> fixture_texts(std::string_view path) {
  std::vector<std::string_view> texts;
  for (const auto& text : kTexts) {
    if (text.name.starts_with(path)) texts.push_back(text.text);
  }
  return texts;
}

}  // namespace data::prepare
