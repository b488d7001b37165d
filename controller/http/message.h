#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace http {

/// A parsed request.
struct Request {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query; begins with '/'
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  /// A header's value; empty if absent.
  const std::string& header(const std::string& name) const;
  /// A query parameter's value; empty if absent.
  const std::string& parameter(const std::string& name) const;
  /// A cookie's value; empty if absent.
  std::string cookie(std::string_view name) const;
};

struct Response {
  unsigned status = 200;
  std::string type = "application/json; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

/// A refusal. Its body is {"error", "remedy"}.
Response refuse(unsigned status, const std::string& error, const std::string& remedy);

/// Splits a request target into path and query and decodes them. Returns false if the target is malformed.
bool parse_target(std::string_view target, Request& request);

}  // namespace http
