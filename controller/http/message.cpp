#include "controller/http/message.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <ranges>

namespace http {
namespace {

std::optional<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      std::uint8_t byte = 0;
      const auto digits = text.substr(i + 1, 2);
      const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16).ptr;
      if (digits.size() < 2 || end != digits.data() + 2 || byte == 0) return std::nullopt;
      c = static_cast<char>(byte);
      i += 2;
    }
    out += c;
  }
  return out;
}

}  // namespace

const std::string& Request::parameter(const std::string& name) const {
  static const std::string nothing;
  const auto found = query.find(name);
  return found == query.end() ? nothing : found->second;
}

std::string Request::cookie(std::string_view name) const {
  const auto all = header("cookie");
  for (const auto part : std::views::split(std::string_view(all), ';')) {
    std::string_view pair(part.begin(), part.end());
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
  if (mark == std::string_view::npos) return true;
  for (const auto part : std::views::split(target.substr(mark + 1), '&')) {
    const std::string_view pair(part.begin(), part.end());
    const auto equals = pair.find('=');
    const auto name = decode(pair.substr(0, equals), true);
    const auto value = decode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name || !value) return false;
    if (!name->empty() && !request.query.emplace(*name, *value).second) request.repeated = *name;
  }
  return true;
}

using nlohmann::ordered_json;

Response as_json(const ordered_json& json, unsigned status) {
  auto response = response_of(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  response.result(status);
  return response;
}

Response refusal(const common::Refusal& refusal) {
  using Kind = common::Refusal::Kind;
  switch (refusal.kind) {
    case Kind::kInvalid:
      return refuse(400, refusal.text, "correct the request");
    case Kind::kNotFound:
      return refuse(404, refusal.text, "the list of jobs is at /");
    case Kind::kWrongState:
      return refuse(409, refusal.text, "look at the job again: its state has changed");
    case Kind::kLimit:
      return refuse(429, refusal.text, "try again later");
    case Kind::kUnauthenticated:
      return refuse(401, refusal.text, "log in again");
    case Kind::kUnavailable:
    case Kind::kUnchanged:
      return refuse(503, refusal.text, "try again in a moment");
  }
  return refuse(500, refusal.text, "look into musterd's log");
}

ordered_json body_of(const Request& request) {
  if (request.body().empty()) return ordered_json::object();
  auto body = ordered_json::parse(request.body(), nullptr, false);
  if (!body.is_object())
    throw BadParameter{"the body is not a JSON object", "send an object in UTF-8; see docs/api.md"};
  return body;
}

}  // namespace http
