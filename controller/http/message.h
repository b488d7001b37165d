#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "controller/common/outcome.h"
#include "proto/json/proto_json.h"

namespace http {

using Response = boost::beast::http::response<boost::beast::http::string_body>;

/// A parsed request.
struct Request : boost::beast::http::request<boost::beast::http::string_body> {
  std::string path;  // decoded, without the query; begins with '/'
  std::map<std::string, std::string> query;
  std::string repeated = {};  // a parameter that the query holds more than once; empty: there is none

  /// A header's value; empty if absent.
  std::string header(std::string_view name) const { return std::string((*this)[name]); }
  /// A query parameter's value; empty if absent.
  const std::string& parameter(const std::string& name) const;
  /// A cookie's value; empty if absent.
  std::string cookie(std::string_view name) const;
  /// True for GET and HEAD.
  bool reads() const { return method() == boost::beast::http::verb::get || method() == boost::beast::http::verb::head; }
};

/// An answer of this type.
Response response_of(std::string body, std::string_view type = "application/json; charset=utf-8");

/// A refusal. Its body is {"error", "remedy"}.
Response refuse(unsigned status, const std::string& error, const std::string& remedy);

/// Splits the request's target into path and query and decodes them. Returns false if the target is malformed.
bool parse_target(Request& request);

/// Thrown for a parameter or a body with a bad value. The answer is then 400.
struct BadParameter {
  std::string error;
  std::string remedy;
};

Response as_json(const nlohmann::ordered_json& json, unsigned status = 200);
Response refusal(const common::Refusal& refusal);

template <typename Message>
Response outcome(const common::Outcome<Message>& message, unsigned status = 200) {
  return message.ok() ? as_json(proto::to_json(message.value()), status) : refusal(message.refusal());
}

/// A page of rows. `more`: the page is full, so there may be further rows.
template <typename Message>
Response rows_page(const char* name, const std::vector<Message>& rows, std::uint32_t limit) {
  nlohmann::ordered_json out = {{name, nlohmann::ordered_json::array()}, {"more", limit > 0 && rows.size() == limit}};
  for (const auto& row : rows) out[name].push_back(proto::to_json(row));
  return as_json(out);
}

/// The parameter as a number; `otherwise` if it is absent.
template <typename Number>
Number number(const Request& request, const std::string& name, Number otherwise,
              std::uint64_t most = std::numeric_limits<Number>::max()) {
  const std::string& text = request.parameter(name);
  if (text.empty()) return otherwise;
  const auto value = base::whole_number<std::uint64_t>(text);
  if (!value || *value > most)
    throw BadParameter{name + "=" + text.substr(0, 80) + " is not a number from 0 to " + std::to_string(most),
                       "correct the parameter " + name};
  return static_cast<Number>(*value);
}

/// The body as a JSON object; an empty body is an empty object.
nlohmann::ordered_json body_of(const Request& request);

}  // namespace http
