#include "worker/infer/commands.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>

#include "base/usage_error.h"
#include "data/tokenizers/tokenizer.h"
#include "fsdp/files/safetensors.h"
#include "worker/generate/decode.h"
#include "worker/infer/image_input.h"
#include "worker/infer/infer_model.h"
#include "worker/infer/model_source.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"

namespace infer {
namespace {

using worker::TokenIds;

void append(TokenIds& ids, const data::tokenizers::Tokenizer::Ids& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

/// The beginning of a text in quotes, for messages.
std::string beginning_of(std::string_view text) {
  constexpr std::size_t kMostShown = 40;
  const bool is_long = text.size() > kMostShown;
  std::string shown = data::tokenizers::repaired(text.substr(0, kMostShown));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return "\"" + shown + (is_long ? ".." : "") + "\"";
}

/// The ids of a text as a decoder continues it: with what the tokenizer puts before a text, without what it puts behind
/// one. An empty text is the token that begins texts, or else the one that ends them. Throws base::UsageError for an
/// empty text and a tokenizer without either.
TokenIds ids_to_continue(const Source& source, const std::string& text) {
  TokenIds ids;
  append(ids, source.tokenizer->prefix());
  append(ids, source.tokenizer->encode(text, /*with_special=*/false));
  if (!ids.empty()) return ids;
  const auto& special = source.tokenizer->special();
  if (const auto first = special.bos ? special.bos : special.eos) return {*first};
  throw base::UsageError("an empty text, and the tokenizer has no token that begins one; give a text");
}

/// The ids of a text as an encoder reads it. Throws base::UsageError when there are none.
TokenIds ids_to_read(const Source& source, const std::string& text) {
  TokenIds ids;
  append(ids, source.tokenizer->encode(text, /*with_special=*/true));
  if (ids.empty()) throw base::UsageError("the text " + beginning_of(text) + " has no tokens; leave it out");
  return ids;
}

/// Throws base::UsageError unless a text has at most `most` tokens; 0: no limit.
void check_length(const TokenIds& ids, std::int64_t most, const std::string& text) {
  if (most == 0 || static_cast<std::int64_t>(ids.size()) <= most) return;
  throw base::UsageError("the text " + beginning_of(text) + " has " + std::to_string(ids.size()) +
                         " tokens, and the model reads at most " + std::to_string(most) + "; give a part of it");
}

/// Calls `use` for groups of at most options.batch of these.
template <class Item, class Use>
void in_groups(const Options& options, const std::vector<Item>& all, const Use& use) {
  const auto most = static_cast<std::size_t>(options.batch);
  for (std::size_t begin = 0; begin < all.size(); begin += most)
    use(std::span(all).subspan(begin, std::min(most, all.size() - begin)));
}

/// Calls `use` for the texts in groups of at most options.batch, with the ids of each group.
template <class Use>
void in_batches(const Options& options, const Source& source, const std::vector<std::string>& texts, std::int64_t most,
                const Use& use) {
  in_groups(options, texts, [&](auto group) {
    std::vector<TokenIds> ids;
    for (const auto& text : group) {
      ids.push_back(ids_to_read(source, text));
      check_length(ids.back(), most, text);
    }
    use(group, ids);
  });
}

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

/// Continues each text by a decoder, or answers it by an encoder-decoder. Prints text and continuation, or the answer.
/// With --json an object a line: prompt, text (what is new), tokens, ended (an end came). A single text is printed as
/// its tokens come. Throws base::UsageError for a family that writes no text, and for a text that leaves no room.
void run_generate(const Options& options, const Source& source, const std::vector<std::string>& texts,
                  const Console& console) {
  check_generation_files(source);
  Generation generation(options, source, console);
  in_groups(options, texts, [&](auto group) { generation.run(group, texts.size() == 1); });
}

/// The names of vectors are in a file's header up to this size. Readers take headers of 100 MB, and JSON may need six
/// bytes for one.
constexpr std::size_t kMostNameBytes = std::size_t{8} << 20;

Pool pool_of(const Options& options, Pool usual) {
  if (options.pool.empty()) return usual;
  if (options.pool == "cls") return Pool::kCls;
  return options.pool == "mean" ? Pool::kMean : Pool::kLast;
}

/// `name` is the text, or the path of an image.
void print_vector(const Options& options, const char* kind, const std::string& name, const float* values,
                  std::int64_t size, std::ostream& out) {
  if (options.json) {
    fsdp::Json object;
    object[kind] = data::tokenizers::repaired(name);
    std::string line = object.dump();
    line.pop_back();
    out << line << ",\"embedding\":[";
  }
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0) out << (options.json ? "," : " ");
    char text[32];  // the shortest that reads back as the same number
    out.write(text, std::to_chars(text, text + sizeof text, values[i]).ptr - text);
  }
  out << (options.json ? "]}\n" : "\n");
}

/// Where vectors go: to standard output, or into one file at the end.
class Vectors {
 public:
  Vectors(const Options& options, const Source& source, const Console& console, const char* kind)
      : options_(options), source_(source), console_(console), kind_(kind) {}

  /// [names, hidden] in fp32.
  template <class Names>
  void add(const Names& names, const at::Tensor& given) {
    const at::Tensor vectors = given.contiguous();
    if (!vectors.isfinite().all().template item<bool>()) {
      throw base::UsageError("the vectors are not numbers: the weights of " + source_.name() +
                             " are damaged, or too large for --dtype " + options_.dtype + "; try --dtype fp32");
    }
    if (!options_.to.empty()) {
      all_.push_back(vectors);
      for (const std::string& name : names) {
        name_bytes_ += name.size();
        if (name_bytes_ <= kMostNameBytes) names_.emplace_back(data::tokenizers::repaired(name));
      }
      return;
    }
    const auto size = vectors.size(1);
    const float* row = vectors.const_data_ptr<float>();
    for (const std::string& name : names) {
      print_vector(options_, kind_, name, row, size, console_.out);
      row += size;
    }
  }

  void finish() {
    if (options_.to.empty()) return;
    const at::Tensor whole = at::cat(all_);
    try {
      std::map<std::string, std::string> metadata;
      if (name_bytes_ <= kMostNameBytes) metadata[kind_ + std::string("s")] = fsdp::Json(names_).dump();
      fsdp::write_safetensors(options_.to, {{"embeddings", whole}}, metadata);
    } catch (const c10::Error& error) {
      throw base::UsageError(error.what_without_backtrace());
    }
    console_.notes << "muster-infer: " << whole.size(0) << " vectors are in " << options_.to.native()
                   << (name_bytes_ <= kMostNameBytes ? "\n" : ", without the texts, which are too many\n");
  }

 private:
  const Options& options_;
  const Source& source_;
  const Console& console_;
  const char* kind_;
  std::vector<at::Tensor> all_;
  fsdp::Json::Array names_;  // of the texts or images
  std::size_t name_bytes_ = 0;
};

void embed_images(const Options& options, const Source& source, const std::vector<std::string>& paths,
                  const Console& console) {
  const auto files = image_files(paths);  // a mistake there is told before a model is loaded
  const ImageView view = image_view(source);
  const auto model = open_image_embedder(source, options);
  const Pool pool = pool_of(options, model->usual_pool());
  Vectors vectors(options, source, console, "image");
  in_groups(options, files, [&](auto group) {
    std::vector<std::string> names;
    std::vector<at::Tensor> pixels;
    for (const auto& file : group) {
      names.push_back(file.native());
      pixels.push_back(pixels_of(file, view));
    }
    vectors.add(names, model->embed(at::stack(pixels), pool));
  });
  vectors.finish();
}

/// Prints a vector for each text: numbers with spaces between them. With --json an object a line: text, embedding. With
/// --to all vectors are the tensor "embeddings", fp32 [texts, hidden], of a new safetensors file. Throws
/// base::UsageError for a family without vectors, and for a text that is empty or too long. Of a family that sees
/// images `texts` are paths of files or folders, and the object of --json has the path as its image.
void run_embed(const Options& options, const Source& source, const std::vector<std::string>& texts,
               const Console& console) {
  if (embeds_images(source)) return embed_images(options, source, texts, console);
  const auto model = open_embedder(source, options);
  const Pool pool = pool_of(options, model->usual_pool());
  Vectors vectors(options, source, console, "text");
  in_batches(options, source, texts, model->most_positions(),
             [&](auto group, const auto& ids) { vectors.add(group, model->embed(ids, pool)); });
  vectors.finish();
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

/// Prints the most likely labels of each text with their probabilities. With --json an object a line: text, labels.
/// Throws base::UsageError for a model without labels, and for a text that is empty or too long.
void run_classify(const Options& options, const Source& source, const std::vector<std::string>& texts,
                  const Console& console) {
  const auto model = open_classifier(source, options);
  const auto& labels = model->labels();
  const auto top = std::min<std::int64_t>(options.top, static_cast<std::int64_t>(labels.size()));
  in_batches(options, source, texts, model->most_positions(), [&](auto group, const auto& ids) {
    const at::Tensor shares = model->logits(ids).softmax(1);
    if (!shares.isfinite().all().template item<bool>()) {
      throw base::UsageError("the logits are not numbers: the weights of " + source.name() +
                             " are damaged, or too large for --dtype " + options.dtype + "; try --dtype fp32");
    }
    const auto [best, numbers] = shares.topk(top, 1);
    for (std::size_t row = 0; row < group.size(); ++row) {
      fsdp::Json found = fsdp::Json::Array();
      std::string line;
      for (std::int64_t i = 0; i < top; ++i) {
        const auto at = static_cast<std::int64_t>(row);
        const double share = best[at][i].template item<double>();
        const auto& label = labels[static_cast<std::size_t>(numbers[at][i].template item<std::int64_t>())];
        fsdp::Json one;
        one["label"] = label;
        one["probability"] = share;
        found.push_back(std::move(one));
        line += (i == 0 ? "" : "  ") + label + " " + percent(share);
      }
      if (options.json) {
        fsdp::Json out;
        out["text"] = data::tokenizers::repaired(group[row]);
        out["labels"] = std::move(found);
        console.out << out.dump() << "\n";
      } else {
        show(console, line + (texts.size() > 1 ? "  " + beginning_of(group[row]) : "") + "\n");
      }
    }
  });
}

}  // namespace

void run(const Options& options, const std::vector<std::string>& texts, const Console& console) {
  const Source source = open_source(options);
  console.notes << "muster-infer: " << source.name() << ", " << options.dtype << "\n";
  switch (options.command) {
    case Command::kGenerate:
      run_generate(options, source, texts, console);
      break;
    case Command::kEmbed:
      run_embed(options, source, texts, console);
      break;
    case Command::kClassify:
      run_classify(options, source, texts, console);
      break;
  }
  finish(console);
}

}  // namespace infer
