#include "fsdp/text/json.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace fsdp {
namespace {

class Parser {
 public:
  Parser(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

  Json document() {
    Json value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("want the end of the text after the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw JsonError("JSON, byte " + std::to_string(at_) + ": " + what);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c, const char* where) {
    if (!take(c)) fail(std::string("want '") + c + "' " + where);
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json parse_value(int depth) {
    skip_space();
    if (at_ >= text_.size()) fail("want a value, found the end of the text");
    switch (text_[at_]) {
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case '"':
        return parse_string();
      case 't':
        if (take_word("true")) return true;
        break;
      case 'f':
        if (take_word("false")) return false;
        break;
      case 'n':
        if (take_word("null")) return {};
        break;
      default:
        if (text_[at_] == '-' || (text_[at_] >= '0' && text_[at_] <= '9')) return parse_number();
    }
    fail("want a value");
  }

  void check_depth(int depth) const {
    if (depth >= max_depth_) fail("nested deeper than " + std::to_string(max_depth_) + " levels");
  }

  Json parse_object(int depth) {
    check_depth(depth);
    ++at_;
    Json::Object members;
    skip_space();
    if (take('}')) return members;
    do {
      skip_space();
      if (peek() != '"') fail("want a key in quotes");
      const std::size_t key_at = at_;
      std::string key = parse_string();
      skip_space();
      expect(':', "after the key");
      if (!members.try_emplace(key, parse_value(depth + 1)).second) {
        at_ = key_at;
        fail("key \"" + key + "\" appears twice");
      }
      skip_space();
    } while (take(','));
    expect('}', "or ',' in the object");
    return members;
  }

  Json parse_array(int depth) {
    check_depth(depth);
    ++at_;
    Json::Array elements;
    skip_space();
    if (take(']')) return elements;
    do {
      elements.push_back(parse_value(depth + 1));
      skip_space();
    } while (take(','));
    expect(']', "or ',' in the array");
    return elements;
  }

  void take_digits() {
    if (peek() < '0' || peek() > '9') fail("want a digit");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  Json parse_number() {
    const std::size_t begin = at_;
    const bool negative = take('-');
    if (!take('0')) take_digits();
    bool whole = true;
    if (take('.')) {
      whole = false;
      take_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      take_digits();
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + at_;
    std::int64_t integer = 0;
    if (whole && std::from_chars(first, last, integer).ec == std::errc() && !(negative && integer == 0)) return integer;
    double number = 0;
    if (std::from_chars(first, last, number).ec != std::errc()) {
      at_ = begin;
      fail("number does not fit a double");
    }
    return number;
  }

  unsigned parse_hex4() {
    unsigned code = 0;
    if (text_.size() - at_ < 4) fail("want four hex digits after \\u");
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
    if (error != std::errc() || end != text_.data() + at_ + 4) fail("want four hex digits after \\u");
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, unsigned code) {
    const auto put = [&out](unsigned byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | (code >> 6));
      put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      put(0xE0 | (code >> 12));
      put(0x80 | ((code >> 6) & 0x3F));
      put(0x80 | (code & 0x3F));
    } else {
      put(0xF0 | (code >> 18));
      put(0x80 | ((code >> 12) & 0x3F));
      put(0x80 | ((code >> 6) & 0x3F));
      put(0x80 | (code & 0x3F));
    }
  }

  void parse_escape(std::string& out) {
    const char c = peek();
    ++at_;
    switch (c) {
      case '"':
        out += '"';
        return;
      case '\\':
        out += '\\';
        return;
      case '/':
        out += '/';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'u':
        break;
      default:
        --at_;
        fail("unknown escape in a string");
    }
    unsigned code = parse_hex4();
    if (code >= 0xDC00 && code < 0xE000) fail("lone low surrogate");
    if (code >= 0xD800 && code < 0xDC00) {
      if (!take_word("\\u")) fail("high surrogate without a low one");
      const unsigned low = parse_hex4();
      if (low < 0xDC00 || low >= 0xE000) fail("high surrogate without a low one");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
  }

  // Copies one multi-byte UTF-8 sequence, refusing overlong forms, surrogates and codes above U+10FFFF.
  void parse_utf8(std::string& out) {
    const auto byte = [this](std::size_t i) -> unsigned {
      return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
    };
    const unsigned lead = byte(0);
    std::size_t length = 0;
    unsigned low = 0x80, high = 0xBF;  // bounds of the second byte
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    bool good = length > 0 && byte(1) >= low && byte(1) <= high;
    for (std::size_t i = 2; i < length; ++i) good = good && byte(i) >= 0x80 && byte(i) <= 0xBF;
    if (!good) fail("string is not UTF-8");
    out.append(text_.substr(at_, length));
    at_ += length;
  }

  std::string parse_string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) fail("string without an end");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20) fail("control character in a string");
      if (c >= 0x80) {
        parse_utf8(out);
        continue;
      }
      ++at_;
      if (c == '"') return out;
      if (c == '\\') {
        parse_escape(out);
      } else {
        out.push_back(static_cast<char>(c));
      }
    }
  }

  std::string_view text_;
  int max_depth_;
  std::size_t at_ = 0;
};

void dump_string(const std::string& text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void dump_double(double value, std::string& out) {
  if (!std::isfinite(value)) throw JsonError("JSON cannot hold NaN or infinity");
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
  // ".0" marks a number that is no integer, so that the text parses back as a double.
  if (std::string_view(text, end - text).find_first_of(".e") == std::string_view::npos) out += ".0";
}

void new_line(int indent, int depth, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * depth, ' ');
}

void dump_value(const Json& value, int indent, int depth, std::string& out) {
  const char* separator = "";
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_number()) {
    dump_double(value.as_double(), out);
  } else if (value.is_string()) {
    dump_string(value.as_string(), out);
  } else if (value.is_array()) {
    out += '[';
    for (const Json& element : value.as_array()) {
      out += separator;
      new_line(indent, depth + 1, out);
      dump_value(element, indent, depth + 1, out);
      separator = ",";
    }
    if (value.size() > 0) new_line(indent, depth, out);
    out += ']';
  } else {
    out += '{';
    for (const auto& [key, member] : value.as_object()) {
      out += separator;
      new_line(indent, depth + 1, out);
      dump_string(key, out);
      out += indent < 0 ? ":" : ": ";
      dump_value(member, indent, depth + 1, out);
      separator = ",";
    }
    if (value.size() > 0) new_line(indent, depth, out);
    out += '}';
  }
}

[[noreturn]] void wrong_type(const char* want, const char* is) {
  throw JsonError(std::string("JSON: want ") + want + ", this is " + is);
}

}  // namespace

Json::Json(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw JsonError("JSON: " + std::to_string(value) + " does not fit a signed 64-bit integer");
  value_ = static_cast<std::int64_t>(value);
}

Json Json::parse(std::string_view text, int max_depth) {
  return Parser(text, max_depth).document();
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_value(*this, indent, 0, out);
  return out;
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "a number",
                                           "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  if (!is_bool()) wrong_type("a boolean", type_name());
  return std::get<bool>(value_);
}

std::int64_t Json::as_int() const {
  if (!is_int()) wrong_type("an integer", type_name());
  return std::get<std::int64_t>(value_);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<std::int64_t>(value_));
  if (!is_number()) wrong_type("a number", type_name());
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) wrong_type("a string", type_name());
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_type("an array", type_name());
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_type("an object", type_name());
  return std::get<Object>(value_);
}

Json::Array& Json::as_array() {
  return const_cast<Array&>(std::as_const(*this).as_array());
}
Json::Object& Json::as_object() {
  return const_cast<Object&>(std::as_const(*this).as_object());
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
