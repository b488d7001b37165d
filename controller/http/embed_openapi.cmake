# Turns docs/openapi.json into C++: cmake -DFILE=docs/openapi.json -DOUTPUT=openapi.cpp -P embed_openapi.cmake
cmake_minimum_required(VERSION 3.24)
file(READ "${FILE}" hex HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${OUTPUT}" "// Made from docs/openapi.json by controller/http/embed_openapi.cmake.
#include \"controller/http/api.h\"

namespace http {
namespace {

const unsigned char kText[] = {${bytes}0};

}  // namespace

std::string_view openapi_text() {
  return {reinterpret_cast<const char*>(kText), sizeof kText - 1};
}

}  // namespace http
")
