#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/generate/decode.h"
#include "worker/infer/model_source.h"

namespace infer {

/// The ids of a text as a decoder continues it: with what the tokenizer puts before a text, without what it puts behind
/// one. An empty text is the token that begins texts, or else the one that ends them. Throws base::UsageError for an
/// empty text and a tokenizer without either.
worker::TokenIds ids_to_continue(const Source& source, const std::string& text);

/// The ids of a text as an encoder reads it. Throws base::UsageError when there are none.
worker::TokenIds ids_to_read(const Source& source, const std::string& text);

/// Throws base::UsageError unless a text has at most `most` tokens; 0: no limit.
void check_length(const worker::TokenIds& ids, std::int64_t most, const std::string& text);

/// The beginning of a text in quotes, for messages.
std::string beginning_of(std::string_view text);

/// Calls `use` for the texts in groups of at most options.batch, with the ids of each group.
template <class Use>
void in_batches(const Options& options, const Source& source, const std::vector<std::string>& texts, std::int64_t most,
                const Use& use) {
  for (std::size_t begin = 0; begin < texts.size(); begin += static_cast<std::size_t>(options.batch)) {
    const auto group =
        std::span(texts).subspan(begin, std::min(texts.size() - begin, static_cast<std::size_t>(options.batch)));
    std::vector<worker::TokenIds> ids;
    for (const auto& text : group) {
      ids.push_back(ids_to_read(source, text));
      check_length(ids.back(), most, text);
    }
    use(group, ids);
  }
}

}  // namespace infer
