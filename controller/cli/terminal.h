#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// The width for text: that of the terminal on stdout, else COLUMNS, else 80. At least 40.
std::size_t columns();
/// The width for tables. Without a terminal and COLUMNS it is unlimited, so that nothing is cut in a pipe.
std::size_t table_columns();
/// The height of the terminal on stdout, else LINES, else SIZE_MAX. At least 5.
std::size_t screen_lines();
bool stdout_is_terminal();
bool stderr_is_terminal();

/// The numbers are those of the terminal's escape sequences.
enum class Colour { kNone = 0, kDim = 2, kRed = 31, kGreen = 32, kYellow = 33, kBlue = 36 };
/// The text in this colour, if stdout is a terminal, NO_COLOR is not set and TERM is not "dumb".
std::string painted(std::string_view text, Colour colour);
/// The colour of a job's, attempt's or rank's state.
Colour colour_of_state(std::string_view state);

/// Prints "  label        text" on stdout. Further lines of the text are indented. Prints nothing if the text is empty.
void print_entry(const std::string& label, const std::string& text);
/// Prints the text behind `lead`, which is `width` characters wide. Further lines are indented as much.
void print_behind(std::string lead, std::size_t width, const std::string& text);
/// As print_entry(), but without line breaks, so that the path can be copied.
void print_path(const std::string& label, const std::string& path);

/// A table with titles and aligned columns, at most table_columns() wide. If it is too wide, columns that may shrink
/// are cut. If it is still too wide, the last columns are left out.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;       // align right: numbers
    std::size_t shrinks = 0;  // the column may be cut to this width; 0: never
    bool state = false;       // the cells are states, and get their colours
  };
  /// Adds a column with a cell for each object. All columns of a table have the same objects.
  template <typename Objects, typename Text>
  void add(Column column, Objects&& objects, Text text_of) {
    columns_.push_back(std::move(column));
    std::size_t row = 0;
    for (const auto& object : objects) {
      if (row == rows_.size()) rows_.emplace_back();
      rows_[row++].push_back(text_of(object));
    }
  }
  bool empty() const { return rows_.empty(); }
  /// The table as text. Each row begins with `indent` spaces and ends with a line break.
  std::string text(std::size_t indent = 0) const;

 private:
  /// The widths of the columns that are shown.
  std::vector<std::size_t> widths(std::size_t room) const;
  std::string line(const std::vector<std::string>& row, const std::vector<std::size_t>& widths, bool title) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace cli
