#pragma once

#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {

/// The vocabulary of 256 bytes and the end of a text, 256. Needs no file.
std::shared_ptr<const Tokenizer> byte_tokenizer();

}  // namespace data::tokenizers
