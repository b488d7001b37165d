#include "worker/recipes/decode_text.h"

#include "base/usage_error.h"
#ifdef MUSTER_WITH_TOKENS
#include <memory>
#include <stdexcept>

#include "data/tokenizers/tokenizer.h"
#else
#include "base/utf8.h"
#endif

namespace worker {

#ifdef MUSTER_WITH_TOKENS

DecodeText decode_text_of(const std::string& path) {
  try {
    return [tokenizer = data::tokenizers::open_tokenizer(path)](const std::vector<std::int64_t>& ids) {
      const data::tokenizers::Tokenizer::Ids pieces(ids.begin(), ids.end());
      return tokenizer->decode(pieces, /*skip_special=*/true);
    };
  } catch (const std::runtime_error& error) {
    throw base::UsageError(error.what());
  }
}

#else

DecodeText decode_text_of(const std::string& path) {
  if (path != "bytes") {
    throw base::UsageError("tokenizer " + path +
                           ": this build reads the byte vocabulary alone; prepare the data with --tokenizer bytes, or "
                           "configure the build with MUSTER_WITH_CONTROLLER=ON");
  }
  return [](const std::vector<std::int64_t>& ids) {
    std::string text;
    for (const auto id : ids) {
      if (id >= 0 && id < 256) text += static_cast<char>(id);  // 256 ends a text
    }
    return base::valid_utf8(text);
  };
}

#endif

}  // namespace worker
