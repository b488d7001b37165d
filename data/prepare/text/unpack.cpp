#include "data/prepare/text/unpack.h"

#include <lz4frame.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>

namespace data::prepare {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kLz4Magic = "\x04\x22\x4d\x18";
constexpr int kGzipOfAnyWindow = 16 + MAX_WBITS;

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(what);
}

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

}  // namespace data::prepare
