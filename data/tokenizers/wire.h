#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace data::tokenizers
