#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace data::prepare {

/// One paragraph of a control file, as deb822(5) describes them.
class Deb822Paragraph {
 public:
  struct Field {
    std::string_view name;   // as written
    std::string_view value;  // all its lines as they are, without the space behind the colon
  };

  /// The value of a field, whatever the case of its name; empty if there is none.
  std::string_view operator[](std::string_view name) const;

  std::vector<Field> fields;
};

/// Calls `take` for each paragraph. A line that begins with a space or a tab continues the field above it. Lines that
/// begin with '#' and lines that are no field are left out. Never throws on any input but for what `take` throws.
void for_paragraphs(std::string_view text, const std::function<void(const Deb822Paragraph&)>& take);

/// A value of several lines as text: without the space that begins each line, and with an empty line for each " .".
std::string folded_text(std::string_view value);

}  // namespace data::prepare
