#include "data/prepare/prepare_options.h"

#include <algorithm>
#include <array>

#include "base/arguments.h"
#include "base/numbers.h"

namespace data::prepare {

const char* const kHelp = R"(muster data COMMAND ...

Makes training data of texts, tables of texts, or images: files that all ranks of a node map, with
checksums and with the tokenizer that made them. muster-data is the same program under its own name.

  prepare   make a folder of data
  show      what a folder holds
  check     read every byte of a folder and compare the checksums
  decode    print one record

Exit codes: 0 done; 1 the system refused, such as a full disk; 2 wrong usage, source or data; 130 and
143 stopped by SIGINT or SIGTERM.
muster data COMMAND --help says more.
)";

const char* const kPrepareHelp = R"(muster data prepare --from KIND [SOURCE...] --to FOLDER [OPTIONS]

Reads a source, turns it into tokens or pixels, and writes them to FOLDER. The same command again goes
on where it was stopped or killed, and any number of --jobs gives the same bytes. Other options into the
same folder are refused. FOLDER can be used once data.json is in it.

KIND and SOURCE
  text       files or folders of text; a file is a record, and a large one several
  jsonl      files with a JSON object a line
  man        manual pages as text; SOURCE: their folder, /usr/share/man if it is left out
  man-pairs  DESCRIPTION of manual pages as input, what NAME says as target; SOURCE as for man
  packages   descriptions of Debian packages, the section as label; SOURCE: files of control
             paragraphs, this machine's package lists if it is left out
  chess      games that a simple player plays against itself
  images     a folder of .jpg, .png, .ppm and .pgm files; its subfolders are the labels
  shapes     drawn shapes of 8 labels, for tests and examples
  glyphs     drawn digits and capital letters, 36 labels
  textures   drawn patterns of 8 labels, which any part of an image shows
  fixture    a small text that is built in
  auto       man if there are enough manual pages, else fixture; SOURCE as for man

Every source
  --to FOLDER          a new folder, or one that this command has begun
  --cache FOLDER       instead of --to: a folder of their own in FOLDER, whose path is printed. Data that
                       are there already are checked and used; of several processes one makes them
  --name-only          with --cache: print that path, whether data are there or not, and make nothing
  --validation SHARE   share of the records for the split "validation", 0 to 0.9 (0.05)
  --seed N             of the validation split, and of what is drawn or played (1)
  --jobs N             threads (one a core)
  --skip-damaged       jsonl, images: leave out lines and files that cannot be read, name the first ones on
                       stderr, and tell how many there were

Texts
  --tokenizer PATH     bytes, a folder with tokenizer.json or tokenizer.model, or one of these files (bytes)
  --prefix TEXT        put before each text, or before a pair's input: "summarize: "
  --max-bytes SIZE     text, jsonl, man, fixture, auto: no more than this (16MiB; all)
  --part-size SIZE     text, jsonl: bytes of the source in one file (64MiB)
  --count N            chess: games (10000); man-pairs: pages (all)
  --fields FIELDS      jsonl: text, or input,target, or text,label (text). text=body takes the key "body"
                       of the object; meta.title leads into the object "meta"
  --labels A,B,...     jsonl: the labels in the order of their numbers (all that the files have, sorted)
  --sections N         packages: keep the N largest sections, 0 keeps all (12)
  --notation san|uci   chess (san)
  --plies N            chess: half-moves of a game at most, 1 to 1000 (60)

Images
  --size N             images: the shorter side is shrunk to N pixels (256);
                       shapes, glyphs, textures: pixels a side, 8 to 1024 (48)
  --count N            shapes, glyphs, textures (4096)

  muster data prepare --from jsonl train.jsonl --to data --tokenizer models/t5 --fields input=article,target=title
  muster data prepare --from chess --count 100000 --to games --tokenizer models/codellama --jobs 8
  muster data prepare --from images photos/ --to pictures --size 224
)";

const char* const kShowHelp = R"(muster data show FOLDER [--json]

Prints what the folder holds: source, tokenizer, labels, and of each split records, elements and files.

  --json   print data.json
)";

const char* const kCheckHelp = R"(muster data check FOLDER

Reads every byte and compares the checksums, the fingerprint and the copied tokenizer. Exit code 2 and the
file and block of the first damage, if there is one.
)";

const char* const kDecodeHelp = R"(muster data decode FOLDER [--record N] [--split NAME] [--ids] [--to FILE]

Prints a record: its label, and each field as the folder's own tokenizer decodes it.

  --record N     counted from 0 (0)
  --split NAME   train or validation (train)
  --ids          print the tokens' numbers
  --to FILE      write an image to a PPM file
)";

namespace {

constexpr std::array<std::string_view, 12> kFromNames = {"text",   "jsonl",  "man",    "man-pairs", "packages", "chess",
                                                         "images", "shapes", "glyphs", "textures",  "fixture",  "auto"};

/// A set of sources, a bit each.
using Sources = unsigned;

template <class... Froms>
constexpr Sources sources(Froms... froms) {
  return (0U | ... | (1U << static_cast<unsigned>(froms)));
}

constexpr Sources kAnySource = (1U << kFromNames.size()) - 1;
constexpr Sources kImageSources = sources(From::kImages, From::kShapes, From::kGlyphs, From::kTextures);
constexpr Sources kTextSources = kAnySource & ~kImageSources;

/// The function by which an option takes its value. Throws UsageError.
using Take = void (*)(PrepareOptions& out, const std::string& option, const std::string& value);

struct OptionRow {
  std::string_view name;
  Sources of;
  Take take;
  bool is_flag = false;
};

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& want) {
  throw UsageError(option + " " + (value.empty() ? "\"\"" : value) + ": want " + want);
}

std::int64_t number_of(const std::string& option, const std::string& value, std::int64_t least, std::int64_t most) {
  const auto number = base::whole_number<std::int64_t>(value);
  if (number && *number >= least && *number <= most) return *number;
  refuse(option, value, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

std::int64_t size_of(const std::string& option, const std::string& value) {
  const auto bytes = base::parse_size_bytes(value);
  if (bytes && *bytes >= 1 && *bytes <= std::int64_t{1} << 40) return *bytes;
  refuse(option, value, "a size up to 1024GiB, such as 64MiB");
}

double share_of(const std::string& option, const std::string& value) {
  const auto share = base::whole_number<double>(value);
  if (share && *share >= 0 && *share <= 0.9) return *share;
  refuse(option, value, "a number from 0 to 0.9");
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0;;) {
    const auto comma = text.find(',', begin);
    out.emplace_back(text.substr(begin, comma - begin));
    if (comma == std::string_view::npos) return out;
    begin = comma + 1;
  }
}

/// "input=article,target=title": roles, each with the key of the JSON object that has it.
void take_fields(PrepareOptions& out, const std::string& option, const std::string& value) {
  const char* const want = "text, or input,target, or text,label; ROLE=KEY names another key of the JSON objects";
  std::string roles;
  std::vector<std::string> keys;
  for (const auto& field : split_at_commas(value)) {
    const auto equals = field.find('=');
    const auto role = field.substr(0, equals);
    roles += (keys.empty() ? "" : ",") + role;
    keys.push_back(equals == std::string::npos ? role : field.substr(equals + 1));
    if (keys.back().empty()) refuse(option, value, want);
  }
  if (roles == "text") {
    out.kind = RecordKind::kText;
  } else if (roles == "input,target") {
    out.kind = RecordKind::kPair;
  } else if (roles == "text,label") {
    out.kind = RecordKind::kLabelled;
  } else {
    refuse(option, value, want);
  }
  out.first_key = keys[0];
  out.second_key = keys.size() > 1 ? keys[1] : "";
}

void take_labels(PrepareOptions& out, const std::string& option, const std::string& value) {
  out.labels = split_at_commas(value);
  if (std::any_of(out.labels.begin(), out.labels.end(), [](const auto& label) { return label.empty(); })) {
    refuse(option, value, "names with commas between them");
  }
}

void take_notation(PrepareOptions& out, const std::string& option, const std::string& value) {
  if (value != "san" && value != "uci") refuse(option, value, "san or uci");
  out.notation = value == "san" ? chess::Notation::kSan : chess::Notation::kUci;
}

constexpr auto kOptionRows = std::to_array<OptionRow>({
    {"--to", kAnySource, [](auto& out, auto&, auto& value) { out.to = value; }},
    {"--cache", kAnySource, [](auto& out, auto&, auto& value) { out.cache = value; }},
    {"--name-only", kAnySource, [](auto& out, auto&, auto&) { out.name_only = true; }, true},
    {"--validation", kAnySource,
     [](auto& out, auto& option, auto& value) { out.validation = share_of(option, value); }},
    {"--seed", kAnySource,
     [](auto& out, auto& option, auto& value) { out.seed = number_of(option, value, 0, INT64_MAX); }},
    {"--jobs", kAnySource,
     [](auto& out, auto& option, auto& value) { out.jobs = static_cast<int>(number_of(option, value, 1, 1024)); }},
    {"--tokenizer", kTextSources, [](auto& out, auto&, auto& value) { out.tokenizer = value; }},
    {"--prefix", kTextSources, [](auto& out, auto&, auto& value) { out.prefix = value; }},
    {"--max-bytes", sources(From::kText, From::kJsonl, From::kMan, From::kFixture, From::kAuto),
     [](auto& out, auto& option, auto& value) { out.max_bytes = size_of(option, value); }},
    {"--part-size", sources(From::kText, From::kJsonl),
     [](auto& out, auto& option, auto& value) { out.part_bytes = size_of(option, value); }},
    {"--count", sources(From::kChess, From::kManPairs, From::kShapes, From::kGlyphs, From::kTextures),
     [](auto& out, auto& option, auto& value) { out.count = number_of(option, value, 1, 1'000'000'000); }},
    {"--fields", sources(From::kJsonl), take_fields},
    {"--labels", sources(From::kJsonl), take_labels},
    {"--sections", sources(From::kPackages),
     [](auto& out, auto& option, auto& value) { out.sections = number_of(option, value, 0, 65'536); }},
    {"--notation", sources(From::kChess), take_notation},
    {"--plies", sources(From::kChess),
     [](auto& out, auto& option, auto& value) { out.plies = number_of(option, value, 1, 1'000); }},
    {"--size", kImageSources,
     [](auto& out, auto& option, auto& value) { out.size = number_of(option, value, 1, 16'384); }},
    {"--skip-damaged", sources(From::kImages, From::kJsonl), [](auto& out, auto&, auto&) { out.skip_damaged = true; },
     true},
});

using Line = base::Arguments;

const OptionRow* row_of(std::string_view name) {
  const auto* const found =
      std::find_if(kOptionRows.begin(), kOptionRows.end(), [&](const auto& row) { return row.name == name; });
  return found == kOptionRows.end() ? nullptr : found;
}

/// The options of these sources, for messages.
std::string options_of(Sources of) {
  std::string out;
  for (const auto& row : kOptionRows) {
    if ((row.of & of) != 0) out += (out.empty() ? "" : ", ") + std::string(row.name);
  }
  return out;
}

From from_of(const Line& line) {
  std::string all;
  for (const auto name : kFromNames) all += (all.empty() ? "" : ", ") + std::string(name);
  const auto* const given = line.find("--from");
  if (given == nullptr) throw UsageError("--from is missing; want one of " + all);
  const auto* const found = std::find(kFromNames.begin(), kFromNames.end(), *given);
  if (found == kFromNames.end()) refuse("--from", *given, "one of " + all);
  return static_cast<From>(found - kFromNames.begin());
}

/// How many SOURCE a kind takes.
void check_sources(const PrepareOptions& options) {
  struct Wanted {
    std::size_t least, most;
    const char* what;
  };
  const auto wanted = [&]() -> Wanted {
    switch (options.from) {
      case From::kText:
        return {1, SIZE_MAX, "files or folders of text"};
      case From::kJsonl:
        return {1, SIZE_MAX, "files of JSON lines"};
      case From::kImages:
        return {1, 1, "one folder of images"};
      case From::kMan:
      case From::kManPairs:
      case From::kAuto:
        return {0, 1, "no SOURCE, or one folder of manual pages"};
      case From::kPackages:
        return {0, SIZE_MAX, "no SOURCE, or files of packages"};
      default:
        return {0, 0, "no SOURCE"};
    }
  }();
  const auto count = options.sources.size();
  if (count >= wanted.least && count <= wanted.most) return;
  const auto from = "--from " + std::string(name_of(options.from)) + ": want " + wanted.what;
  if (count < wanted.least) throw UsageError(from);
  throw UsageError(from + ", and there is \"" + options.sources[wanted.most].native() + "\"");
}

PrepareOptions prepare_options(const Line& line) {
  PrepareOptions out;
  out.from = from_of(line);
  const Sources of = sources(out.from);
  for (const auto& [name, value] : line.options) {
    if (name == "--from") continue;
    const auto& row = *row_of(name);
    if ((row.of & of) == 0) {
      throw UsageError(name + ": --from " + std::string(name_of(out.from)) + " has no such option; it has " +
                       options_of(of));
    }
    row.take(out, name, value);
  }
  if (out.to.empty() && out.cache.empty()) throw UsageError("--to is missing; want the folder for the data");
  if (!out.to.empty() && !out.cache.empty()) {
    throw UsageError("--cache: --to names the folder of the data already; give one of the two");
  }
  if (out.name_only && out.cache.empty()) throw UsageError("--name-only: names a folder of a cache; want --cache");
  if (!out.labels.empty() && out.kind != RecordKind::kLabelled) {
    throw UsageError("--labels: the records have no label; want --fields text,label");
  }
  out.sources.assign(line.words.begin(), line.words.end());
  check_sources(out);
  return out;
}

std::filesystem::path one_folder(const Line& line) {
  if (line.words.empty()) throw UsageError("want FOLDER, a folder that muster data prepare has written");
  if (line.words.size() > 1) throw UsageError("\"" + line.words[1] + "\" is one argument too many; want one FOLDER");
  return line.words[0];
}

Command parse_prepare(std::span<const std::string> words) {
  std::vector<base::Option> known{{"--from"}};
  for (const auto& row : kOptionRows) known.push_back({row.name, !row.is_flag});
  const auto line = base::read_arguments(words, known);
  if (line.help) return HelpOptions{kPrepareHelp};
  return prepare_options(line);
}

Command parse_show(std::span<const std::string> words) {
  const auto line = base::read_arguments(words, std::array{base::Option{"--json", false}});
  if (line.help) return HelpOptions{kShowHelp};
  return ShowOptions{one_folder(line), line.has("--json")};
}

Command parse_check(std::span<const std::string> words) {
  const auto line = base::read_arguments(words, {});
  if (line.help) return HelpOptions{kCheckHelp};
  return CheckOptions{one_folder(line)};
}

Command parse_decode(std::span<const std::string> words) {
  const auto known = std::to_array<base::Option>({{"--record"}, {"--split"}, {"--ids", false}, {"--to"}});
  const auto line = base::read_arguments(words, known);
  if (line.help) return HelpOptions{kDecodeHelp};
  DecodeOptions out{.folder = one_folder(line), .ids = line.has("--ids"), .to = {}};
  if (const auto* record = line.find("--record")) out.record = number_of("--record", *record, 0, INT64_MAX);
  if (const auto* split = line.find("--split")) out.split = *split;
  if (const auto* to = line.find("--to")) out.to = *to;
  return out;
}

}  // namespace

std::string_view name_of(From from) {
  return kFromNames.at(static_cast<std::size_t>(from));
}

Command parse_command(std::span<const std::string> words) {
  if (words.empty()) throw UsageError("want a command: prepare, show, check or decode");
  const auto& command = words.front();
  const auto rest = words.subspan(1);
  if (command == "prepare") return parse_prepare(rest);
  if (command == "show") return parse_show(rest);
  if (command == "check") return parse_check(rest);
  if (command == "decode") return parse_decode(rest);
  if (command == "--help" || command == "-h" || command == "help") return HelpOptions{kHelp};
  throw UsageError("there is no command \"" + command + "\"; want prepare, show, check or decode");
}

}  // namespace data::prepare
