#pragma once

#include <string_view>

#include "http/message.h"

namespace http {

/// A file of the built dashboard, inside the program.
struct Asset {
  std::string_view path;  // "/app-1A2B3C4D.js"
  std::string_view type;
  std::string_view etag;  // quoted
  std::string_view body;
  bool immutable = false;  // its name changes with its content
};

/// Null: no such file. Defined by the generated file; see cmake/EmbedAssets.cmake.
const Asset* find_asset(std::string_view path);

/// The file a path asks for; pages ("/", "/jobs/7", "/login") are all index.html. 404 for anything else;
/// a browser that asks for a page then gets index.html, which says so.
Response serve_asset(const Request& request);

}  // namespace http
