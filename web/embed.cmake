# Turns the files of a folder into C++: cmake -DFOLDER=dist -DOUTPUT=embedded.cpp -P embed.cmake
# The result defines http::find_asset (controller/http/api.h).
cmake_minimum_required(VERSION 3.24)
file(GLOB files RELATIVE "${FOLDER}" "${FOLDER}/*")
list(SORT files)
if(NOT "index.html" IN_LIST files)
  message(FATAL_ERROR "${FOLDER} holds no index.html; was the dashboard built?")
endif()

set(arrays "")
set(table "")
set(index 0)
foreach(file IN LISTS files)
  file(READ "${FOLDER}/${file}" hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  file(SHA256 "${FOLDER}/${file}" hash)
  string(SUBSTRING "${hash}" 0 16 hash)
  get_filename_component(extension "${file}" LAST_EXT)
  if(extension STREQUAL ".html")
    set(type "text/html; charset=utf-8")
  elseif(extension STREQUAL ".js")
    set(type "text/javascript; charset=utf-8")
  elseif(extension STREQUAL ".css")
    set(type "text/css; charset=utf-8")
  elseif(extension STREQUAL ".svg")
    set(type "image/svg+xml")
  else()
    message(FATAL_ERROR "${file}: no content type is known for ${extension}")
  endif()
  # esbuild puts the content's hash into the name: app-1A2B3C4D.js
  set(immutable false)
  if(file MATCHES "-[0-9A-Z]+\\.")
    set(immutable true)
  endif()
  string(APPEND arrays "const unsigned char kFile${index}[] = {${bytes}0};\n")
  string(APPEND table "    {\"/${file}\", \"${type}\", \"\\\"${hash}\\\"\", view(kFile${index}, sizeof kFile${index} - 1), ${immutable}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUTPUT}" "// Made from the built dashboard by web/embed.cmake.
#include \"controller/http/api.h\"

namespace http {
namespace {

${arrays}
std::string_view view(const unsigned char* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

const Asset kAssets[] = {
${table}};

}  // namespace

const Asset* find_asset(std::string_view path) {
  for (const Asset& asset : kAssets)
    if (asset.path == path) return &asset;
  return nullptr;
}

}  // namespace http
")
