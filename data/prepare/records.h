#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/format/format.h"
#include "data/prepare/images/source.h"
#include "data/prepare/text/source.h"
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

/// Images as they are.
Records pictures(ImageSource source, std::string name);

}  // namespace data::prepare
