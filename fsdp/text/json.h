#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp {

/// A JSON text was refused, or a value has another type than asked for. what() holds the byte offset for a syntax
/// error.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A JSON value. Texts are read and written by nlohmann's library; this class adds what files of models need: strict
/// RFC 8259 (no comments, no trailing commas, no duplicate keys, no bare NaN) and integers that stay integers. Integers
/// that fit are std::int64_t; every other number is double. dump() prints a text that parses back to the same double.
/// Object keys are sorted, so equal values dump to equal bytes.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  static constexpr int kMaxDepth = 64;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<std::int64_t>(value)) {}
  Json(std::int64_t value) : value_(value) {}
  /// Throws JsonError when the value exceeds std::int64_t.
  Json(std::uint64_t value);
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  /// Parses a text that holds exactly one value. Throws JsonError with the byte offset for a syntax error, with the key
  /// for one that appears twice, and for nesting deeper than `max_depth`.
  static Json parse(std::string_view text, int max_depth = kMaxDepth);

  /// The value as text. `indent` < 0 gives one line without spaces; otherwise each level is indented by that many
  /// spaces. Throws JsonError for what parse() would refuse: NaN, infinity, and a string that is not UTF-8.
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// The value as that type. Throws JsonError naming both types when the value has another type. as_double() takes
  /// integers too.
  bool as_bool() const { return as<bool>("a boolean"); }
  std::int64_t as_int() const { return as<std::int64_t>("an integer"); }
  double as_double() const;
  const std::string& as_string() const { return as<std::string>("a string"); }
  const Array& as_array() const { return as<Array>("an array"); }
  const Object& as_object() const { return as<Object>("an object"); }
  Array& as_array() { return const_cast<Array&>(std::as_const(*this).as_array()); }
  Object& as_object() { return const_cast<Object&>(std::as_const(*this).as_object()); }

  /// The member, or nullptr when this value is no object or has no such member.
  const Json* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// The member. Throws JsonError naming the key when it is missing.
  const Json& at(std::string_view key) const;
  /// The member, created as null when missing. A null value becomes an object first.
  Json& operator[](std::string_view key);
  /// Appends to an array; a null value becomes an array first.
  void push_back(Json value);
  /// The number of elements of an array or members of an object; 0 for other types.
  std::size_t size() const;

  bool operator==(const Json& other) const { return value_ == other.value_; }

 private:
  template <typename Type>
  const Type& as(const char* want) const {
    const Type* value = std::get_if<Type>(&value_);
    if (value == nullptr) wrong_type(want);
    return *value;
  }
  const char* type_name() const;
  [[noreturn]] void wrong_type(const char* want) const;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

}  // namespace fsdp
