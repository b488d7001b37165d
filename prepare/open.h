#pragma once

#include <functional>
#include <memory>
#include <string>

#include "prepare/options.h"
#include "prepare/records.h"
#include "tokens/tokenizer.h"

namespace prepare {

/// Whether the source gives images, which have no tokenizer.
bool has_images(From from);

/// Opens the source that the options describe. `tokenizer`: null for images. `say` gets a line for each damaged image
/// that is left out; several threads may call it. Throws std::runtime_error naming option or path, finding and remedy.
Records open_records(const PrepareOptions& options, std::shared_ptr<const tokens::Tokenizer> tokenizer,
                     std::function<void(const std::string& line)> say);

}  // namespace prepare
