#include "data/tokenizers/spm_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

namespace data::tokenizers {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[group >> (18 - 6 * k) & 0x3F] : '=';
  }
  return text;
}

namespace {

using Ids = std::unordered_map<std::string_view, std::size_t>;

struct Merge {
  std::string_view left, right;
  float score = 0;  // of the whole
  std::size_t left_characters = 0, right_characters = 0;
  std::size_t left_id = 0, right_id = 0;
};

bool takes_part(const SpmPiece& piece, SpmStyle style) {
  return style != SpmStyle::kPlain || piece.type == SpmType::kNormal || piece.type == SpmType::kUserDefined;
}

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

/// The merges that give one piece, in the order of the ids of their parts.
std::vector<Merge> cuts_of(std::string_view piece, float score, const Ids& ids) {
  const auto characters = static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), begins_character));
  std::vector<Merge> cuts;
  std::size_t before = 1;  // characters before the place
  for (std::size_t place = 1; place < piece.size(); ++place) {
    if (!begins_character(piece[place])) continue;
    const auto left = ids.find(piece.substr(0, place));
    const auto right = left == ids.end() ? left : ids.find(piece.substr(place));
    if (right != ids.end()) {
      cuts.push_back({left->first, right->first, score, before, characters - before, left->second, right->second});
    }
    ++before;
  }
  std::sort(cuts.begin(), cuts.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
  });
  return cuts;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> merges_of(const SpmModel& model, SpmStyle style) {
  Ids ids;
  ids.reserve(model.pieces.size());
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (takes_part(model.pieces[id], style)) ids.emplace(model.pieces[id].text, id);
  }
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (!takes_part(piece, style)) continue;
    const auto cuts = cuts_of(piece.text, style == SpmStyle::kLlama && id < 3 ? 0 : piece.score, ids);
    merges.insert(merges.end(), cuts.begin(), cuts.end());
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_characters, a.right_characters) >
           std::tie(b.score, b.left_characters, b.right_characters);
  });
  std::vector<std::pair<std::string_view, std::string_view>> result;
  result.reserve(merges.size());
  for (const auto& merge : merges) result.emplace_back(merge.left, merge.right);
  return result;
}

namespace {

using Json = nlohmann::json;

constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581, sentencepiece's space
constexpr const char* kEnd = "</s>";            // of a text of T5

/// T5's extra ids in the order of their ids: <extra_id_99> to <extra_id_0>. None for other styles.
std::vector<std::string> extras_of(const SpmOptions& options) {
  std::vector<std::string> extras;
  if (options.style != SpmStyle::kT5) return extras;
  for (std::int64_t i = options.extra_ids; i-- > 0;) extras.push_back("<extra_id_" + std::to_string(i) + ">");
  return extras;
}

/// All that has an id: the pieces, then T5's extra ids, then added tokens that are neither.
class Vocabulary {
 public:
  Vocabulary(const SpmModel& model, const SpmOptions& options) {
    for (const auto& piece : model.pieces) add(piece.text);
    const auto extras = extras_of(options);
    for (const auto& text : extras) add_extra(text);
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const auto& piece = model.pieces[id];
      if (piece.type == SpmType::kControl || piece.type == SpmType::kUserDefined) {
        add_token({.text = piece.text, .is_special = piece.type == SpmType::kControl});
      }
    }
    for (const auto& token : options.added) add_token(token);
    add_token({.text = model.pieces[model.unknown].text});
    for (const auto& text : extras) add_token({.text = text});
  }

  std::size_t id(const std::string& text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) {
      throw std::runtime_error("no piece is \"" + text + "\", which is put around texts; is it the right file?");
    }
    return found->second;
  }

  Json added_tokens() const {
    std::vector<std::pair<std::size_t, const AddedToken*>> sorted;
    for (const auto& token : tokens_) sorted.emplace_back(ids_.at(token.text), &token);
    std::sort(sorted.begin(), sorted.end());
    Json result = Json::array();
    for (const auto& [id, token] : sorted) {
      result.push_back({{"id", id},
                        {"content", token->text},
                        {"single_word", token->single_word},
                        {"lstrip", token->strips_left},
                        {"rstrip", token->strips_right},
                        {"normalized", token->is_normalized},
                        {"special", token->is_special}});
    }
    return result;
  }

 private:
  std::size_t add(const std::string& text) { return ids_.emplace(text, ids_.size()).first->second; }

  void add_extra(const std::string& text) {
    const std::size_t next = ids_.size();
    if (add(text) == next) return;
    throw std::runtime_error("the model has a piece \"" + text +
                             "\" of its own; write \"extra_ids\": 0 into the tokenizer_config.json beside it");
  }

  /// The first token of a text stays, but a later one can make it special, as in transformers.
  void add_token(const AddedToken& token) {
    const std::size_t id = add(token.text);
    if (token.id && *token.id != static_cast<std::int64_t>(id)) {
      throw std::runtime_error("the added token \"" + token.text + "\" gets the id " + std::to_string(id) +
                               ", but the folder's files say " + std::to_string(*token.id) +
                               "; they belong to another model file");
    }
    const auto [place, is_new] = places_.emplace(token.text, tokens_.size());
    if (is_new) {
      tokens_.push_back(token);
    } else if (token.is_special) {
      tokens_[place->second].is_special = true;
    }
  }

  std::unordered_map<std::string, std::size_t> ids_, places_;
  std::vector<AddedToken> tokens_;
};

void check(const SpmModel& model, const SpmOptions& options) {
  if (model.algorithm != SpmAlgorithm::kUnigram && model.algorithm != SpmAlgorithm::kBpe) {
    throw std::runtime_error(std::string("the model_type is ") +
                             (model.algorithm == SpmAlgorithm::kWord ? "WORD" : "CHAR") +
                             "; only UNIGRAM and BPE can be read: train another model");
  }
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == SpmType::kUnused) {
      throw std::runtime_error("piece " + std::to_string(id) +
                               " has the type UNUSED, which no tokenizer.json can express; train a model without it");
    }
  }
  if (options.style == SpmStyle::kPlain && model.treat_whitespace_as_suffix) {
    throw std::runtime_error(
        "trainer_spec says treat_whitespace_as_suffix, which no tokenizer.json can express; train a model without it");
  }
  if (options.style == SpmStyle::kPlain && !model.escape_whitespaces) {
    throw std::runtime_error(
        "normalizer_spec says escape_whitespaces = false, which can't be read; train a model with it");
  }
  const auto is_end = [](const SpmPiece& piece) { return piece.text == kEnd; };
  if (options.style == SpmStyle::kT5 && std::none_of(model.pieces.begin(), model.pieces.end(), is_end)) {
    throw std::runtime_error(std::string("no piece is ") + kEnd +
                             ", which T5 has after each text; is it the right file?");
  }
  if (options.style == SpmStyle::kLlama && model.unknown != 0) {
    throw std::runtime_error("the unknown piece has the id " + std::to_string(model.unknown) +
                             ", but a model of Llama's style has it first; is it the right file?");
  }
}

bool falls_back(const SpmModel& model, const SpmOptions& options) {
  // transformers' T5TokenizerFast does not use the byte pieces of mT5 and umT5 either.
  return options.style == SpmStyle::kLlama || (options.style == SpmStyle::kPlain && model.byte_fallback);
}

Json unigram(const SpmModel& model, const SpmOptions& options) {
  Json vocabulary = Json::array();
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const double score = options.style == SpmStyle::kLlama && id < 3 ? 0 : static_cast<double>(model.pieces[id].score);
    vocabulary.push_back({model.pieces[id].text, score});
  }
  for (const auto& text : extras_of(options)) vocabulary.push_back({text, 0.0});
  return {{"type", "Unigram"},
          {"unk_id", model.unknown},
          {"vocab", std::move(vocabulary)},
          {"byte_fallback", falls_back(model, options)}};
}

Json bpe(const SpmModel& model, const SpmOptions& options) {
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < model.pieces.size(); ++id) vocabulary[model.pieces[id].text] = id;
  for (const auto& text : extras_of(options)) vocabulary.emplace(text, vocabulary.size());
  Json merges = Json::array();
  for (const auto& [left, right] : merges_of(model, options.style)) {
    merges.push_back(Json::array({std::string(left), std::string(right)}));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", model.pieces[model.unknown].text},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", falls_back(model, options)},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

Json replace(const char* kind, const std::string& pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

Json sequence(const char* members, Json steps) {
  return {{"type", "Sequence"}, {members, std::move(steps)}};
}

Json prepend() {
  return {{"type", "Prepend"}, {"prepend", kSpace}};
}

Json normalizer(const SpmModel& model, const SpmOptions& options) {
  Json steps = Json::array();
  if (options.style == SpmStyle::kLlama) {
    if (!options.legacy) return nullptr;
    if (options.add_prefix_space) steps.push_back(prepend());
    steps.push_back(replace("String", " ", kSpace));
    return sequence("normalizers", std::move(steps));
  }
  if (!model.charsmap.empty()) {
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(model.charsmap)}});
  }
  if (options.style == SpmStyle::kT5) {
    steps.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
    steps.push_back(replace("Regex", " {2,}", kSpace));
    return sequence("normalizers", std::move(steps));
  }
  if (model.remove_extra_whitespaces) {
    steps.push_back(replace("Regex", R"(\A +)", ""));
    steps.push_back(replace("Regex", " {2,}", " "));
    steps.push_back(replace("Regex", std::string("[ ") + kSpace + R"(]+\z)", ""));
  }
  if (model.add_dummy_prefix) steps.push_back(prepend());
  steps.push_back(replace("String", " ", kSpace));
  return sequence("normalizers", std::move(steps));
}

Json metaspace(const SpmOptions& options, bool splits) {
  return {{"type", "Metaspace"},
          {"replacement", kSpace},
          {"prepend_scheme", !options.add_prefix_space ? "never"
                             : options.legacy          ? "always"
                                                       : "first"},
          {"split", splits}};
}

Json pre_tokenizer(const SpmOptions& options) {
  if (options.style == SpmStyle::kT5) return metaspace(options, true);
  if (options.style == SpmStyle::kLlama && !options.legacy) return metaspace(options, false);
  return nullptr;
}

/// How many spaces decoding takes from the begin of a text.
int leading_spaces(const SpmModel& model, const SpmOptions& options) {
  if (options.style == SpmStyle::kLlama) return options.add_prefix_space ? 1 : 0;
  if (model.remove_extra_whitespaces) return std::numeric_limits<int>::max();
  return model.add_dummy_prefix ? 1 : 0;
}

Json decoder(const SpmModel& model, const SpmOptions& options) {
  if (options.style == SpmStyle::kT5) return metaspace(options, true);
  Json steps = Json::array();
  steps.push_back(replace("String", kSpace, " "));
  if (falls_back(model, options)) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  const int spaces = leading_spaces(model, options);
  if (spaces > 0) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", spaces}, {"stop", 0}});
  return sequence("decoders", std::move(steps));
}

/// Puts `before` and `after` around a text.
Json template_of(const Vocabulary& vocabulary, const std::optional<std::string>& before,
                 const std::optional<std::string>& after) {
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  const auto add_special = [&](const std::optional<std::string>& text, int type_id) {
    if (!text) return;
    const Json item = {{"SpecialToken", {{"id", *text}, {"type_id", type_id}}}};
    if (type_id == 0) single.push_back(item);
    pair.push_back(item);
    special[*text] = {{"id", *text}, {"ids", Json::array({vocabulary.id(*text)})}, {"tokens", Json::array({*text})}};
  };
  const auto add_text = [&](const char* name, int type_id) {
    const Json item = {{"Sequence", {{"id", name}, {"type_id", type_id}}}};
    if (type_id == 0) single.push_back(item);
    pair.push_back(item);
  };
  for (const int type_id : {0, 1}) {
    add_special(before, type_id);
    add_text(type_id == 0 ? "A" : "B", type_id);
    add_special(after, type_id);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

Json post_processor(const SpmOptions& options, const Vocabulary& vocabulary) {
  if (options.style == SpmStyle::kT5) return template_of(vocabulary, std::nullopt, kEnd);
  if (options.style == SpmStyle::kLlama && (options.bos || options.eos)) {
    return template_of(vocabulary, options.bos, options.eos);
  }
  return nullptr;
}

}  // namespace

std::string tokenizer_json_of(const SpmModel& model, const SpmOptions& options) {
  check(model, options);
  const Vocabulary vocabulary(model, options);
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", vocabulary.added_tokens()},
                     {"normalizer", normalizer(model, options)},
                     {"pre_tokenizer", pre_tokenizer(options)},
                     {"post_processor", post_processor(options, vocabulary)},
                     {"decoder", decoder(model, options)},
                     {"model", model.algorithm == SpmAlgorithm::kBpe ? bpe(model, options) : unigram(model, options)}};
  return file.dump();
}

}  // namespace data::tokenizers
