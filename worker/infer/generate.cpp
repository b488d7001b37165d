#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "data/tokenizers/tokenizer.h"
#include "worker/infer/commands.h"
#include "worker/infer/encode.h"
#include "worker/infer/infer_model.h"
#include "worker/infer/texts.h"
#include "worker/models/config_json.h"
#include "worker/models/generation_json.h"

namespace infer {
namespace {

using worker::TokenIds;

std::vector<std::uint32_t> narrow(const TokenIds& ids) {
  return {ids.begin(), ids.end()};
}

/// The text of new tokens behind their prompt.
std::string text_behind(const Source& source, const TokenIds& before, const TokenIds& tokens) {
  TextStream stream(*source.tokenizer, narrow(before));
  std::string text;
  for (const auto token : tokens) text += stream.add(static_cast<std::uint32_t>(token));
  return text + stream.finish();
}

/// The room that the model has for new tokens behind a prompt; throws where there is none.
std::int64_t room_behind(const TokenIds& prompt, const std::string& text, std::int64_t most_positions) {
  // The last new token is not read.
  const std::int64_t room = most_positions - static_cast<std::int64_t>(prompt.size()) + 1;
  if (room >= 1) return room;
  throw base::UsageError("the text " + beginning_of(text) + " has " + std::to_string(prompt.size()) +
                         " tokens, and the model takes " + std::to_string(most_positions) +
                         " with what is new; give a shorter one");
}

/// transformers reads generation_config.json. transformers 4 reads the same members of config.json too where there is
/// no such file, and where it has made the file of them; transformers 5 passes them over.
void check_generation_files(const Source& source) {
  const fsdp::Json* made = worker::given(source.generation, "_from_model_config");
  try {
    if (!source.generation.is_null())
      worker::check_generation(source.generation, worker::kGenerationConfigFile, /*is_whole=*/true);
    if (source.generation.is_null() || (made != nullptr && *made == fsdp::Json(true)))
      worker::check_generation(source.config, worker::kModelConfigFile, /*is_whole=*/false);
  } catch (const std::invalid_argument& refused) {
    throw base::UsageError(source.name() + ": " + refused.what());
  }
}

class Generation {
 public:
  Generation(const Options& options, const Source& source, const Console& console)
      : options_(options), source_(source), console_(console), model_(open_generator(source, options)) {
    sampling_ = {.temperature = options.temperature,
                 .top_p = options.top_p,
                 .max_new_tokens = options.max_new_tokens,
                 .ends = ends_of(source),
                 .seed = options.seed};
  }

  /// Texts that go through the model together.
  void run(std::span<const std::string> texts, bool is_only) {
    std::vector<TokenIds> prompts;
    auto sampling = sampling_;
    for (const auto& text : texts) {
      prompts.push_back(model_->answers() ? ids_to_read(source_, text) : ids_to_continue(source_, text));
      if (model_->answers()) {
        check_length(prompts.back(), model_->most_positions(), text);
      } else if (model_->most_positions() > 0) {
        sampling.max_new_tokens =
            std::min(sampling.max_new_tokens, room_behind(prompts.back(), text, model_->most_positions()));
      }
    }
    if (sampling.max_new_tokens < sampling_.max_new_tokens) {
      console_.notes << "muster-infer: at most " << sampling.max_new_tokens << " new tokens, because the model takes "
                     << model_->most_positions() << " with the text\n";
    }
    if (is_only && !options_.json) {
      stream(texts[0], prompts, sampling);
    } else {
      const auto results = model_->generate(prompts, sampling, {});
      for (std::size_t row = 0; row < texts.size(); ++row) print(texts[row], prompts[row], results[row]);
    }
    sampling_.first_row += texts.size();
  }

 private:
  TokenIds before(const TokenIds& prompt) const { return model_->answers() ? TokenIds() : prompt; }

  void stream(const std::string& text, const std::vector<TokenIds>& prompts, const worker::Sampling& sampling) {
    TextStream pieces(*source_.tokenizer, narrow(before(prompts[0])));
    if (!model_->answers()) show(console_, data::tokenizers::repaired(text));
    model_->generate(prompts, sampling, [&](std::size_t, std::int64_t token) {
      show(console_, pieces.add(static_cast<std::uint32_t>(token)));
      console_.out << std::flush;
      return static_cast<bool>(console_.out);
    });
    show(console_, pieces.finish() + "\n");
  }

  void print(const std::string& text, const TokenIds& prompt, const TokenIds& result) const {
    const std::string made = text_behind(source_, before(prompt), result);
    if (!options_.json) {
      show(console_, (model_->answers() ? "" : data::tokenizers::repaired(text)) + made + "\n");
      return;
    }
    fsdp::Json out;
    out["prompt"] = data::tokenizers::repaired(text);
    out["text"] = made;
    out["tokens"] = fsdp::Json::Array(result.begin(), result.end());
    out["ended"] = !result.empty() && std::ranges::find(sampling_.ends, result.back()) != sampling_.ends.end();
    console_.out << out.dump() << "\n";
  }

  const Options& options_;
  const Source& source_;
  const Console& console_;
  const std::unique_ptr<Generator> model_;
  worker::Sampling sampling_;
};

}  // namespace

void run_generate(const Options& options, const Source& source, const std::vector<std::string>& texts,
                  const Console& console) {
  check_generation_files(source);
  Generation generation(options, source, console);
  const auto batch = static_cast<std::size_t>(options.batch);
  for (std::size_t begin = 0; begin < texts.size(); begin += batch)
    generation.run(std::span(texts).subspan(begin, std::min(batch, texts.size() - begin)), texts.size() == 1);
}

}  // namespace infer
