#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <map>
#include <string>
#include <string_view>

namespace http {

using Response = boost::beast::http::response<boost::beast::http::string_body>;

/// A parsed request.
struct Request : boost::beast::http::request<boost::beast::http::string_body> {
  std::string path;  // decoded, without the query; begins with '/'
  std::map<std::string, std::string> query;
  std::string repeated = {};  // a parameter that the query holds more than once; empty: there is none

  /// A header's value; empty if absent.
  std::string header(std::string_view name) const;
  /// A query parameter's value; empty if absent.
  const std::string& parameter(const std::string& name) const;
  /// A cookie's value; empty if absent.
  std::string cookie(std::string_view name) const;
  /// True for GET and HEAD.
  bool reads() const;
};

/// An answer of this type.
Response response_of(std::string body, std::string_view type = "application/json; charset=utf-8");

/// A refusal. Its body is {"error", "remedy"}.
Response refuse(unsigned status, const std::string& error, const std::string& remedy);

/// Splits the request's target into path and query and decodes them. Returns false if the target is malformed.
bool parse_target(Request& request);

}  // namespace http
