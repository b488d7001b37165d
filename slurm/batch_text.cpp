#include "slurm/batch_text.h"

#include <algorithm>

#include "slurm/text.h"

namespace slurm {

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string on_one_line(std::string text) {
  for (auto& c : text) {
    if (has_control({&c, 1})) c = ' ';
  }
  return text;
}

std::string sbatch_quote(const std::string& value) {
  const auto line = on_one_line(value);
  if (!line.empty() && shell_quote(line) == line) return line;
  return "\"" + replaced(replaced(line, "\\", "\\\\"), "\"", "\\\"") + "\"";
}

bool is_option_name(std::string_view name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, fits);
}

bool needs_redirection(const LogFile& log) {
  return log.literal && (has_control(log.path) || log.path.find('\\') != std::string::npos);
}

std::string log_pattern(const LogFile& log, const std::string& index_mark) {
  if (!log.literal) return log.path;
  return replaced(replaced(log.path, "%", "%%"), replaced(index_mark, "%", "%%"), "%a");
}

std::string words_with_index(const std::string& word, const std::string& index_mark) {
  if (index_mark.empty() || word.find(index_mark) == std::string::npos) return bash_quote(word);
  std::string quoted;
  for (std::size_t at = 0;;) {
    const auto mark = word.find(index_mark, at);
    const auto piece = word.substr(at, mark == std::string::npos ? mark : mark - at);
    if (!piece.empty()) quoted += bash_quote(piece);
    if (mark == std::string::npos) return quoted;
    quoted += "\"$SLURM_ARRAY_TASK_ID\"";
    at = mark + index_mark.size();
  }
}

}  // namespace slurm
