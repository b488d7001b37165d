#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <nlohmann/json.hpp>
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
/// Prints as print_entry() does, but without line breaks, so that the path can be copied.
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
  /// Adds a column with a cell for each object. All columns of a table have the same objects. `text_of` is a function
  /// of an object or a member.
  template <typename Objects, typename Text>
  void add(Column column, Objects&& objects, Text text_of) {
    columns_.push_back(std::move(column));
    std::size_t row = 0;
    for (const auto& object : objects) {
      if (row == rows_.size()) rows_.emplace_back();
      rows_[row++].push_back(std::invoke(text_of, object));
    }
  }
  /// The table as text, with a line break after each row; empty: there are no objects.
  std::string text() const;

 private:
  /// The widths of the columns that are shown.
  std::vector<std::size_t> widths() const;
  std::string line(const std::vector<std::string>& row, const std::vector<std::size_t>& widths, bool title) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A message as --json prints it: "api_version" and then its fields. A time that is not known yet is null.
nlohmann::ordered_json json_of(const google::protobuf::Message& message);
nlohmann::ordered_json with_version(const nlohmann::ordered_json& object);

/// Prints one document on stdout, indented.
void print_json(const nlohmann::ordered_json& document);

/// A value as a cell of comma-separated values: a number has the shortest text that gives the same number again. The
/// cell of null, and of a number that is not finite, is empty.
std::string csv_cell(const nlohmann::ordered_json& value);

/// Prints rows on stdout as they come: in one array, which may be `[]`; each in a line; or a lone row as an object.
class JsonRows {
 public:
  enum class Form { kArray, kLines, kObject };
  explicit JsonRows(Form form) : form_(form) {}
  void add(const nlohmann::ordered_json& row);
  /// Call it once, after the last row.
  void end();

 private:
  Form form_;
  bool any_ = false;
};

/// Prints objects on stdout as one array. `to_json` is json_of() for messages.
template <typename Objects, typename ToJson = decltype(&json_of)>
void print_json_array(const Objects& objects, ToJson to_json = &json_of) {
  JsonRows rows(JsonRows::Form::kArray);
  for (const auto& object : objects) rows.add(to_json(object));
  rows.end();
}

}  // namespace cli
