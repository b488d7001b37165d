#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/usage_error.h"
#include "data/chess/notation.h"
#include "data/prepare/text/text_source.h"

namespace data::prepare {

// The texts of --help: of the program, and of its commands.
extern const char* const kHelp;
extern const char* const kPrepareHelp;
extern const char* const kShowHelp;
extern const char* const kCheckHelp;
extern const char* const kDecodeHelp;

using base::UsageError;

/// The sources of data: the values of --from. kAuto is kMan where there are pages enough, else kFixture.
enum class From : std::uint8_t {
  kText,
  kJsonl,
  kMan,
  kManPairs,
  kPackages,
  kChess,
  kImages,
  kShapes,
  kGlyphs,
  kTextures,
  kFixture,
  kAuto
};

/// The word of --from, such as "man-pairs".
std::string_view name_of(From from);

/// `muster-data prepare`. Zeros and empty values: the source's own default.
struct PrepareOptions {
  From from = From::kText;
  std::vector<std::filesystem::path> sources = {};  // SOURCE...
  std::filesystem::path to = {};                    // either this, or
  std::filesystem::path cache = {};                 // a folder in which the data get a folder of their own
  bool name_only = false;                           // print the name of that folder and make nothing
  std::string tokenizer = "bytes";                  // for tokenizers::open_tokenizer()
  // --fields, of jsonl: the roles and the keys in the lines.
  RecordKind kind = RecordKind::kText;
  std::string first_key = "text";   // of the text, or of a pair's input
  std::string second_key = {};      // of a pair's target, or of the label
  std::vector<std::string> labels;  // --labels, of jsonl
  std::string prefix = {};          // before each text, or a pair's input
  double validation = 0.05;         // share of the records, 0 to 0.9
  std::int64_t max_bytes = 0;
  std::int64_t count = 0;
  std::int64_t size = 0;  // pixels
  std::int64_t plies = 60;
  std::int64_t sections = 12;
  chess::Notation notation = chess::Notation::kSan;
  std::int64_t seed = 1;  // 0 to 2^63 - 1
  int jobs = 0;           // threads, 1 to 1,024; 0: one a core
  std::int64_t part_bytes = std::int64_t{64} << 20;
  bool skip_damaged = false;
};

/// `muster-data show`: what a folder holds.
struct ShowOptions {
  std::filesystem::path folder;
  bool json = false;
};

/// `muster-data check`: reads every byte of a folder.
struct CheckOptions {
  std::filesystem::path folder;
};

/// `muster-data decode`: one record as a person reads it.
struct DecodeOptions {
  std::filesystem::path folder;
  std::string split = "train";
  std::int64_t record = 0;
  bool ids = false;          // tokens as numbers
  std::filesystem::path to;  // an image as a PPM file; empty: none
};

/// A request for help; its text.
struct HelpOptions {
  std::string text;
};

using Command = std::variant<PrepareOptions, ShowOptions, CheckOptions, DecodeOptions, HelpOptions>;

/// Reads a command line without the program's name. Options may be written "--name VALUE" and "--name=VALUE"; "--" ends
/// them. Nothing is opened. Throws UsageError: an unknown word, a value out of its range, an option that the source
/// does not have or that is given twice, a source without or with too many SOURCE.
Command parse_command(std::span<const std::string> words);

}  // namespace data::prepare
