#include "data/prepare/text/man_pages.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checksum.h"

namespace data::prepare {
namespace {

std::optional<char> special_character(std::string_view name) {
  struct Entry {
    std::string_view name;
    char is;
  };
  static constexpr std::array<Entry, 24> kTable = {
      {{"em", '-'}, {"en", '-'}, {"hy", '-'}, {"mi", '-'}, {"bu", '*'}, {"aq", '\''}, {"cq", '\''}, {"oq", '\''},
       {"dq", '"'}, {"lq", '"'}, {"rq", '"'}, {"ga", '`'}, {"ha", '^'}, {"ti", '~'},  {"rs", '\\'}, {"pl", '+'},
       {"eq", '='}, {"sl", '/'}, {"ba", '|'}, {"at", '@'}, {"sh", '#'}, {"ul", '_'},  {"<=", '<'},  {">=", '>'}}};
  for (const auto& entry : kTable) {
    if (entry.name == name) return entry.is;
  }
  return std::nullopt;
}

/// Reads the name after an escape that takes one: X, (XX or [name]. Moves `at` past the name.
std::string_view escape_name(std::string_view line, std::size_t& at) {
  if (at >= line.size()) return {};
  if (line[at] == '(') {
    const auto name = line.substr(at + 1, 2);
    at = std::min(at + 3, line.size());
    return name;
  }
  if (line[at] == '[') {
    const auto close = std::min(line.find(']', at), line.size());
    const auto name = line.substr(at + 1, close - at - 1);
    at = std::min(close + 1, line.size());
    return name;
  }
  return line.substr(at++, 1);
}

/// Skips a quoted argument such as the 'x' of \h'x'.
void skip_quoted(std::string_view line, std::size_t& at) {
  if (at >= line.size()) return;
  const auto close = line.find(line[at], at + 1);
  at = close == std::string_view::npos ? line.size() : close + 1;
}

/// Handles the escape whose letter is at `at`. Returns false when the rest of the line is a comment.
bool append_escape(std::string_view line, std::size_t& at, std::string& out) {
  const char kind = line[at++];
  const auto is = [kind](std::string_view letters) { return letters.find(kind) != std::string_view::npos; };
  if (is("\"#")) return false;
  if (is("fFmMnk")) {
    escape_name(line, at);
  } else if (is("*([")) {
    if (kind != '*') --at;  // the bracket belongs to the name
    if (const auto c = special_character(escape_name(line, at))) out += *c;
  } else if (kind == 's') {
    if (at < line.size() && (line[at] == '+' || line[at] == '-')) ++at;
    escape_name(line, at);
  } else if (is("hvwlLoDXNbxS")) {
    skip_quoted(line, at);
  } else if (is("~0 t")) {
    out += ' ';
  } else if (is("e\\")) {
    out += '\\';
  } else if (is("-'`._")) {
    out += kind;
  }
  return true;  // \& \| \^ \, \/ \: \% \c \d \u \p \{ \} and unknown escapes print nothing
}

std::string plain(std::string_view line) {
  std::string out;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] != '\\') {
      out += line[at++];
    } else if (++at < line.size() && !append_escape(line, at, out)) {
      break;
    }
  }
  return out;
}

/// A macro's arguments, separated by blanks. "..." groups words; "" inside a group is a quote.
std::vector<std::string> arguments(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
      continue;
    }
    std::string word;
    if (text[at] == '"') {
      for (++at; at < text.size(); ++at) {
        if (text[at] != '"') {
          word += text[at];
        } else if (at + 1 < text.size() && text[at + 1] == '"') {
          word += text[at++];
        } else {
          break;
        }
      }
      if (at < text.size()) ++at;
    } else {
      while (at < text.size() && text[at] != ' ' && text[at] != '\t') {
        if (text[at] == '\\' && at + 1 < text.size()) word += text[at++];
        word += text[at++];
      }
    }
    out.push_back(std::move(word));
  }
  return out;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_mdoc(std::string_view name) {
  return name.size() == 2 && name[0] >= 'A' && name[0] <= 'Z' && name[1] >= 'a' && name[1] <= 'z';
}

class Page {
 public:
  void line(std::string_view raw) {
    if (ignoring_) {
      if (raw.starts_with("..")) ignoring_ = false;
      return;
    }
    if (raw.empty()) {
      paragraph();
    } else if (raw[0] == '.' || raw[0] == '\'') {
      macro(raw.substr(1));
    } else {
      words(plain(raw), true);
    }
  }

  std::string take() {
    paragraph();
    return std::move(text_);
  }

 private:
  void break_line() {
    if (!text_.empty() && text_.back() != '\n') text_ += '\n';
  }

  void paragraph() {
    break_line();
    if (text_.size() >= 2 && text_[text_.size() - 2] != '\n') text_ += '\n';
  }

  void words(std::string_view line, bool space) {
    if (line.empty()) return;
    if (as_is_) {
      text_ += line;
      text_ += '\n';
      return;
    }
    if (space && !text_.empty() && text_.back() != '\n' && text_.back() != ' ') text_ += ' ';
    text_ += line;
  }

  void joined(const std::vector<std::string>& list, bool spaces) {
    std::string line;
    for (const auto& word : list) {
      if (spaces && !line.empty()) line += ' ';
      line += plain(word);
    }
    words(line, true);
  }

  void mdoc(std::string_view name, const std::vector<std::string>& list) {
    if (is_one_of(name, {"Dd", "Dt", "Os", "Bd", "Bl", "Ed", "El", "Rs", "Re", "Ns", "Sm"})) return break_line();
    std::string line = name == "Fl" ? "-" : name == "Nd" ? "- " : "";
    for (const auto& word : list) {
      if (word == "Fl") {
        line += '-';
      } else if (!is_mdoc(word)) {
        if (!line.empty() && line.back() != '-') line += ' ';
        line += plain(word);
      }
    }
    words(line, true);
  }

  void macro(std::string_view rest) {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\t')) rest.remove_prefix(1);
    const auto space = rest.find_first_of(" \t");
    const auto name = rest.substr(0, space);
    if (name.empty() || name.starts_with("\\\"")) return;
    const auto list = arguments(space == std::string_view::npos ? std::string_view{} : rest.substr(space));
    if (is_one_of(name, {"SH", "SS", "Sh", "Ss"})) {
      as_is_ = false;
      paragraph();
      joined(list, true);
      break_line();
    } else if (is_one_of(name, {"PP", "P", "LP", "Pp", "sp", "TP", "TQ", "HP"})) {
      paragraph();
    } else if (is_one_of(name, {"IP", "It"})) {
      paragraph();
      if (!list.empty()) words(plain(name == "IP" ? list[0] : ""), true);
      if (name == "It") mdoc(name, list);
      break_line();
    } else if (is_one_of(name, {"B", "I", "SM", "SB"})) {
      joined(list, true);
    } else if (is_one_of(name, {"BR", "RB", "BI", "IB", "IR", "RI"})) {
      joined(list, false);
    } else if (is_one_of(name, {"nf", "EX", "fi", "EE", "br"})) {
      break_line();
      if (name != "br") as_is_ = name == "nf" || name == "EX";
    } else if (is_one_of(name, {"de", "ig", "am", "de1", "TS"})) {
      ignoring_ = name != "TS";
    } else if (is_mdoc(name)) {
      mdoc(name, list);
    }
  }

  std::string text_;
  bool as_is_ = false;     ///< inside an example: lines are kept unchanged
  bool ignoring_ = false;  ///< inside a macro definition
};

}  // namespace

std::string roff_to_text(std::string_view source) {
  Page page;
  while (!source.empty()) {
    const auto end = source.find('\n');
    auto line = source.substr(0, end);
    source = end == std::string_view::npos ? std::string_view{} : source.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(".so ")) return {};
    page.line(line);
  }
  return page.take();
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostManPageBytes = 4 << 20;
constexpr std::size_t kMostManPages = 1'000'000;
constexpr std::int64_t kManPagesAPart = 512;
constexpr std::int64_t kEnoughManBytes = 512 << 10;  // packed; about 1.5 MB of text

/// One manual page of a folder.
struct ManPage {
  std::uint64_t order;  // a hash of the file name
  fs::path path;
  struct stat status {};
};

/// The English pages of sections 1 to 8 below `folder`, at most 1,000,000. Links are left out. The order is that of a
/// hash of the file names, so each range of it is a fair sample.
std::vector<ManPage> list_man_pages(const fs::path& folder) {
  std::vector<ManPage> pages;
  for (char section = '1'; section <= '8'; ++section) {
    std::error_code error;
    fs::directory_iterator in(folder / (std::string("man") + section), error);
    for (const fs::directory_iterator end; !error && in != end && pages.size() < kMostManPages; in.increment(error)) {
      ManPage page{base::checksum_of(in->path().filename().native()), in->path()};
      if (::lstat(page.path.c_str(), &page.status) == 0 && S_ISREG(page.status.st_mode)) pages.push_back(page);
    }
  }
  std::sort(pages.begin(), pages.end(),
            [](const ManPage& a, const ManPage& b) { return std::tie(a.order, a.path) < std::tie(b.order, b.path); });
  return pages;
}

/// The page's roff source, unpacked, at most 4 MiB; empty for a damaged file.
std::string man_page_source(const fs::path& path) {
  try {
    const auto bytes = InputFile(path).read_all(kMostManPageBytes);
    return path.extension() == ".gz" ? gunzip(bytes, kMostManPageBytes) : bytes;
  } catch (const std::runtime_error&) {
    return {};  // one damaged page of thousands
  }
}

/// A hash of names relative to `folder`, sizes and times of modification, which pages have from their package: machines
/// with the same packages have the same one.
std::string fingerprint_of(const std::vector<ManPage>& pages, const fs::path& folder) {
  base::Checksum sum;
  for (const auto& page : pages) {
    sum.add(page.path.lexically_relative(folder).native() + ":" + std::to_string(page.status.st_size) + ":" +
            std::to_string(page.status.st_mtim.tv_sec) + "\n");
  }
  return sum.hex();
}

std::string man_page_text(const ManPage& page) {
  return roff_to_text(man_page_source(page.path));
}

/// Leaves out the pages after `most_bytes` of text. Returns how much of the last page is kept.
std::size_t keep_bytes_of(std::vector<ManPage>& pages, std::int64_t most_bytes) {
  auto left = static_cast<std::size_t>(most_bytes);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto bytes = man_page_text(pages[i]).size();
    if (bytes < left) {
      left -= bytes;
      continue;
    }
    pages.resize(i + 1);
    return left;
  }
  return kMostManPageBytes;
}

}  // namespace

TextSource open_man_text(const ManTextOptions& options) {
  check_range("max bytes", options.most_bytes, 0, std::int64_t{1} << 50);
  auto pages = list_man_pages(options.folder);
  if (pages.empty()) {
    throw std::runtime_error(options.folder.native() +
                             ": there are no manual pages; install some (apt-get install man-db manpages), or name a "
                             "folder with man1 to man8 in it");
  }
  const auto of_last = options.most_bytes > 0 ? keep_bytes_of(pages, options.most_bytes) : kMostManPageBytes;
  const auto count = std::ssize(pages);
  std::string description = "man " + options.folder.native() + " max_bytes=" + std::to_string(options.most_bytes) +
                            " pages=" + std::to_string(count) + " " + fingerprint_of(pages, options.folder);
  std::string name = options.folder == ManTextOptions().folder ? "the manual pages of this machine"
                                                               : "the manual pages below " + options.folder.native();
  return in_parts({RecordKind::kText, std::move(description), std::move(name)}, count, kManPagesAPart,
                  [count, of_last, kept = std::make_shared<const std::vector<ManPage>>(std::move(pages))](
                      std::int64_t number, const RecordSink& sink) {
                    const auto text = man_page_text((*kept)[static_cast<std::size_t>(number)]);
                    const auto used = number + 1 == count ? cut_text(text, of_last) : std::string_view(text);
                    if (!used.empty()) sink({used});
                  });
}

bool has_man_text(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& page : list_man_pages(folder)) bytes += page.status.st_size;
  return bytes >= kEnoughManBytes;
}

namespace {

constexpr std::size_t kLeastArticle = 80;
constexpr std::size_t kMostArticle = 64 << 10;
constexpr std::size_t kLeastSummary = 8;
constexpr std::size_t kEnoughPages = 500;

/// The words behind a macro, in capitals, without quotes: DESCRIPTION of .SH "Description".
std::string heading_of(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '"' || c == '\r') continue;
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  const auto first = out.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return out.substr(first, out.find_last_not_of(" \t") - first + 1);
}

/// The roff source of the first section with this heading; empty if there is none. Headings in macro definitions do not
/// count.
std::string_view section_of(std::string_view roff, std::string_view heading) {
  std::size_t begin = std::string_view::npos;
  bool in_definition = false;
  for (std::size_t at = 0; at < roff.size();) {
    const auto end = std::min(roff.find('\n', at), roff.size());
    const auto line = roff.substr(at, end - at);
    if (in_definition) {
      in_definition = !line.starts_with("..");
    } else if (line.starts_with(".de") || line.starts_with(".ig") || line.starts_with(".am")) {
      in_definition = true;
    } else if (line.starts_with(".SH") || line.starts_with(".Sh")) {
      if (begin != std::string_view::npos) return roff.substr(begin, at - begin);
      if (heading_of(line.substr(3)) == heading) begin = std::min(end + 1, roff.size());
    }
    at = end + 1;
  }
  return begin == std::string_view::npos ? std::string_view{} : roff.substr(begin);
}

/// The text behind the first dash between spaces: "list directory contents" of "ls - list directory contents".
std::string_view behind_dash(std::string_view name) {
  for (const std::string_view dash : {" - ", " -- "}) {
    if (const auto at = name.find(dash); at != std::string_view::npos) return name.substr(at + dash.size());
  }
  return {};
}

TextSource machine_source(std::vector<ManPage> pages, const ManPairsOptions& options) {
  if (options.most_pages > 0 && std::ssize(pages) > options.most_pages) {
    pages.resize(static_cast<std::size_t>(options.most_pages));
  }
  const auto count = std::ssize(pages);
  std::string description = "man-pairs " + options.folder.native() + " pages=" + std::to_string(count) + " " +
                            fingerprint_of(pages, options.folder);
  return in_parts({RecordKind::kPair, std::move(description), "the manual pages below " + options.folder.native()},
                  count, kManPagesAPart,
                  [kept = std::make_shared<const std::vector<ManPage>>(std::move(pages))](std::int64_t number,
                                                                                          const RecordSink& sink) {
                    const auto pair = man_pair(man_page_source((*kept)[static_cast<std::size_t>(number)].path));
                    if (pair) sink({pair->article, pair->summary});
                  });
}

TextSource built_in_source(std::size_t found, const ManPairsOptions& options) {
  base::Checksum sum;
  for (const auto page : fixture_texts("pages/")) sum.add(page);
  std::string name =
      "the built-in manual pages, because " + options.folder.native() + " has " + std::to_string(found) + " pages";
  return in_parts({RecordKind::kPair, "built-in man-pairs " + sum.hex(), std::move(name)}, 1, 1,
                  [](std::int64_t, const RecordSink& sink) {
                    for (const auto page : fixture_texts("pages/")) {
                      if (const auto pair = man_pair(page)) sink({pair->article, pair->summary});
                    }
                  });
}

}  // namespace

std::optional<ManPair> man_pair(std::string_view roff) {
  const auto name = one_line(roff_to_text(section_of(roff, "NAME")));
  auto article = roff_to_text(section_of(roff, "DESCRIPTION"));
  article.erase(article.find_last_not_of(" \n") + 1);  // npos + 1 is 0
  article.erase(0, article.find_first_not_of(" \n"));
  const auto summary = one_line(behind_dash(name));
  if (article.size() < kLeastArticle || summary.size() < kLeastSummary) return std::nullopt;
  return ManPair{std::string(cut_text(article, kMostArticle)), summary};
}

TextSource open_man_pairs(const ManPairsOptions& options) {
  check_range("pages", options.most_pages, 0, kMostManPages);
  auto pages = list_man_pages(options.folder);
  if (pages.size() >= kEnoughPages) return machine_source(std::move(pages), options);
  if (options.may_fall_back) return built_in_source(pages.size(), options);
  throw std::runtime_error(options.folder.native() + ": holds " + std::to_string(pages.size()) +
                           " manual pages, want " + std::to_string(kEnoughPages) +
                           "; install some (apt-get install man-db manpages), or use the built-in ones");
}

}  // namespace data::prepare
