#pragma once

#include <string_view>

#include "http/message.h"

namespace http {

/// A file of the built dashboard, compiled into the program.
struct Asset {
  std::string_view path;  // "/app-1A2B3C4D.js"
  std::string_view type;
  std::string_view etag;  // quoted
  std::string_view body;
  bool immutable = false;  // the name changes with the content
};

/// Null: there is no such file. Defined in a generated file; see cmake/EmbedAssets.cmake.
const Asset* find_asset(std::string_view path);

/// Answers with the file of the path. Every page ("/", "/jobs/7", "/login") is index.html. Any other path is a 404. A
/// browser that asks for an unknown page gets index.html with the 404, and the page says so.
Response serve_asset(const Request& request);

}  // namespace http
