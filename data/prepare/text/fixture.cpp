#include "data/prepare/text/fixture.h"

#include <vector>

#include "fixture_texts.h"

namespace data::prepare {
namespace {

/// The texts of a folder below data/prepare/text/fixture, or of one file, in the order of their names.
std::vector<std::string_view> texts_below(std::string_view path) {
  std::vector<std::string_view> texts;
  for (const auto& text : kTexts) {
    if (text.name.starts_with(path)) texts.push_back(text.text);
  }
  return texts;
}

}  // namespace

std::string_view fixture_packages() {
  static const auto kFound = texts_below("packages.txt");
  return kFound.front();
}

std::span<const std::string_view> fixture_pages() {
  static const auto kFound = texts_below("pages/");
  return kFound;
}

std::span<const std::string_view> fixture_documents() {
  static const auto kFound = texts_below("documents/");
  return kFound;
}

}  // namespace data::prepare
