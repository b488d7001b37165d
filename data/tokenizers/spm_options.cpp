#include "data/tokenizers/spm_json.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "base/numbers.h"
#include "data/tokenizers/json_tokenizer.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kMaxExtraIds = 10'000;
constexpr std::string_view kExtra = "<extra_id_";
// In transformers' order.
constexpr std::array kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};

/// The files beside a model. Those that are not there have no members.
struct Folder {
  explicit Folder(const fs::path& path)
      : config(read_object(path / "tokenizer_config.json")),
        map(read_object(path / "special_tokens_map.json")),
        added(read_object(path / "added_tokens.json")),
        model(read_object(path / "config.json")) {
    if (!config.members.contains("added_tokens_decoder")) return;
    map.members.clear();
    added.members.clear();
  }

  /// The file that says what `key` is: special_tokens_map.json before tokenizer_config.json. Null if none does.
  const JsonObject* with(const std::string& key) const {
    return map.members.contains(key) ? &map : config.members.contains(key) ? &config : nullptr;
  }

  JsonObject config, map, added, model;
};

/// The class in Python, without "Fast"; empty if no file names one.
std::string class_of(const Folder& folder) {
  std::string name = folder.config.text("tokenizer_class").value_or("");
  if (name.empty()) name = folder.model.text("tokenizer_class").value_or("");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name == "PreTrainedTokenizer" ? "" : name;
}

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void refuse_class(const JsonObject& object, const std::string& key, const std::string& name) {
  throw std::runtime_error(object.path.string() + ": " + key + " is \"" + name +
                           "\", which gives ids by rules of its own; make a tokenizer.json by transformers: "
                           "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
}

bool begins_with(const SpmModel& model, std::initializer_list<SpmPiece> pieces) {
  return model.pieces.size() >= pieces.size() &&
         std::equal(pieces.begin(), pieces.end(), model.pieces.begin(),
                    [](const SpmPiece& a, const SpmPiece& b) { return a.text == b.text && a.type == b.type; });
}

SpmStyle style_of(const SpmModel& model) {
  const SpmPiece unknown{.text = "<unk>", .type = SpmType::kUnknown};
  const SpmPiece begin{.text = "<s>", .type = SpmType::kControl}, end{.text = "</s>", .type = SpmType::kControl};
  const SpmPiece padding{.text = "<pad>", .type = SpmType::kControl};
  if (model.algorithm == SpmAlgorithm::kBpe && model.byte_fallback && model.charsmap.empty() &&
      model.add_dummy_prefix && !model.remove_extra_whitespaces && begins_with(model, {unknown, begin, end})) {
    return SpmStyle::kLlama;
  }
  if (model.algorithm == SpmAlgorithm::kUnigram && !model.charsmap.empty() && model.add_dummy_prefix &&
      model.remove_extra_whitespaces && begins_with(model, {padding, end, unknown})) {
    return SpmStyle::kT5;
  }
  return SpmStyle::kPlain;
}

SpmStyle style_of(const Folder& folder, const std::string& class_name, const SpmModel& model) {
  if (!class_name.empty()) {
    if (is_one_of(class_name, {"T5Tokenizer", "MT5Tokenizer"})) return SpmStyle::kT5;
    if (is_one_of(class_name, {"LlamaTokenizer", "CodeLlamaTokenizer"})) return SpmStyle::kLlama;
    const bool in_config = folder.config.text("tokenizer_class").has_value();
    refuse_class(in_config ? folder.config : folder.model, "tokenizer_class", class_name);
  }
  const auto type = folder.model.text("model_type");
  if (!type) return style_of(model);
  if (is_one_of(*type, {"t5", "mt5", "umt5", "longt5"})) return SpmStyle::kT5;
  if (is_one_of(*type, {"llama", "mistral", "mixtral"})) return SpmStyle::kLlama;
  // These have no tokenizer of sentencepiece in transformers, so the model is somebody's own.
  if (is_one_of(*type, {"gpt_neox", "bert", "dinov2"})) return SpmStyle::kPlain;
  refuse_class(folder.model, "model_type", *type);
}

bool flag_of(const JsonObject& object, const std::string& key, const Json& token, const char* name, bool usual) {
  const Json* found = given(token, name);
  if (found == nullptr) return usual;
  if (!found->is_boolean()) object.refuse(key + "." + name, *found, "true or false");
  return found->get<bool>();
}

/// A token as a text or as an object with its flags; none if it is null.
std::optional<AddedToken> token_of(const JsonObject& object, const std::string& key, const Json& value,
                                   bool is_special) {
  const auto text = token_text(object, key, value);
  if (!text) return std::nullopt;
  if (text->empty()) throw std::runtime_error(object.path.string() + ": " + key + " is empty; remove it");
  AddedToken token{.text = *text, .is_special = is_special, .is_normalized = !is_special};
  if (!value.is_object()) return token;
  token.is_special = is_special || flag_of(object, key, value, "special", false);
  token.single_word = flag_of(object, key, value, "single_word", false);
  token.strips_left = flag_of(object, key, value, "lstrip", false);
  token.strips_right = flag_of(object, key, value, "rstrip", false);
  token.is_normalized = flag_of(object, key, value, "normalized", !token.is_special);
  return token;
}

/// "added_tokens_decoder" has the ids as keys, added_tokens.json has them as values.
std::vector<AddedToken> numbered_tokens(const Folder& folder) {
  std::vector<AddedToken> tokens;
  const auto decoder = folder.config.members.find("added_tokens_decoder");
  if (decoder != folder.config.members.end()) {
    if (!decoder->is_object()) folder.config.refuse("added_tokens_decoder", *decoder, "an object");
    for (const auto& [key, value] : decoder->items()) {
      const std::string name = "added_tokens_decoder." + key;
      auto token = token_of(folder.config, name, value, false);
      const auto id = base::whole_number<std::int64_t>(key);
      if (!id || !token) folder.config.refuse(name, value, "a token, and its id as the key");
      token->id = id;
      tokens.push_back(std::move(*token));
    }
  }
  for (const auto& [text, id] : folder.added.members.items()) {
    if (!id.is_number_integer() || text.empty()) folder.added.refuse('"' + text + '"', id, "a text with an id");
    tokens.push_back({.text = text, .is_special = false, .is_normalized = true, .id = id.get<std::int64_t>()});
  }
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

std::optional<std::string> usual_token(SpmStyle style, std::string_view role) {
  if (style == SpmStyle::kPlain) return std::nullopt;
  if (role == "unk_token") return "<unk>";
  if (role == "eos_token") return "</s>";
  if (role == "bos_token" && style == SpmStyle::kLlama) return "<s>";
  if (role == "pad_token" && style == SpmStyle::kT5) return "<pad>";
  return std::nullopt;
}

/// The token as a file names it, or else the usual one.
std::optional<AddedToken> named_token(const Folder& folder, const char* role, std::optional<std::string> usual) {
  if (const auto* source = folder.with(role)) return token_of(*source, role, source->members.at(role), true);
  if (usual) return AddedToken{.text = *std::move(usual)};
  return std::nullopt;
}

/// Parts of a prompt that CodeLlama fills in the middle of.
void add_tokens_of_code_llama(const Folder& folder, std::vector<AddedToken>& tokens) {
  for (const auto& [role, usual] : {std::pair{"prefix_token", "\xE2\x96\x81<PRE>"},
                                    {"middle_token", "\xE2\x96\x81<MID>"},
                                    {"suffix_token", "\xE2\x96\x81<SUF>"},
                                    {"eot_token", "\xE2\x96\x81<EOT>"}}) {
    if (auto token = named_token(folder, role, usual)) tokens.push_back(std::move(*token));
  }
}

std::vector<AddedToken> additional_tokens(const Folder& folder) {
  constexpr const char* kKey = "additional_special_tokens";
  std::vector<AddedToken> tokens;
  const auto* source = folder.with(kKey);
  if (source == nullptr || source->members.at(kKey).is_null()) return tokens;
  const Json& list = source->members.at(kKey);
  if (!list.is_array()) source->refuse(kKey, list, "a list");
  for (const auto& value : list) {
    if (auto token = token_of(*source, kKey, value, true)) tokens.push_back(std::move(*token));
  }
  return tokens;
}

std::int64_t extra_ids(const Folder& folder, const std::vector<AddedToken>& additional) {
  const auto listed = std::count_if(additional.begin(), additional.end(),
                                    [](const AddedToken& token) { return token.text.starts_with(kExtra); });
  const Json* found = given(folder.config.members, "extra_ids");
  if (found == nullptr) return listed > 0 ? listed : 100;
  if (!found->is_number_integer() || found->get<std::int64_t>() < 0 || found->get<std::int64_t>() > kMaxExtraIds) {
    folder.config.refuse("extra_ids", *found, "a number of 0 to 10000");
  }
  const auto wanted = found->get<std::int64_t>();
  if (listed > 0 && wanted > 0 && listed != wanted) {
    throw std::runtime_error(folder.config.path.string() + ": extra_ids is " + std::to_string(wanted) + ", but " +
                             std::to_string(listed) + " of them are among additional_special_tokens");
  }
  return wanted;
}

}  // namespace

SpmOptions spm_options(const fs::path& file, const SpmModel& model) {
  const Folder folder(file.parent_path());
  const std::string class_name = class_of(folder);
  SpmOptions options{.style = style_of(folder, class_name, model), .added = numbered_tokens(folder)};
  for (const char* role : kRoles) {
    if (auto token = named_token(folder, role, usual_token(options.style, role)))
      options.added.push_back(std::move(*token));
  }
  const auto additional = additional_tokens(folder);
  options.added.insert(options.added.end(), additional.begin(), additional.end());
  if (options.style == SpmStyle::kPlain) return options;

  if (class_name == "CodeLlamaTokenizer") {
    add_tokens_of_code_llama(folder, options.added);  // this class knows neither of the two below
  } else {
    options.legacy = folder.config.flag("legacy", true);
    options.add_prefix_space = folder.config.flag("add_prefix_space", true);
  }
  if (options.style == SpmStyle::kT5) {
    options.extra_ids = extra_ids(folder, additional);
    return options;
  }
  const auto around = [&](const char* key, bool usual, const char* role) -> std::optional<std::string> {
    if (!folder.config.flag(key, usual)) return std::nullopt;
    const auto token = named_token(folder, role, usual_token(options.style, role));
    if (token) return token->text;
    throw std::runtime_error(folder.config.path.string() + ": " + key + " is true, but there is no " + role +
                             "; name it, or write false");
  };
  options.bos = around("add_bos_token", true, "bos_token");
  options.eos = around("add_eos_token", false, "eos_token");
  return options;
}

}  // namespace data::tokenizers
