#include "worker/infer/texts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/usage_error.h"

namespace infer {
namespace {

using base::UsageError;

std::string read_all(std::istream& in, const std::string& name) {
  std::string text;
  char block[1 << 16];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostTextBytes) throw UsageError(name + " is larger than 256 MiB; give a part of it");
  }
  if (in.bad()) throw UsageError("cannot read " + name);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> texts_in(std::istream& in, const std::string& name, bool whole) {
  std::string text = read_all(in, name);
  auto texts = whole ? std::vector<std::string>{std::move(text)} : lines_of(text);
  if (texts.empty()) throw UsageError(name + " has no line with a text");
  return texts;
}

}  // namespace

std::vector<std::string> read_texts(const Options& options, std::istream& in, bool may_wait) {
  const bool from_in = options.file == "-" || options.texts == std::vector<std::string>{"-"};
  if (from_in || (options.file.empty() && options.texts.empty() && may_wait))
    return texts_in(in, "standard input", options.whole);
  if (!options.file.empty()) {
    std::ifstream file(options.file, std::ios::binary);
    if (!file) throw UsageError("cannot read " + options.file.native() + ": " + std::strerror(errno));
    return texts_in(file, options.file.native(), options.whole);
  }
  if (options.texts.empty()) throw UsageError("there is no text: give one as an argument, by -f FILE, or by a pipe");
  return options.texts;
}

}  // namespace infer
