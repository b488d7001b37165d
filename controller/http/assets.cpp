#include "http/assets.h"

namespace http {
namespace {

bool is_page(std::string_view path) {
  return path == "/" || path == "/login" || path.starts_with("/jobs/");
}

}  // namespace

Response serve_asset(const Request& request) {
  const Asset* asset = find_asset(is_page(request.path) ? "/index.html" : request.path);
  const bool lost = asset == nullptr;
  // A person who mistyped an address gets a page that says so, not JSON.
  if (lost && request.header("accept").find("text/html") != std::string::npos) asset = find_asset("/index.html");
  if (asset == nullptr) return refuse(404, "there is nothing at " + request.path, "the dashboard is at /");
  const bool known = !lost && request.header("if-none-match") == asset->etag;
  auto response = response_of(known ? std::string() : std::string(asset->body), asset->type);
  response.result(lost ? 404 : known ? 304 : 200);
  response.set("ETag", asset->etag);
  response.set("Cache-Control", asset->immutable ? "public, max-age=31536000, immutable" : "no-cache");
  return response;
}

}  // namespace http
