#include "base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace base {
namespace {

// Slicing by 8: table[k][b] is the checksum of byte b followed by k zero bytes.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr CrcTables make_tables() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bits reversed
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
    }
  }
  return tables;
}

constexpr CrcTables kTables = make_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::string_view bytes, std::uint32_t rest) {
  std::uint64_t wide = rest;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (const char c : bytes) narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(c));
  return narrow;
}
#endif

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(bytes, ~before);
#endif
  return crc32c_portable(bytes, before);
}

std::uint32_t crc32c_portable(std::string_view bytes, std::uint32_t before) {
  std::uint32_t rest = ~before;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      next ^= kTables[7 - k][((rest >> (8 * k)) & 0xff) ^ static_cast<unsigned char>(bytes[k])];
      next ^= kTables[3 - k][static_cast<unsigned char>(bytes[4 + k])];
    }
    rest = next;
  }
  for (const char c : bytes) rest = (rest >> 8) ^ kTables[0][(rest ^ static_cast<unsigned char>(c)) & 0xff];
  return ~rest;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const auto crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const char* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

}  // namespace

void Sha256::take_block(const char* block) {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < 16; ++i) words[i] = big_endian(block + 4 * i);
  for (std::size_t i = 16; i < words.size(); ++i) {
    const std::uint32_t early = words[i - 15], late = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3)) + words[i - 7] +
               (std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

void Sha256::add(std::string_view bytes) {
  const std::size_t waiting = bytes_ % kBlock;
  bytes_ += bytes.size();
  if (waiting > 0) {
    const auto taken = std::min(bytes.size(), kBlock - waiting);
    std::copy_n(bytes.data(), taken, rest_.data() + waiting);
    if (waiting + taken < kBlock) return;
    take_block(rest_.data());
    bytes.remove_prefix(taken);
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) take_block(bytes.data());
  std::copy_n(bytes.data(), bytes.size(), rest_.data());
}

Sha256::Digest Sha256::digest() const {
  // The end: a one bit, zeros up to 8 bytes before a whole block, and the length in bits, big-endian.
  const std::uint64_t bits = bytes_ * 8;
  std::string end(1 + (kBlock + 55 - bytes_ % kBlock) % kBlock, '\0');
  end[0] = static_cast<char>(0x80);
  for (int shift = 56; shift >= 0; shift -= 8) end.push_back(static_cast<char>(bits >> shift));
  Sha256 whole = *this;
  whole.add(end);
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(whole.state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Sha256::Digest sha256(std::string_view bytes) {
  Sha256 whole;
  whole.add(bytes);
  return whole.digest();
}

std::string hex(const Sha256::Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace base
