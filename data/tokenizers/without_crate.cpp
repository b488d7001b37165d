#include <stdexcept>

#include "data/tokenizers/json_tokenizer.h"

namespace data::tokenizers {

std::shared_ptr<const Tokenizer> open_json(const JsonSource& source) {
  throw std::runtime_error(source.file.string() + ": this build reads no " +
                           (source.kind == "tokenizer.json" ? source.kind : "model of sentencepiece") +
                           "; configure with -DMUSTER_WITH_TOKENIZERS=ON, which needs "
                           "cargo, or use the tokenizer \"bytes\"");
}

}  // namespace data::tokenizers
