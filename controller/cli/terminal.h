#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// Columns to fit: those of the terminal on stdout, else of COLUMNS, else 80. At least 40.
std::size_t columns();
/// The same for what people look for in a pipe: without a terminal or COLUMNS nothing is cut or broken into lines.
std::size_t table_columns();
/// Lines of the terminal on stdout, else of LINES; SIZE_MAX where nobody says. At least 5.
std::size_t screen_lines();
bool stdout_is_terminal();
bool stderr_is_terminal();

enum class Colour { kNone, kGreen, kRed, kYellow, kBlue, kDim };
/// The text in that colour, if stdout is a terminal, NO_COLOR is not set and TERM is not "dumb".
std::string painted(std::string_view text, Colour colour);
/// Of a job's, attempt's or rank's state.
Colour colour_of_state(std::string_view state);

/// Rows under titles, aligned, never wider than table_columns(). Where it does not fit, the columns that may shrink are
/// cut; where that is not enough, the last ones are left out.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;       // align right: numbers
    std::size_t shrinks = 0;  // may be cut down to so many characters; 0: never
    bool state = false;       // coloured as a state
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  /// With a line end after each row. `indent` spaces go before each.
  std::string text(std::size_t indent = 0) const;

 private:
  /// Of the columns that are shown.
  std::vector<std::size_t> widths(std::size_t room) const;
  std::string line(const std::vector<std::string>& row, const std::vector<std::size_t>& widths, bool title) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace cli
