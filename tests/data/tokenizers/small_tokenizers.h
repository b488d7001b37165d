#pragma once

#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/temporary_folder.h"

namespace data::tokenizers::test {

using Json = nlohmann::json;
using ::test::TemporaryFolder;
using ::test::write_file;

inline Json added_token(int id, const std::string& content, bool is_special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", is_special}};
}

/// A tokenizer of whole words: [UNK] 0, [CLS] 1, [SEP] 2, [PAD] 3, a 4, muster 5, trains 6. Text becomes lower case,
/// and [CLS] and [SEP] are put around it.
inline Json words() {
  const auto piece = [](const char* name) { return Json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; };
  const auto special = [](const char* name, int id) { return Json{{"id", name}, {"ids", {id}}, {"tokens", {name}}}; };
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {added_token(0, "[UNK]"), added_token(1, "[CLS]"), added_token(2, "[SEP]"), added_token(3, "[PAD]")}},
      {"normalizer", {{"type", "Lowercase"}}},
      {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {piece("[CLS]"), text, piece("[SEP]")}},
        {"pair", {piece("[CLS]"), text, piece("[SEP]"), second, piece("[SEP]")}},
        {"special_tokens", {{"[CLS]", special("[CLS]", 1)}, {"[SEP]", special("[SEP]", 2)}}}}},
      {"decoder", nullptr},
      {"model",
       {{"type", "WordLevel"},
        {"unk_token", "[UNK]"},
        {"vocab", {{"[UNK]", 0}, {"[CLS]", 1}, {"[SEP]", 2}, {"[PAD]", 3}, {"a", 4}, {"muster", 5}, {"trains", 6}}}}}};
}

/// The text of the error that `work` throws; empty if it throws none.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace data::tokenizers::test
