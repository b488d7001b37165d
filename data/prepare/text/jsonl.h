#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/text/text_source.h"

namespace data::prepare {

struct JsonlOptions {
  std::vector<std::filesystem::path> files = {};  // read in this order
  RecordKind kind = RecordKind::kText;
  std::string text_key = "text";      // of pairs: the source
  std::string target_key = "target";  // kPair
  std::string label_key = "label";    // kLabelled
  /// Names of labels in the order of their numbers, at most 65,536. Empty: all labels of the files, whole numbers by
  /// value or else by bytes; open_jsonl() then reads every file once.
  std::vector<std::string> labels = {};
  std::int64_t part_bytes = std::int64_t{64} << 20;  // 1 to 2^40
  /// Lines that start after so many bytes of all files are left out. 0: none. Labels are looked for in all lines.
  std::int64_t most_bytes = 0;
  /// Called for each line that cannot be a record, whatever is wrong with it; the line is then left out. `text` gives
  /// the error, at the cost of a look through the file. Several threads may call it. Empty: such a line is an error.
  std::function<void(const std::function<std::string()>& text)> on_damaged = {};
};

/// JSON lines: one JSON object a line, UTF-8. Each is a record. A key may lead into objects: "translation.en" is the
/// key of this name or, without one, "en" in the object "translation". Texts are JSON strings; a label is a string, a
/// whole number or true or false, and 1.0 is the label 1. Other keys are ignored; their values may be NaN, Infinity and
/// -Infinity, as Python and pandas write them. Lines of white space are left out.
///
/// Parts are ranges of bytes of one file: a line belongs to the part in which it starts. A line has at most 64 MiB.
///
/// Throws std::runtime_error "FILE:LINE: finding; remedy": a line that is no JSON object or too long, a key that is
/// missing or of another type, a label that options.labels lacks, a packed file, no file at all. With on_damaged only
/// the last two.
TextSource open_jsonl(const JsonlOptions& options);

}  // namespace data::prepare
