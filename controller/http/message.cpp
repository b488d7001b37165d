#include "http/message.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
      if (c == '\0') return std::nullopt;
    }
    out += c;
  }
  return out;
}

}  // namespace

std::string Request::header(std::string_view name) const {
  return std::string((*this)[name]);
}

const std::string& Request::parameter(const std::string& name) const {
  static const std::string nothing;
  const auto found = query.find(name);
  return found == query.end() ? nothing : found->second;
}

bool Request::reads() const {
  return method() == boost::beast::http::verb::get || method() == boost::beast::http::verb::head;
}

std::string Request::cookie(std::string_view name) const {
  const auto all = header("cookie");
  std::string_view rest = all;
  while (!rest.empty()) {
    const auto end = rest.find(';');
    std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    pair.remove_prefix(std::min(pair.find_first_not_of(' '), pair.size()));
    const auto equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return std::string(pair.substr(equals + 1));
  }
  return {};
}

Response response_of(std::string body, std::string_view type) {
  Response response;
  response.set(boost::beast::http::field::content_type, type);
  response.body() = std::move(body);
  return response;
}

Response refuse(unsigned status, const std::string& error, const std::string& remedy) {
  auto response = response_of(nlohmann::ordered_json{{"error", error}, {"remedy", remedy}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace));
  response.result(status);
  return response;
}

bool parse_target(Request& request) {
  const std::string_view target = request.target();
  const auto mark = target.find('?');
  const auto path = decode(target.substr(0, mark), false);
  if (!path || path->empty() || path->front() != '/') return false;
  request.path = *path;
  std::string_view rest = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  while (!rest.empty()) {
    const auto end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const auto equals = pair.find('=');
    const auto name = decode(pair.substr(0, equals), true);
    const auto value = decode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name || !value) return false;
    if (!name->empty()) request.query.insert_or_assign(*name, *value);
  }
  return true;
}

}  // namespace http
