#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <charconv>
#include <cmath>

#include "spec/fields.h"
#include "spec/units.h"

namespace spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// The last message on a path and the field there. `create` makes the messages on the way; without it an absent one
/// gives a null message.
struct Place {
  const Message* message = nullptr;
  Message* writable = nullptr;
  const FieldDescriptor* field = nullptr;
};

Place find_place(const Message& root, Message* writable, std::string_view path) {
  const Message* message = &root;
  for (;;) {
    const auto dot = path.find('.');
    const auto* field = message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    if (field == nullptr) std::abort();  // the table names a field that the message lacks; every test would see it
    if (dot == std::string_view::npos) return {message, writable, field};
    const auto* reflection = message->GetReflection();
    if (writable != nullptr) {
      message = writable = reflection->MutableMessage(writable, field);
    } else {
      if (!reflection->HasField(*message, field)) return {};
      message = &reflection->GetMessage(*message, field);
    }
    path.remove_prefix(dot + 1);
  }
}

std::string print_real(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

}  // namespace

std::optional<Value> get(const muster::v1::JobSpec& spec, const Field& field) {
  if (!is_plain(field)) return std::nullopt;
  const auto [message, writable, descriptor] = find_place(spec, nullptr, field.path);
  if (message == nullptr || !message->GetReflection()->HasField(*message, descriptor)) return std::nullopt;
  const auto* reflection = message->GetReflection();
  switch (descriptor->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(*message, descriptor);
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::int64_t{reflection->GetUInt32(*message, descriptor)};
    case FieldDescriptor::CPPTYPE_INT32:
      return std::int64_t{reflection->GetInt32(*message, descriptor)};
    case FieldDescriptor::CPPTYPE_INT64:
      return std::int64_t{reflection->GetInt64(*message, descriptor)};
    case FieldDescriptor::CPPTYPE_UINT64: {
      // Beyond int64 it is out of every range anyway.
      const auto number = reflection->GetUInt64(*message, descriptor);
      return number > static_cast<std::uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<std::int64_t>(number);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->GetDouble(*message, descriptor);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetString(*message, descriptor);
    default:
      std::abort();
  }
}

void set(muster::v1::JobSpec& spec, const Field& field, const Value& value) {
  const auto [message, writable, descriptor] = find_place(spec, &spec, field.path);
  const auto* reflection = message->GetReflection();
  switch (descriptor->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(writable, descriptor, std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->SetUInt32(writable, descriptor, static_cast<std::uint32_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(writable, descriptor, static_cast<std::int32_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(writable, descriptor, std::get<std::int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(writable, descriptor, static_cast<std::uint64_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(writable, descriptor, std::get<double>(value));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(writable, descriptor, std::get<std::string>(value));
    default:
      std::abort();
  }
}

void add(muster::v1::JobSpec& spec, const Field& field, const std::string& text) {
  const auto [message, writable, descriptor] = find_place(spec, &spec, field.path);
  message->GetReflection()->AddString(writable, descriptor, text);
}

std::vector<std::string> texts_of(const muster::v1::JobSpec& spec, const Field& field) {
  const auto [message, writable, descriptor] = find_place(spec, nullptr, field.path);
  std::vector<std::string> texts;
  if (message == nullptr) return texts;
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < reflection->FieldSize(*message, descriptor); ++i) {
    texts.push_back(reflection->GetRepeatedString(*message, descriptor, i));
  }
  return texts;
}

std::map<std::string, std::string> texts_by_name(const muster::v1::JobSpec& spec, const Field& field) {
  const auto [message, writable, descriptor] = find_place(spec, nullptr, field.path);
  std::map<std::string, std::string> texts;
  if (message == nullptr) return texts;
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < reflection->FieldSize(*message, descriptor); ++i) {
    const auto& entry = reflection->GetRepeatedMessage(*message, descriptor, i);
    const auto* type = entry.GetDescriptor();
    texts[entry.GetReflection()->GetString(entry, type->map_key())] =
        entry.GetReflection()->GetString(entry, type->map_value());
  }
  return texts;
}

void set_text(muster::v1::JobSpec& spec, const Field& field, const std::string& name, const std::string& text) {
  const auto [message, writable, descriptor] = find_place(spec, &spec, field.path);
  const auto* reflection = message->GetReflection();
  Message* entry = nullptr;
  for (int i = 0; i < reflection->FieldSize(*writable, descriptor); ++i) {
    auto* known = reflection->MutableRepeatedMessage(writable, descriptor, i);
    if (known->GetReflection()->GetString(*known, known->GetDescriptor()->map_key()) == name) entry = known;
  }
  if (entry == nullptr) entry = reflection->AddMessage(writable, descriptor);
  entry->GetReflection()->SetString(entry, entry->GetDescriptor()->map_key(), name);
  entry->GetReflection()->SetString(entry, entry->GetDescriptor()->map_value(), text);
}

void clear(muster::v1::JobSpec& spec, const Field& field) {
  const auto [message, writable, descriptor] = find_place(spec, &spec, field.path);
  message->GetReflection()->ClearField(writable, descriptor);
}

std::string print(const Field& field, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* real = std::get_if<double>(&value)) return print_real(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto number = std::get<std::int64_t>(value);
  if (field.kind == Kind::kDuration) return print_duration_ms(number);
  if (field.kind == Kind::kSize) return print_size_bytes(number);
  return std::to_string(number);
}

std::optional<Value> parse(const Field& field, std::string_view text) {
  const auto* begin = text.data();
  const auto* end = begin + text.size();
  switch (field.kind) {
    case Kind::kWhole: {
      std::int64_t number = 0;
      const auto [stop, error] = std::from_chars(begin, end, number);
      if (error != std::errc() || stop != end) return std::nullopt;
      return number;
    }
    case Kind::kReal: {
      double number = 0;
      const auto [stop, error] = std::from_chars(begin, end, number);
      if (error != std::errc() || stop != end) return std::nullopt;
      return number;
    }
    case Kind::kFlag:
      if (text != "true" && text != "false") return std::nullopt;
      return text == "true";
    case Kind::kDuration:
      if (const auto duration = parse_duration_ms(text)) return *duration;
      return std::nullopt;
    case Kind::kSize:
      if (const auto size = parse_size_bytes(text)) return *size;
      return std::nullopt;
    default:
      return std::string(text);
  }
}

namespace {

std::string quoted_choices(std::string_view choices) {
  std::string text;
  for (std::size_t at = 0; at < choices.size();) {
    const auto end = std::min(choices.find(' ', at), choices.size());
    text += (text.empty() ? "\"" : ", \"") + std::string(choices.substr(at, end - at)) + "\"";
    at = end + 1;
  }
  return text.find(',') == std::string::npos ? text : "one of " + text;
}

std::string range(const Field& field, const std::string& low, const std::string& high) {
  return (field.above_low ? " above " : " from ") + low + (field.above_low ? ", at most " : " to ") + high;
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && std::string_view("._-=,+").find(c) == std::string_view::npos) return false;
  }
  return true;
}

bool is_choice(std::string_view choices, const std::string& text) {
  return !text.empty() && text.find(' ') == std::string::npos &&
         (" " + std::string(choices) + " ").find(" " + text + " ") != std::string::npos;
}

}  // namespace

std::string wanted(const Field& field) {
  const auto low = static_cast<std::int64_t>(field.low), high = static_cast<std::int64_t>(field.high);
  switch (field.kind) {
    case Kind::kName:
      return "1 to " + std::to_string(kLongestName) + " letters, digits and any of . _ - = , +";
    case Kind::kPath:
      return "a path";
    case Kind::kWhole:
      return "a whole number" + range(field, std::to_string(low), std::to_string(high));
    case Kind::kReal:
      return "a number" + range(field, print_real(field.low), print_real(field.high));
    case Kind::kFlag:
      return "true or false";
    case Kind::kChoice:
      return quoted_choices(field.choices);
    case Kind::kDuration:
      return "a duration such as 12h, 30m, 90s, 500ms or 1h30m," +
             range(field, print_duration_ms(low), print_duration_ms(high));
    case Kind::kSize:
      return "a size such as 16MiB," + range(field, print_size_bytes(low), print_size_bytes(high));
    case Kind::kWords:
      return field.key == "after" ? "an array of jobs such as [\"12\", \"failed:13\"]"
                                  : "an array of texts such as [\"python3\", \"train.py\"]";
    case Kind::kLines:
      return "an array of texts of one line each";
    case Kind::kVariables:
      return "a table of NAME = text, number, true or false";
    case Kind::kOptions:
      return "a table of option = text, number or true";
    case Kind::kSweep:
      return "a table of key = [value, ...]";
    case Kind::kText:
      break;
  }
  return "a text of one line";
}

bool allowed(const Field& field, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (text->find('\0') != std::string::npos) return false;
    if (field.kind == Kind::kText && text->find_first_of("\r\n") != std::string::npos) return false;
    if (field.kind == Kind::kName) return is_name(*text);
    if (field.kind == Kind::kChoice) return is_choice(field.choices, *text);
    return field.kind != Kind::kPath || !text->empty();
  }
  if (std::holds_alternative<bool>(value)) return true;
  const auto* whole = std::get_if<std::int64_t>(&value);
  const double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
  return (field.above_low ? number > field.low : number >= field.low) && number <= field.high;
}

}  // namespace spec
