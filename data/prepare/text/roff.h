#pragma once

#include <string>
#include <string_view>

namespace data::prepare {

/// A manual page's source as plain text, by simple rules. Headings, paragraphs and words are kept. Requests, macros
/// (man and mdoc), fonts, comments and table layout are dropped. The result is good enough to train on, but not
/// typeset. A page that only includes another page (".so") gives an empty text. Never throws on any input.
std::string roff_to_text(std::string_view source);

}  // namespace data::prepare
