#pragma once

#include <memory>

#include "data/prepare/left_out.h"
#include "data/prepare/options.h"
#include "data/prepare/records.h"
#include "data/tokenizers/tokenizer.h"

namespace data::prepare {

/// Whether the source gives images, which have no tokenizer.
bool has_images(From from);

/// Opens the source that the options describe. `tokenizer`: null for images. `left_out` gets what --skip-damaged leaves
/// out, and must outlive the records. Throws std::runtime_error naming option or path, finding and remedy.
Records open_records(const PrepareOptions& options, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                     LeftOut& left_out);

}  // namespace data::prepare
