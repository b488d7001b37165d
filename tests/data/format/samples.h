#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "data/format/dataset.h"
#include "data/format/writer.h"

namespace data::format {

using Tokens = std::vector<std::uint32_t>;

inline const base::Sha256::Digest kTokenizer = base::sha256("a tokenizer");

inline Tokens to_tokens(const Ids& ids) {
  std::vector<std::int64_t> wide(static_cast<std::size_t>(ids.size));
  ids.copy_to(wide.data());
  return {wide.begin(), wide.end()};
}

inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// Three records of tokens, one of them empty.
inline FileInfo write_tokens(const std::filesystem::path& path, std::uint64_t vocabulary = 300) {
  Writer writer(path, Kind::kTokens, vocabulary, kTokenizer);
  writer.add({Tokens{1, 2, 299}});
  writer.add({Tokens{}});
  writer.add({Tokens{7, 8}});
  return writer.finish();
}

inline FileInfo write_labelled(const std::filesystem::path& path, std::vector<std::int32_t> labels) {
  Writer writer(path, Kind::kLabelled, 300, kTokenizer);
  for (const auto label : labels) writer.add({Tokens{5, 6}}, label);
  return writer.finish();
}

inline std::vector<std::uint8_t> pixels_of(int height, int width, int first) {
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(3 * height * width));
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(first + static_cast<int>(i));
  return rgb;
}

/// The description that data.json needs beside the files: train with `train`, and no other split.
inline Description describe_tokens(std::vector<FileInfo> train) {
  Description out;
  out.kind = Kind::kTokens;
  out.source = "three records";
  out.made_by = "muster-data 0.1.0";
  out.tokenizer_kind = "bytes";
  out.tokenizer_sha256 = base::hex(kTokenizer);
  out.vocabulary = 300;
  out.prefix = {1};
  out.eos = 2;
  out.fields = {"text"};
  out.options = R"({"seed":1,"validation":0.05})";
  out.splits["train"].files = std::move(train);
  return out;
}

}  // namespace data::format
