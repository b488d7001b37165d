#include "data/tokenizers/special_tokens.h"

#include <stdexcept>
#include <vector>

#include "data/tokenizers/json_object.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;

struct Role {
  std::optional<std::int64_t> Special::*id;
  const char* key;
  std::vector<std::string_view> usual;
};

const std::vector<Role>& roles() {
  static const std::vector<Role> all = {
      {&Special::pad, "pad_token", {"[PAD]", "<pad>"}},
      {&Special::bos, "bos_token", {"<s>", "<|endoftext|>"}},
      {&Special::eos, "eos_token", {"</s>", "<|endoftext|>", "<|end|>"}},
      {&Special::unk, "unk_token", {"[UNK]", "<unk>"}},
      {&Special::mask, "mask_token", {"[MASK]", "<mask>"}},
      {&Special::cls, "cls_token", {"[CLS]"}},
      {&Special::sep, "sep_token", {"[SEP]"}},
  };
  return all;
}

std::optional<std::int64_t> usual_id(const Role& role, const FindPiece& find) {
  for (const auto name : role.usual) {
    const auto piece = find(name);
    if (piece && piece->is_special) return piece->id;
  }
  return std::nullopt;
}

std::int64_t id_of(const JsonObject& object, const Role& role, const std::string& text, const FindPiece& find) {
  if (const auto piece = find(text)) return piece->id;
  throw std::runtime_error(
      object.path.string() + ": " + role.key + " is \"" + text +
      "\", which tokenizer.json does not have; load and save the tokenizer by transformers, so that "
      "the two files agree");
}

}  // namespace

Special special_tokens(const fs::path& folder, const FindPiece& find) {
  const JsonObject config = read_object(folder / "tokenizer_config.json");
  JsonObject map = read_object(folder / "special_tokens_map.json");
  if (config.members.contains("added_tokens_decoder")) map.members.clear();
  Special special;
  for (const auto& role : roles()) {
    const JsonObject* source = map.members.contains(role.key)      ? &map
                               : config.members.contains(role.key) ? &config
                                                                   : nullptr;
    if (source == nullptr) {
      special.*role.id = usual_id(role, find);
    } else if (const auto text = token_text(*source, role.key, source->members.at(role.key))) {
      special.*role.id = id_of(*source, role, *text, find);
    }
  }
  return special;
}

}  // namespace data::tokenizers
