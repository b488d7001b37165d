#include "data/tokenizers/json_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "base/durable_file.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uintmax_t kMaxBytes = 64 << 20;  // a configuration lists each added token

}  // namespace

void JsonObject::refuse(const std::string& key, const Json& value, const char* wanted) const {
  throw std::runtime_error(path.string() + ": " + key + " is " + value.type_name() + ", want " + wanted);
}

std::optional<std::string> JsonObject::text(const char* key) const {
  const Json* found = given(members, key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) refuse(key, *found, "a text");
  return found->get<std::string>();
}

bool JsonObject::flag(const char* key, bool usual) const {
  const Json* found = given(members, key);
  if (found == nullptr) return usual;
  if (!found->is_boolean()) refuse(key, *found, "true or false");
  return found->get<bool>();
}

const Json* given(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

JsonObject read_object(const fs::path& path) {
  JsonObject object{path, Json::object()};
  if (!fs::exists(path)) return object;
  const std::string text = base::read_whole_file(path, kMaxBytes);
  object.members = Json::parse(text, nullptr, false);
  if (!object.members.is_object()) {
    throw std::runtime_error(path.string() +
                             ": want a JSON object; save the tokenizer by transformers again, or remove the file");
  }
  return object;
}

std::optional<std::string> token_text(const JsonObject& object, const std::string& key, const Json& value) {
  if (value.is_null()) return std::nullopt;
  const Json& text = value.is_object() && value.contains("content") ? value.at("content") : value;
  if (!text.is_string()) object.refuse(key, value, "a text");
  return text.get<std::string>();
}

namespace {

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

namespace {

constexpr const char* kAgree = "; load and save the tokenizer by transformers, so that the two files agree";

/// Members that change no id here, or that special_tokens() and the functions below read.
constexpr auto kKnown = std::to_array<std::string_view>(
    {// Names and code.
     "tokenizer_class", "tokenizer_type", "processor_class", "auto_map", "name_or_path", "special_tokens_map_file",
     "tokenizer_file", "vocab_file", "merges_file", "backend", "is_local", "local_files_only", "use_fast",
     "transformers_version", "trust_remote_code", "_commit_hash",
     // Rows are cut and filled by the trainings themselves.
     "model_max_length", "max_length", "max_len", "stride", "truncation", "truncation_side", "truncation_strategy",
     "padding", "padding_side", "pad_to_multiple_of", "pad_token_type_id", "model_input_names", "return_tensors",
     "return_attention_mask", "return_token_type_ids", "verbose",
     // Members for text that is decoded, for offsets, and for chats.
     "clean_up_tokenization_spaces", "spaces_between_special_tokens", "errors", "trim_offsets", "chat_template",
     "use_default_system_prompt", "response_schema", "response_template",
     // Members for tokenizers in Python, which a tokenizer.json replaces.
     "legacy", "do_basic_tokenize", "never_split", "suffix_first", "fill_token", "unk_id",
     // Compared or read below.
     "add_bos_token", "add_eos_token", "add_prefix_space", "added_tokens_decoder", "additional_special_tokens",
     "extra_special_tokens", "model_specific_special_tokens", "extra_ids", "do_lower_case", "strip_accents",
     "tokenize_chinese_chars"});

/// Members that must have one value.
struct OnlyOne {
  std::string_view member;
  const char* json;
};
constexpr auto kOnly = std::to_array<OnlyOne>({{"split_special_tokens", "false"},
                                               {"from_slow", "false"},
                                               {"fix_mistral_regex", "false"},
                                               {"sp_model_kwargs", "{}"}});

constexpr auto kBertClasses = std::to_array<std::string_view>(
    {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "LayoutLMTokenizer"});

std::string shown(const Json& value) {
  constexpr std::size_t kMostShown = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "..";
}

[[noreturn]] void refuse(const JsonObject& object, const std::string& member, const Json& value,
                         const std::string& finding) {
  throw std::runtime_error(object.path.string() + ": " + member + " is " + shown(value) + ", " + finding);
}

bool names_a_token(const std::string& member) {
  return member.ends_with("_token") && !member.starts_with("add_");
}

void check_names(const JsonObject& config) {
  for (const auto& [name, value] : config.members.items()) {
    if (value.is_null() && name == "split_special_tokens")
      refuse(config, name, value, "which transformers refuses; write false, or remove the member");
    if (value.is_null() || names_a_token(name)) continue;
    const auto* const only = std::ranges::find(kOnly, std::string_view(name), &OnlyOne::member);
    if (only != kOnly.end()) {
      if (value != Json::parse(only->json))
        refuse(config, name, value,
               std::string("and this program has ") + only->json + " only; write that, if it is right");
    } else if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
      refuse(config, name, value,
             "and this program does not know whether that changes ids; remove the member if it changes nothing");
    }
  }
}

/// The classes that transformers takes where no file names one, by the model_type of config.json.
struct UsualClass {
  std::string_view model_type;
  const char* name;
};
constexpr auto kUsualClasses = std::to_array<UsualClass>(
    {{"bert", "BertTokenizer"}, {"gpt_neox", "GPTNeoXTokenizer"}, {"llama", "LlamaTokenizer"}, {"t5", "T5Tokenizer"}});

/// The class in Python without "Fast"; empty if it is not known.
std::string class_of(const fs::path& folder, const JsonObject& config) {
  std::string name = config.text("tokenizer_class").value_or("");
  if (name.empty()) {
    const JsonObject model = read_object(folder / "config.json");
    const std::string type = model.text("model_type").value_or("");
    const auto* const usual = std::find_if(kUsualClasses.begin(), kUsualClasses.end(),
                                           [&](const UsualClass& one) { return one.model_type == type; });
    name = model.text("tokenizer_class").value_or(usual == kUsualClasses.end() ? "" : usual->name);
  }
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

bool is_bert(const std::string& name) {
  return std::find(kBertClasses.begin(), kBertClasses.end(), name) != kBertClasses.end();
}

/// The parts of a tokenizer.json but its vocabulary and merges, which are nearly all of it.
Json parts_of(std::string_view text) {
  const auto keep = [](int depth, Json::parse_event_t event, Json& parsed) {
    return depth != 2 || event != Json::parse_event_t::key || (parsed != Json("vocab") && parsed != Json("merges"));
  };
  Json parts = Json::parse(text, keep, /*allow_exceptions=*/false);
  return parts.is_object() ? parts : Json::object();
}

std::string list_of(const Tokenizer::Ids& ids) {
  std::string text;
  for (const auto id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return ids.empty() ? "no token" : (ids.size() == 1 ? "the token " : "the tokens ") + text;
}

/// Compares one end of a text: `member` says whether the token `id` stands there.
struct End {
  const char* member;
  const char* where;
  std::optional<std::int64_t> id;
  bool usual;  // without the member
  const Tokenizer::Ids& does;
};

void check_end(const JsonObject& config, const std::string& class_name, const End& end) {
  const auto found = config.members.find(end.member);
  // Null is false for transformers 4.
  const bool wanted = found != config.members.end() && found->is_null() ? false : config.flag(end.member, end.usual);
  Tokenizer::Ids want;
  if (wanted && end.id) want.push_back(static_cast<std::uint32_t>(*end.id));
  if (want == end.does) return;
  const std::string does = "and tokenizer.json adds " + list_of(end.does) + " " + end.where + " a text" + kAgree;
  if (found != config.members.end()) refuse(config, end.member, *found, does);
  throw std::runtime_error(config.path.string() + ": has no " + end.member + ", which then is " +
                           (end.usual ? "true" : "false") + (class_name.empty() ? "" : " for the class " + class_name) +
                           ", " + does);
}

/// transformers 4 makes the post-processor of these classes anew, and transformers 5 that of GPT-NeoX. For all other
/// classes both take that of tokenizer.json. A Llama's that transformers 5 has saved is read as it means it.
void check_around(const JsonObject& config, const std::string& class_name, const JsonTokenizerFacts& facts) {
  const bool is_of_five = given(config.members, "backend") != nullptr;
  const bool is_llama = !is_of_five && (class_name == "LlamaTokenizer" || class_name == "CodeLlamaTokenizer");
  if (!is_llama && class_name != "GPTNeoXTokenizer") return;
  check_end(config, class_name, {"add_bos_token", "before", facts.special.bos, is_llama, facts.prefix});
  check_end(config, class_name, {"add_eos_token", "after", facts.special.eos, false, facts.suffix});
}

/// transformers 5 makes the post-processors of BERT and T5 anew, of the tokens that the configuration names.
void check_named_around(const JsonObject& config, const std::string& class_name, const JsonTokenizerFacts& facts) {
  const auto check = [&](const char* member, const char* where, const std::optional<std::int64_t>& id,
                         const Tokenizer::Ids& does) {
    if (!id || does == Tokenizer::Ids{static_cast<std::uint32_t>(*id)}) return;
    const auto* said = given(config.members, member);
    refuse(config, member, said == nullptr ? Json() : *said,
           "which the class " + class_name + " of transformers 5 puts " + where + " a text, and tokenizer.json adds " +
               list_of(does) + kAgree);
  };
  if (is_bert(class_name)) check("cls_token", "before", facts.special.cls, facts.prefix);
  if (is_bert(class_name)) check("sep_token", "after", facts.special.sep, facts.suffix);
  if (class_name == "T5Tokenizer") check("eos_token", "after", facts.special.eos, facts.suffix);
}

const Json* added_token(const Json& parts, std::int64_t id) {
  const auto list = parts.find("added_tokens");
  if (list == parts.end() || !list->is_array()) return nullptr;
  const auto found = std::find_if(list->begin(), list->end(), [&](const Json& token) {
    return token.is_object() && token.contains("id") && token.at("id") == Json(id);
  });
  return found == list->end() ? nullptr : &*found;
}

/// Refuses a token whose flags, where they are written, are not those of tokenizer.json.
void check_flags(const JsonObject& object, const std::string& member, const Json& token, const Json& own,
                 std::initializer_list<const char*> flags) {
  for (const char* flag : flags) {
    const auto* wanted = given(token, flag);
    if (wanted == nullptr || !own.contains(flag) || own.at(flag) == *wanted) continue;
    refuse(object, member + "." + flag, *wanted, "and tokenizer.json has " + shown(own.at(flag)) + kAgree);
  }
}

void check_added_tokens(const JsonObject& config, const Json& parts) {
  const auto* tokens = given(config.members, "added_tokens_decoder");
  if (tokens == nullptr) return;
  if (!tokens->is_object()) config.refuse("added_tokens_decoder", *tokens, "an object");
  for (const auto& [key, token] : tokens->items()) {
    const std::string member = "added_tokens_decoder." + key;
    std::int64_t id = -1;
    try {
      id = std::stoll(key);
    } catch (const std::logic_error&) {
      refuse(config, member, token, "want an id as the key");
    }
    const auto text = token_text(config, member, token);
    const auto* own = added_token(parts, id);
    if (!text || own == nullptr || own->value("content", "") != *text) {
      refuse(config, member, token,
             "and tokenizer.json has " + (own == nullptr ? "no added token of this id" : shown(own->at("content"))) +
                 kAgree);
    }
    if (token.is_object()) {
      check_flags(config, member, token, *own, {"single_word", "lstrip", "rstrip", "normalized", "special"});
    }
  }
}

void check_piece(const JsonObject& object, const std::string& member, const Json& value, const Json& parts,
                 const FindPiece& find) {
  const auto text = token_text(object, member, value);
  if (!text) return;
  const auto piece = find(*text);
  if (!piece) refuse(object, member, value, std::string("which tokenizer.json does not have") + kAgree);
  const auto* own = value.is_object() ? added_token(parts, piece->id) : nullptr;
  if (own != nullptr) check_flags(object, member, value, *own, {"single_word", "lstrip", "rstrip"});
}

/// Named tokens, and lists and objects of them.
void check_named_tokens(const JsonObject& object, const Json& parts, const FindPiece& find) {
  for (const auto& [name, value] : object.members.items()) {
    if (value.is_null() || name == "fill_token") continue;
    if (names_a_token(name)) {
      check_piece(object, name, value, parts, find);
    } else if (name == "additional_special_tokens" || name == "extra_special_tokens" ||
               name == "model_specific_special_tokens") {
      if (!value.is_array() && !value.is_object()) object.refuse(name, value, "a list or an object of tokens");
      for (const auto& [key, token] : value.items()) check_piece(object, name + "." + key, token, parts, find);
    }
  }
}

/// special_tokens_map.json holds tokens alone.
void check_map(const JsonObject& map) {
  for (const auto& [name, value] : map.members.items()) {
    if (value.is_null() || names_a_token(name) || name.ends_with("_special_tokens")) continue;
    refuse(map, name, value, "which is no token; remove the member if it changes nothing");
  }
}

/// T5's class in transformers adds its 100 extra ids where the files lack them.
void check_extra_ids(const JsonObject& config, const std::string& class_name, const FindPiece& find) {
  if (class_name != "T5Tokenizer" || given(config.members, "additional_special_tokens") != nullptr) return;
  const auto* given_ids = given(config.members, "extra_ids");
  const auto ids = given_ids == nullptr ? 100 : given_ids->is_number_integer() ? given_ids->get<std::int64_t>() : -1;
  if (ids == 0) return;
  if (ids < 0) config.refuse("extra_ids", *given_ids, "a number of tokens");
  const std::string last = "<extra_id_" + std::to_string(ids - 1) + ">";
  if (find("<extra_id_0>") && find(last)) return;
  throw std::runtime_error(config.path.string() + ": the class T5Tokenizer has " + std::to_string(ids) +
                           " extra ids, and tokenizer.json has no " + (find("<extra_id_0>") ? last : "<extra_id_0>") +
                           kAgree + ", or write extra_ids = 0");
}

/// The first part of this type, in the object itself or in its list.
const Json* part_of_type(const Json& parts, const char* name, const char* list, std::string_view type) {
  const auto* part = given(parts, name);
  if (part == nullptr || !part->is_object()) return nullptr;
  if (part->value("type", "") == type) return part;
  const auto* inner = given(*part, list);
  if (inner == nullptr || !inner->is_array()) return nullptr;
  for (const Json& one : *inner)
    if (one.is_object() && one.value("type", "") == type) return &one;
  return nullptr;
}

/// transformers 5 gives the model of a BERT the token that the configuration names.
void check_unknown_of_bert(const JsonObject& config, const Json& parts) {
  const auto* said = given(config.members, "unk_token");
  const auto* model = given(parts, "model");
  const auto* own = model == nullptr || !model->is_object() ? nullptr : given(*model, "unk_token");
  if (said == nullptr || own == nullptr || token_text(config, "unk_token", *said) == own->get<std::string>()) return;
  refuse(config, "unk_token", *said, "and the model of tokenizer.json has " + shown(*own) + kAgree);
}

void check_bert(const JsonObject& config, const std::string& class_name, const Json& parts) {
  if (!is_bert(class_name)) return;
  check_unknown_of_bert(config, parts);
  const Json* normalizer = part_of_type(parts, "normalizer", "normalizers", "BertNormalizer");
  if (normalizer == nullptr) return;
  for (const char* member : {"do_lower_case", "tokenize_chinese_chars"}) {
    const auto found = config.members.find(member);
    if (found != config.members.end() && found->is_null())
      refuse(config, member, *found, "which transformers refuses; write true or false, or remove the member");
  }
  const Json lower = config.flag("do_lower_case", true), chinese = config.flag("tokenize_chinese_chars", true);
  const auto* accents = given(config.members, "strip_accents");
  // Without a word of its own, accents go where letters become small.
  const auto stripped = [](const Json& said, const Json& small) { return said.is_null() ? small : said; };
  const Json own_lower = normalizer->value("lowercase", Json(true));
  const Json own_accents = stripped(normalizer->value("strip_accents", Json()), own_lower);
  for (const auto& [member, wanted, own] :
       {std::tuple{"do_lower_case", lower, own_lower},
        {"strip_accents", stripped(accents == nullptr ? Json() : *accents, lower), own_accents},
        {"tokenize_chinese_chars", chinese, normalizer->value("handle_chinese_chars", Json(true))}}) {
    if (wanted == own) continue;
    refuse(config, member, wanted,
           "by the file or by the class " + class_name + ", and tokenizer.json has " + shown(own) + kAgree);
  }
}

/// A space before a text, which words at its beginning then have like all others.
void check_prefix_space(const JsonObject& config, const std::string& class_name, const Json& parts) {
  const Json* bytes = part_of_type(parts, "pre_tokenizer", "pretokenizers", "ByteLevel");
  if (bytes != nullptr) {
    const bool own = bytes->value("add_prefix_space", true), wanted = config.flag("add_prefix_space", false);
    if (own != wanted)
      refuse(config, "add_prefix_space", wanted,
             "by the file or as it is usual, and tokenizer.json has " + shown(own) + kAgree);
    return;
  }
  const auto* said = given(config.members, "add_prefix_space");
  if (said == nullptr || (class_name != "LlamaTokenizer" && class_name != "T5Tokenizer")) return;
  const Json* meta = part_of_type(parts, "pre_tokenizer", "pretokenizers", "Metaspace");
  const bool prepends =
      part_of_type(parts, "normalizer", "normalizers", "Prepend") != nullptr ||
      (meta != nullptr && meta->value("prepend_scheme", "always") != "never" && meta->value("add_prefix_space", true));
  if (*said != Json(prepends))
    refuse(config, "add_prefix_space", *said,
           std::string("and tokenizer.json puts ") + (prepends ? "a space" : "no space") + " before a text" + kAgree);
}

}  // namespace

void check_known_members(const fs::path& folder) {
  check_names(read_object(folder / "tokenizer_config.json"));
}

void check_tokenizer_config(const fs::path& folder, const JsonTokenizerFacts& facts, const FindPiece& find) {
  const JsonObject config = read_object(folder / "tokenizer_config.json"),
                   map = read_object(folder / "special_tokens_map.json");
  if (config.members.empty() && map.members.empty()) return;
  check_names(config);
  check_map(map);
  const std::string class_name = config.members.empty() ? "" : class_of(folder, config);
  const Json parts = parts_of(facts.text);
  check_around(config, class_name, facts);
  if (!config.members.empty()) check_named_around(config, class_name, facts);
  check_added_tokens(config, parts);
  check_named_tokens(config, parts, find);
  if (!config.members.contains("added_tokens_decoder")) check_named_tokens(map, parts, find);
  check_extra_ids(config, class_name, find);
  check_bert(config, class_name, parts);
  if (!config.members.empty()) check_prefix_space(config, class_name, parts);
}

}  // namespace data::tokenizers
