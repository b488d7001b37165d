#pragma once

#include <string>
#include <string_view>

namespace worker {

/// A manual page's source as plain text, by rule of thumb: headings, paragraphs and words are kept; requests, macros of
/// both families (man and mdoc), fonts, comments and tables' layout go. Not a typesetter: good enough to learn from.
/// Pages that only include another page (".so") give an empty text. Never throws on any input.
std::string roff_to_text(std::string_view source);

}  // namespace worker
