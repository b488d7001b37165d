#include "worker/infer/encode.h"

#include "base/usage_error.h"
#include "data/tokenizers/utf8.h"

namespace infer {
namespace {

using worker::TokenIds;

void append(TokenIds& ids, const data::tokenizers::Tokenizer::Ids& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

std::string beginning_of(std::string_view text) {
  constexpr std::size_t kMostShown = 40;
  const bool is_long = text.size() > kMostShown;
  std::string shown = data::tokenizers::repaired(text.substr(0, kMostShown));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return "\"" + shown + (is_long ? ".." : "") + "\"";
}

TokenIds ids_to_continue(const Source& source, const std::string& text) {
  TokenIds ids;
  append(ids, source.tokenizer->prefix());
  append(ids, source.tokenizer->encode(text, /*with_special=*/false));
  if (!ids.empty()) return ids;
  const auto& special = source.tokenizer->special();
  if (const auto first = special.bos ? special.bos : special.eos) return {*first};
  throw base::UsageError("an empty text, and the tokenizer has no token that begins one; give a text");
}

TokenIds ids_to_read(const Source& source, const std::string& text) {
  TokenIds ids;
  append(ids, source.tokenizer->encode(text, /*with_special=*/true));
  if (ids.empty()) throw base::UsageError("the text " + beginning_of(text) + " has no tokens; leave it out");
  return ids;
}

void check_length(const TokenIds& ids, std::int64_t most, const std::string& text) {
  if (most == 0 || static_cast<std::int64_t>(ids.size()) <= most) return;
  throw base::UsageError("the text " + beginning_of(text) + " has " + std::to_string(ids.size()) +
                         " tokens, and the model reads at most " + std::to_string(most) + "; give a part of it");
}

}  // namespace infer
