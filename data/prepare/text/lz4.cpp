#include "data/prepare/text/lz4.h"

#include <cstdint>
#include <stdexcept>

namespace data::prepare {
namespace {

constexpr std::string_view kMagic = "\x04\x22\x4d\x18";
constexpr std::uint32_t kStoredBlock = 0x8000'0000U;
constexpr std::size_t kLeastMatch = 4;
constexpr std::uint8_t kMoreLength = 15;

/// Reads a frame from the front.
class Frame {
 public:
  explicit Frame(std::string_view bytes) : rest_(bytes) {}

  std::string_view take(std::size_t count) {
    if (count > rest_.size()) throw std::runtime_error("the LZ4 frame is truncated");
    const auto out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint32_t word() {
    std::uint32_t value = 0;
    const auto bytes = take(4);
    for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
    return value;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// A length whose first four bits are in a token. More bytes follow as long as they are 255.
std::size_t length_of(std::uint8_t four_bits, Frame& block) {
  std::size_t length = four_bits;
  if (four_bits != kMoreLength) return length;
  for (std::uint8_t more = 255; more == 255;) {
    more = block.byte();
    length += more;
  }
  return length;
}

void check_room(const std::string& out, std::size_t more, std::size_t max_bytes) {
  if (more > max_bytes - out.size()) {
    throw std::runtime_error("the LZ4 frame unpacks to more than " + std::to_string(max_bytes) + " bytes");
  }
}

/// Appends a packed block. Matches may reach back into earlier blocks.
void unpack(Frame block, std::string& out, std::size_t max_bytes) {
  while (!block.empty()) {
    const auto token = block.byte();
    const auto literals = length_of(token >> 4, block);
    const auto text = block.take(literals);
    check_room(out, literals, max_bytes);
    out += text;
    if (block.empty()) return;  // the last sequence has literals alone
    const std::size_t low = block.byte();
    const std::size_t back = low | std::size_t{block.byte()} << 8;
    const auto length = length_of(token & 15, block) + kLeastMatch;
    if (back == 0 || back > out.size()) throw std::runtime_error("the LZ4 frame copies from before its start");
    check_room(out, length, max_bytes);
    for (std::size_t i = 0; i < length; ++i) out += out[out.size() - back];  // may copy what it has just written
  }
}

}  // namespace

bool is_lz4(std::string_view bytes) {
  return bytes.starts_with(kMagic);
}

std::string unlz4(std::string_view bytes, std::size_t max_bytes) {
  Frame frame(bytes);
  if (frame.take(kMagic.size()) != kMagic) throw std::runtime_error("this is not an LZ4 frame");
  const auto flags = frame.byte();
  frame.byte();  // the largest block: blocks say their own size
  if (flags >> 6 != 1) throw std::runtime_error("the LZ4 frame has an unknown version");
  if ((flags & 1) != 0) throw std::runtime_error("the LZ4 frame needs a dictionary");
  const bool blocks_have_checksums = (flags & 0x10) != 0;
  if ((flags & 0x08) != 0) frame.take(8);  // the size of the content
  frame.byte();                            // checksum of the header
  std::string out;
  for (auto size = frame.word(); size != 0; size = frame.word()) {
    const auto block = frame.take(size & ~kStoredBlock);
    if ((size & kStoredBlock) != 0) {
      check_room(out, block.size(), max_bytes);
      out += block;
    } else {
      unpack(Frame(block), out, max_bytes);
    }
    if (blocks_have_checksums) frame.take(4);
  }
  return out;
}

}  // namespace data::prepare
