#pragma once

#include <string_view>

namespace http {

/// A file of the built dashboard, compiled into the program.
struct Asset {
  std::string_view path;  // "/app-1A2B3C4D.js"
  std::string_view type;
  std::string_view etag;  // quoted
  std::string_view body;
  bool immutable = false;  // the name changes with the content
};

/// Null: there is no such file. Defined in a generated file; see web/embed.cmake.
const Asset* find_asset(std::string_view path);

}  // namespace http
