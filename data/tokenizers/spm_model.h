#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace data::tokenizers {

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

/// The fields of one message, in the order of the file. Errors are std::runtime_error that begin with the byte in the
/// file. Groups, which no protocol has used since 2008, are errors, too.
class WireReader {
 public:
  /// `place`: where the message begins in its file. `name`: of the message, for errors.
  WireReader(std::string_view message, std::size_t place, std::string name);

  /// The next field, if there is one.
  std::optional<WireField> next();

  /// Throws an error about this field.
  [[noreturn]] void refuse(const WireField& field, const std::string& what) const;

  // The value of a field that the protocol gives this type. Throws if the file gives it another one.
  bool flag(const WireField& field) const;
  float single(const WireField& field) const;
  /// One of the values 1 to `last` of an enumeration.
  std::uint8_t choice(const WireField& field, std::uint8_t last) const;
  std::string_view bytes(const WireField& field) const;

 private:
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t bytes);
  [[noreturn]] void refuse_at(std::size_t place, const std::string& what) const;
  void want(const WireField& field, WireField::Kind kind, const char* name) const;

  std::string_view message_;
  std::size_t begin_;      // of the message in its file
  std::size_t place_ = 0;  // in the message
  std::string name_;
};

/// The numbers are those of sentencepiece_model.proto.
enum class SpmType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};
enum class SpmAlgorithm : std::uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };

struct SpmPiece {
  std::string text;  // UTF-8, not empty; a space is written U+2581
  float score = 0;   // finite
  SpmType type = SpmType::kNormal;
};

/// The facts that a model file of sentencepiece tells, as far as ids of texts depend on it. Defaults are those of
/// sentencepiece_model.proto.
struct SpmModel {
  std::vector<SpmPiece> pieces;  // by id; no text twice
  std::size_t unknown = 0;       // the id of the one piece of type kUnknown

  SpmAlgorithm algorithm = SpmAlgorithm::kUnigram;
  bool byte_fallback = false;  // if true, each byte has a piece of type kByte, named <0x00> to <0xFF>
  bool treat_whitespace_as_suffix = false;

  std::string charsmap;  // the rules of normalization as sentencepiece compiles them; empty if there are none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

/// Reads the bytes of a model file: the protocol buffer message ModelProto. They come from a stranger, so all is
/// checked. Fields that ids of texts do not depend on are passed over. Memory: a few times `bytes`. Throws
/// std::runtime_error that names the byte or the piece, what is wrong with it, and what to do; the caller adds the
/// path.
SpmModel read_spm_model(std::string_view bytes);

}  // namespace data::tokenizers
