#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/format/format.h"
#include "data/prepare/images/image_source.h"
#include "data/prepare/prepare_options.h"
#include "data/prepare/text/text_source.h"
#include "data/tokenizers/tokenizer.h"

namespace data::prepare {

/// One example as it is written: tokens or pixels.
struct Record {
  std::vector<tokenizers::Tokenizer::Ids> fields = {};  // [fields of the kind][ids]; empty: an image
  Picture picture = {};
  std::int32_t label = -1;
};

/// Receives one record.
using PutRecord = std::function<void(Record&& record)>;

/// A source as records in numbered parts. A part is always the same records in the same order.
struct Records {
  format::Kind kind = format::Kind::kTokens;
  std::string description;          ///< equal ones, with an equal tokenizer, mean equal records
  std::string name;                 ///< for people
  std::vector<std::string> labels;  ///< names by number
  std::vector<std::string> fields;  ///< names of a record's fields
  std::int64_t parts = 1;
  /// Passes the records of part 0 to parts - 1. Several threads may call it. Throws std::runtime_error naming file,
  /// place, finding and remedy.
  std::function<void(std::int64_t part, const PutRecord& put)> make;
};

/// Texts as tokens, without special tokens. `prefix` is put before each text, or before a pair's input.
Records tokenized(TextSource source, std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::string prefix);

/// Counts what --skip-damaged leaves out of the data, and names the first ones. Several threads may call it.
class LeftOut {
 public:
  /// Further ones are counted only, so that a file of millions of damaged lines stays readable on the terminal.
  static constexpr std::int64_t kMostNamed = 20;

  explicit LeftOut(std::function<void(const std::string& line)> say) : say_(std::move(say)) {}

  /// `text` says what is wrong, with file and place. It is called only where the text is shown, because a line's number
  /// costs a look through its file.
  void add(const std::function<std::string()>& text) {
    const std::int64_t number = ++count_;
    if (number <= kMostNamed) say_("left out: " + text());
    if (number == kMostNamed) say_("left out: further ones are counted, and not named");
  }
  std::int64_t count() const { return count_; }

 private:
  std::function<void(const std::string& line)> say_;
  std::atomic<std::int64_t> count_{0};
};

/// True if the source gives images, which have no tokenizer.
bool has_images(From from);

/// Opens the source that the options describe. `tokenizer`: null for images. `left_out` gets what --skip-damaged leaves
/// out, and must outlive the records. Throws std::runtime_error naming option or path, finding and remedy.
Records open_records(const PrepareOptions& options, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                     LeftOut& left_out);

}  // namespace data::prepare
