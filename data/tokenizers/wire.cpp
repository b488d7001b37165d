#include "data/tokenizers/wire.h"

#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

namespace data::tokenizers {
namespace {

constexpr int kVarintBytes = 10;
constexpr const char* kDamaged = "; the file is damaged or is no model of sentencepiece: copy it again";

}  // namespace

WireReader::WireReader(std::string_view message, std::size_t place, std::string name)
    : message_(message), begin_(place), name_(std::move(name)) {}

std::optional<WireField> WireReader::next() {
  if (place_ == message_.size()) return std::nullopt;
  WireField field;
  field.place = begin_ + place_;
  const std::uint64_t tag = varint();
  if (tag >> 3 == 0 || tag > std::numeric_limits<std::uint32_t>::max()) {
    refuse_at(field.place, "no field has the number " + std::to_string(tag >> 3));
  }
  field.number = static_cast<std::uint32_t>(tag >> 3);
  field.kind = static_cast<WireField::Kind>(tag & 7);
  switch (field.kind) {
    case WireField::Kind::kVarint:
      field.value = varint();
      return field;
    case WireField::Kind::k64Bits:
      field.value = fixed(8);
      return field;
    case WireField::Kind::k32Bits:
      field.value = fixed(4);
      return field;
    case WireField::Kind::kBytes: {
      const std::uint64_t bytes = varint();
      if (bytes > message_.size() - place_) {
        refuse_at(field.place, "field " + std::to_string(field.number) + " has " + std::to_string(bytes) +
                                   " bytes, but only " + std::to_string(message_.size() - place_) + " follow");
      }
      field.content = begin_ + place_;
      field.bytes = message_.substr(place_, bytes);
      place_ += bytes;
      return field;
    }
  }
  refuse_at(field.place,
            "field " + std::to_string(field.number) + " has the unknown wire type " + std::to_string(tag & 7));
}

void WireReader::refuse(const WireField& field, const std::string& what) const {
  refuse_at(field.place, "field " + std::to_string(field.number) + " " + what);
}

bool WireReader::flag(const WireField& field) const {
  want(field, WireField::Kind::kVarint, "a varint");
  return field.value != 0;
}

float WireReader::single(const WireField& field) const {
  want(field, WireField::Kind::k32Bits, "32 bits");
  return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
}

std::uint8_t WireReader::choice(const WireField& field, std::uint8_t last) const {
  want(field, WireField::Kind::kVarint, "a varint");
  if (field.value == 0 || field.value > last) {
    refuse(field, "is " + std::to_string(field.value) + ", want 1 to " + std::to_string(last));
  }
  return static_cast<std::uint8_t>(field.value);
}

std::string_view WireReader::bytes(const WireField& field) const {
  want(field, WireField::Kind::kBytes, "bytes");
  return field.bytes;
}

std::uint64_t WireReader::varint() {
  const std::size_t begin = place_;
  std::uint64_t value = 0;
  for (int i = 0; i < kVarintBytes; ++i) {
    if (place_ == message_.size()) refuse_at(begin_ + begin, "a number ends after the message");
    const auto byte = static_cast<unsigned char>(message_[place_++]);
    if (i == kVarintBytes - 1 && byte > 1) break;
    value |= static_cast<std::uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) return value;
  }
  refuse_at(begin_ + begin, "a number has more than 64 bits");
}

std::uint64_t WireReader::fixed(std::size_t bytes) {
  if (message_.size() - place_ < bytes) refuse_at(begin_ + place_, "a number ends after the message");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(message_[place_ + i])) << (8 * i);
  }
  place_ += bytes;
  return value;
}

void WireReader::refuse_at(std::size_t place, const std::string& what) const {
  throw std::runtime_error("byte " + std::to_string(place) + ": in " + name_ + ", " + what + kDamaged);
}

void WireReader::want(const WireField& field, WireField::Kind kind, const char* name) const {
  if (field.kind == kind) return;
  refuse(field, "has the wire type " + std::to_string(static_cast<int>(field.kind)) + ", want " + name);
}

}  // namespace data::tokenizers
