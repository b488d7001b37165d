#include "data/tokenizers/spm_json.h"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {
namespace {

constexpr int kVarintBytes = 10;
constexpr const char* kDamaged = "; the file is damaged or is no model of sentencepiece: copy it again";

/// One field of a protocol buffer message.
struct WireField {
  enum class Kind : std::uint8_t { kVarint = 0, k64Bits = 1, kBytes = 2, k32Bits = 5 };

  std::uint32_t number = 0;
  Kind kind = Kind::kVarint;
  std::uint64_t value = 0;   // of kVarint, k64Bits and k32Bits
  std::string_view bytes{};  // of kBytes
  std::size_t place = 0;     // of the field in the file, in bytes
  std::size_t content = 0;   // of `bytes` in the file, in bytes
};

/// A number in little endian.
std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

/// The fields of one message, in the order of the file. Errors are std::runtime_error that begin with the byte in the
/// file. Groups, which no protocol has used since 2008, are errors, too.
class WireReader {
 public:
  /// `place`: where the message begins in its file. `name`: of the message, for errors.
  WireReader(std::string_view message, std::size_t place, std::string name)
      : message_(message), begin_(place), name_(std::move(name)) {}

  /// The next field, if there is one.
  std::optional<WireField> next() {
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
          refuse(field, "has " + std::to_string(bytes) + " bytes, but only " +
                            std::to_string(message_.size() - place_) + " follow");
        }
        field.content = begin_ + place_;
        field.bytes = message_.substr(place_, bytes);
        place_ += bytes;
        return field;
      }
    }
    refuse(field, "has the unknown wire type " + std::to_string(tag & 7));
  }

  /// Throws an error about this field.
  [[noreturn]] void refuse(const WireField& field, const std::string& what) const {
    refuse_at(field.place, "field " + std::to_string(field.number) + " " + what);
  }

  // The value of a field that the protocol gives this type. Throws if the file gives it another one.
  bool flag(const WireField& field) const {
    want(field, WireField::Kind::kVarint, "a varint");
    return field.value != 0;
  }
  float single(const WireField& field) const {
    want(field, WireField::Kind::k32Bits, "32 bits");
    return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
  }
  /// One of the values 1 to `last` of an enumeration.
  template <class Enum>
  Enum choice(const WireField& field, Enum last) const {
    want(field, WireField::Kind::kVarint, "a varint");
    const auto most = static_cast<std::uint8_t>(last);
    if (field.value == 0 || field.value > most) {
      refuse(field, "is " + std::to_string(field.value) + ", want 1 to " + std::to_string(most));
    }
    return static_cast<Enum>(field.value);
  }
  std::string_view bytes(const WireField& field) const {
    want(field, WireField::Kind::kBytes, "bytes");
    return field.bytes;
  }

 private:
  std::uint64_t varint() {
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

  std::uint64_t fixed(std::size_t bytes) {
    if (message_.size() - place_ < bytes) refuse_at(begin_ + place_, "a number ends after the message");
    place_ += bytes;
    return little_endian(message_.substr(place_ - bytes, bytes));
  }

  [[noreturn]] void refuse_at(std::size_t place, const std::string& what) const {
    throw std::runtime_error("byte " + std::to_string(place) + ": in " + name_ + ", " + what + kDamaged);
  }

  void want(const WireField& field, WireField::Kind kind, const char* name) const {
    if (field.kind == kind) return;
    refuse(field, "has the wire type " + std::to_string(static_cast<int>(field.kind)) + ", want " + name);
  }

  std::string_view message_;
  std::size_t begin_;      // of the message in its file
  std::size_t place_ = 0;  // in the message
  std::string name_;
};

constexpr std::size_t kMaxPieces = 1 << 22;  // the largest vocabularies of 2025 have 2^18
constexpr std::size_t kMaxPieceBytes = 1024;

[[noreturn]] void refuse_piece(std::size_t id, const std::string& what) {
  throw std::runtime_error("piece " + std::to_string(id) + " " + what);
}

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

SpmPiece read_piece(const WireField& whole, std::size_t id) {
  WireReader reader(whole.bytes, whole.content, "piece " + std::to_string(id));
  SpmPiece piece;
  while (const auto field = reader.next()) {
    if (field->number == 1) {
      const auto text = reader.bytes(*field);
      if (text.size() > kMaxPieceBytes) {
        reader.refuse(*field, "has " + std::to_string(text.size()) + " bytes, more than the " +
                                  std::to_string(kMaxPieceBytes) + " that a piece may have");
      }
      piece.text = text;
      if (repaired(text) != text) reader.refuse(*field, "is not UTF-8");
    } else if (field->number == 2) {
      piece.score = reader.single(*field);
      if (!std::isfinite(piece.score)) reader.refuse(*field, "is a score that is not finite");
    } else if (field->number == 3) {
      piece.type = reader.choice(*field, SpmType::kByte);
    }
  }
  if (piece.text.empty())
    throw std::runtime_error("byte " + std::to_string(whole.place) + ": piece " + std::to_string(id) +
                             " has no text; is it the right file?");
  return piece;
}

void read_trainer(const WireField& whole, SpmModel& model) {
  WireReader reader(whole.bytes, whole.content, "trainer_spec");
  while (const auto field = reader.next()) {
    if (field->number == 3) {
      model.algorithm = reader.choice(*field, SpmAlgorithm::kCharacter);
    } else if (field->number == 24) {
      model.treat_whitespace_as_suffix = reader.flag(*field);
    } else if (field->number == 35) {
      model.byte_fallback = reader.flag(*field);
    }
  }
}

/// A charsmap is the size of a trie in bytes (32 bits, little-endian), the trie (units of 32 bits), and texts.
void check_charsmap(const WireReader& reader, const WireField& field) {
  const auto bytes = field.bytes;
  if (bytes.empty()) return;
  const std::uint64_t trie = little_endian(bytes.substr(0, 4));
  if (bytes.size() < 8 || trie == 0 || trie % 4 != 0 || trie > bytes.size() - 4) {
    reader.refuse(field, "is no charsmap: it has " + std::to_string(bytes.size()) + " bytes, and its trie would have " +
                             std::to_string(trie));
  }
}

void read_normalizer(const WireField& whole, SpmModel& model) {
  WireReader reader(whole.bytes, whole.content, "normalizer_spec");
  while (const auto field = reader.next()) {
    if (field->number == 2) {
      model.charsmap = reader.bytes(*field);
      check_charsmap(reader, *field);
    } else if (field->number == 3) {
      model.add_dummy_prefix = reader.flag(*field);
    } else if (field->number == 4) {
      model.remove_extra_whitespaces = reader.flag(*field);
    } else if (field->number == 5) {
      model.escape_whitespaces = reader.flag(*field);
    }
  }
}

std::string byte_piece(unsigned byte) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 0xF] + ">";
}

void check_bytes(const SpmModel& model, const std::unordered_map<std::string_view, std::size_t>& ids) {
  if (!model.byte_fallback) return;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string text = byte_piece(byte);
    const auto found = ids.find(text);
    if (found == ids.end() || model.pieces[found->second].type != SpmType::kByte) {
      throw std::runtime_error("trainer_spec says byte_fallback, but no piece of type BYTE is " + quoted(text) +
                               "; the file is damaged: copy it again");
    }
  }
}

void check_pieces(SpmModel& model) {
  std::unordered_map<std::string_view, std::size_t> ids;
  ids.reserve(model.pieces.size());
  bool has_unknown = false;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    const auto [before, is_new] = ids.emplace(piece.text, id);
    if (!is_new) {
      refuse_piece(id, "is " + quoted(piece.text) + ", as piece " + std::to_string(before->second) +
                           " is; sentencepiece reads no such file");
    }
    if (piece.type != SpmType::kUnknown) continue;
    if (has_unknown) {
      refuse_piece(id, "has the type UNKNOWN, as piece " + std::to_string(model.unknown) +
                           " has; sentencepiece reads no such file");
    }
    has_unknown = true;
    model.unknown = id;
  }
  if (!has_unknown) throw std::runtime_error("no piece has the type UNKNOWN; is it the right file?");
  check_bytes(model, ids);
}

}  // namespace

SpmModel read_spm_model(std::string_view bytes) {
  SpmModel model;
  bool has_trainer = false, has_normalizer = false;
  WireReader reader(bytes, 0, "the message ModelProto");
  while (const auto field = reader.next()) {
    if (field->number < 1 || field->number > 3) continue;
    reader.bytes(*field);
    if (field->number == 1) {
      if (model.pieces.size() == kMaxPieces) {
        reader.refuse(*field, "is one piece more than the " + std::to_string(kMaxPieces) + " that a model may have");
      }
      model.pieces.push_back(read_piece(*field, model.pieces.size()));
    } else if (field->number == 2) {
      read_trainer(*field, model);
      has_trainer = true;
    } else {
      read_normalizer(*field, model);
      has_normalizer = true;
    }
  }
  // sentencepiece writes the pieces first and these two after them, so a file that was cut lacks one.
  if (!has_trainer || !has_normalizer) {
    throw std::runtime_error("byte " + std::to_string(bytes.size()) + ": the file ends without " +
                             (has_trainer ? "normalizer_spec" : "trainer_spec") +
                             "; it was cut, or is no model of sentencepiece: copy it again");
  }
  check_pieces(model);
  return model;
}

}  // namespace data::tokenizers
