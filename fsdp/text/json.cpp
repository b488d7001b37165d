#include "fsdp/text/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

// Takes the events of nlohmann's parser. The parser is strict RFC 8259 by itself but for a byte order mark and NUL.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(int max_depth) : max_depth_(max_depth) {}

  Json take() { return std::move(document_); }

  bool null() override { return put({}); }
  bool boolean(bool value) override { return put(value); }
  // The library calls this for numbers with a sign. -0 stays what it is as a double.
  bool number_integer(std::int64_t value) override { return value == 0 ? put(-0.0) : put(value); }
  bool number_unsigned(std::uint64_t value) override {
    return value > std::numeric_limits<std::int64_t>::max() ? put(static_cast<double>(value)) : put(value);
  }
  bool number_float(double value, const std::string& text) override {
    const auto digits = std::string_view(text).substr(0, text.find_first_of("eE"));
    if (value == 0 && digits.find_first_of("123456789") != digits.npos)
      throw JsonError("JSON: number " + text.substr(0, 40) + " does not fit a double");
    return put(value);
  }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // no JSON text has it
  bool start_object(std::size_t) override { return open(Json::Object()); }
  bool start_array(std::size_t) override { return open(Json::Array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const auto [member, is_new] = open_.back()->as_object().try_emplace(name);
    if (!is_new) throw JsonError("JSON: key \"" + name + "\" appears twice");
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t bytes_read, const std::string&, const nlohmann::json::exception& error) override {
    // The library's text is "[its number] kind at line 1, column 2: why; last read: bytes; expected ...". The offset
    // says the place, the bytes may be no UTF-8, and a number may have any length.
    std::string why = error.what();
    const std::size_t column = why.find(", column ");
    why.erase(0, column == why.npos ? why.find("] ") + 2 : why.find(": ", column) + 2);
    const std::size_t read = why.find("; last read"), expected = why.rfind("; expected ");
    const std::string end = read < expected && expected != why.npos ? why.substr(expected) : "";
    why.erase(std::min({read, why.size(), std::size_t{100}}));
    why += end;
    throw JsonError("JSON, byte " + std::to_string(bytes_read > 0 ? bytes_read - 1 : 0) + ": " + why);
  }

 private:
  // The value's place: the document, the member whose key came last, or the end of an array.
  Json& place() {
    if (open_.empty()) return document_;
    if (open_.back()->is_object()) return *member_;
    return open_.back()->as_array().emplace_back();
  }

  bool put(Json value) {
    place() = std::move(value);
    return true;
  }

  bool open(Json empty) {
    if (static_cast<int>(open_.size()) >= max_depth_)
      throw JsonError("JSON: nested deeper than " + std::to_string(max_depth_) + " levels");
    Json& value = place();
    value = std::move(empty);
    open_.push_back(&value);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  int max_depth_;
  Json document_;
  // The objects and arrays that have not ended. Nothing is added to one but at its end of this list, so none moves.
  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

void write_text(const std::string& text, std::string& out) {
  try {
    out += nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw JsonError("JSON: a string is not UTF-8");
  }
}

/// Writes a value that is neither array nor object.
void write_leaf(const Json& value, std::string& out) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_number()) {
    if (!std::isfinite(value.as_double())) throw JsonError("JSON cannot hold NaN or infinity");
    out += nlohmann::json(value.as_double()).dump();
  } else {
    write_text(value.as_string(), out);
  }
}

void new_line(int indent, std::size_t depth, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * depth, ' ');
}

// A trace or a manifest may have a million values, so nothing but the text is built.
void write(const Json& value, int indent, std::size_t depth, std::string& out) {
  if (!value.is_array() && !value.is_object()) return write_leaf(value, out);
  const char* separator = "";
  const auto begin = [&] {
    out += std::exchange(separator, ",");
    new_line(indent, depth + 1, out);
  };
  out += value.is_array() ? '[' : '{';
  if (value.is_array()) {
    for (const Json& element : value.as_array()) {
      begin();
      write(element, indent, depth + 1, out);
    }
  } else {
    for (const auto& [key, member] : value.as_object()) {
      begin();
      write_text(key, out);
      out += indent < 0 ? ":" : ": ";
      write(member, indent, depth + 1, out);
    }
  }
  if (value.size() > 0) new_line(indent, depth, out);
  out += value.is_array() ? ']' : '}';
}

}  // namespace

Json::Json(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw JsonError("JSON: " + std::to_string(value) + " does not fit a signed 64-bit integer");
  value_ = static_cast<std::int64_t>(value);
}

Json Json::parse(std::string_view text, int max_depth) {
  // The library would pass over a byte order mark, and take NUL for the end.
  if (text.starts_with("\xEF\xBB\xBF")) throw JsonError("JSON, byte 0: a byte order mark, want none");
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    throw JsonError("JSON, byte " + std::to_string(nul) + ": a NUL byte");
  Builder builder(max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string Json::dump(int indent) const {
  std::string out;
  write(*this, indent, 0, out);
  return out;
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "a number",
                                           "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

void Json::wrong_type(const char* want) const {
  throw JsonError(std::string("JSON: want ") + want + ", this is " + type_name());
}

double Json::as_double() const {
  return is_int() ? static_cast<double>(as_int()) : as<double>("a number");
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto& members = std::get<Object>(value_);
  const auto found = members.find(key);
  return found == members.end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr) throw JsonError("JSON: no key \"" + std::string(key) + "\" in " + type_name());
  return *member;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  auto& members = as_object();
  const auto found = members.find(key);
  return found != members.end() ? found->second : members[std::string(key)];
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  as_array().push_back(std::move(value));
}

std::size_t Json::size() const {
  if (is_array()) return std::get<Array>(value_).size();
  if (is_object()) return std::get<Object>(value_).size();
  return 0;
}

}  // namespace fsdp
