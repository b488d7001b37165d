#include "worker/infer/encode.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "data/tokenizers/tokenizer.h"
#include "fsdp/files/safetensors.h"
#include "worker/infer/commands.h"
#include "worker/infer/image_input.h"
#include "worker/infer/infer_model.h"

namespace infer {
namespace {

using worker::TokenIds;

void append(TokenIds& ids, const data::tokenizers::Tokenizer::Ids& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

std::string beginning_of(std::string_view text) {
  constexpr std::size_t kMostShown = 40;
  const bool is_long = text.size() > kMostShown;
  std::string shown = data::tokenizers::repaired(text.substr(0, kMostShown));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return "\"" + shown + (is_long ? ".." : "") + "\"";
}

TokenIds ids_to_continue(const Source& source, const std::string& text) {
  TokenIds ids;
  append(ids, source.tokenizer->prefix());
  append(ids, source.tokenizer->encode(text, /*with_special=*/false));
  if (!ids.empty()) return ids;
  const auto& special = source.tokenizer->special();
  if (const auto first = special.bos ? special.bos : special.eos) return {*first};
  throw base::UsageError("an empty text, and the tokenizer has no token that begins one; give a text");
}

TokenIds ids_to_read(const Source& source, const std::string& text) {
  TokenIds ids;
  append(ids, source.tokenizer->encode(text, /*with_special=*/true));
  if (ids.empty()) throw base::UsageError("the text " + beginning_of(text) + " has no tokens; leave it out");
  return ids;
}

void check_length(const TokenIds& ids, std::int64_t most, const std::string& text) {
  if (most == 0 || static_cast<std::int64_t>(ids.size()) <= most) return;
  throw base::UsageError("the text " + beginning_of(text) + " has " + std::to_string(ids.size()) +
                         " tokens, and the model reads at most " + std::to_string(most) + "; give a part of it");
}

namespace {

/// The names of vectors are in a file's header up to this size. Readers take headers of 100 MB, and JSON may need six
/// bytes for one.
constexpr std::size_t kMostNameBytes = std::size_t{8} << 20;

Pool pool_of(const Options& options, Pool usual) {
  if (options.pool.empty()) return usual;
  if (options.pool == "cls") return Pool::kCls;
  return options.pool == "mean" ? Pool::kMean : Pool::kLast;
}

/// The shortest text that reads back as the same number.
void write_number(std::ostream& out, float number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  out.write(text, end - text);
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
    write_number(out, values[i]);
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
  for (std::size_t begin = 0; begin < files.size(); begin += static_cast<std::size_t>(options.batch)) {
    const auto end = std::min(files.size(), begin + static_cast<std::size_t>(options.batch));
    std::vector<std::string> names;
    std::vector<at::Tensor> pixels;
    for (std::size_t i = begin; i < end; ++i) {
      names.push_back(files[i].native());
      pixels.push_back(pixels_of(files[i], view));
    }
    vectors.add(names, model->embed(at::stack(pixels), pool));
  }
  vectors.finish();
}

}  // namespace

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

namespace {

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

}  // namespace

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

}  // namespace infer
