#include "worker/infer/model.h"

#include <algorithm>
#include <array>

#include "base/usage_error.h"
#include "worker/models/family.h"

namespace infer {
namespace {

template <class Made>
using Open = std::unique_ptr<Made> (*)(const Source&, const Options&);

template <class Made>
std::unique_ptr<Made> open(const Source& source, const Options& options, Open<Made> Uses::*use, const char* what) {
  if (const Uses uses = uses_of(*source.family); uses.*use != nullptr) return (uses.*use)(source, options);
  std::string list;
  for (const auto* family : worker::families()) {
    if (uses_of(*family).*use != nullptr) list += (list.empty() ? "" : ", ") + std::string(family->name);
  }
  throw base::UsageError(source.name() + ": a model of the family " + std::string(source.family->name) + what +
                         "; want one of: " + (list.empty() ? "(none)" : list));
}

/// Of families that are no decoders.
struct OtherUses {
  std::string_view family;
  Uses uses;
};
constexpr auto kOtherUses = std::to_array<OtherUses>({
    {"t5", {.generator = t5_generator}},
    {"bert", {.embedder = bert_embedder, .classifier = bert_classifier}},
    {"dinov2", {.image_embedder = dinov2_embedder}},
});

}  // namespace

Uses uses_of(const worker::Family& family) {
  if (family.make_causal != nullptr) return {.generator = causal_generator, .embedder = causal_embedder};
  const auto row = std::ranges::find(kOtherUses, family.name, &OtherUses::family);
  return row == kOtherUses.end() ? Uses() : row->uses;
}

std::unique_ptr<Generator> open_generator(const Source& source, const Options& options) {
  return open(source, options, &Uses::generator, " writes no text");
}

std::unique_ptr<Embedder> open_embedder(const Source& source, const Options& options) {
  return open(source, options, &Uses::embedder, " gives no vectors here");
}

std::unique_ptr<Classifier> open_classifier(const Source& source, const Options& options) {
  return open(source, options, &Uses::classifier, " has no labels");
}

bool embeds_images(const Source& source) {
  return uses_of(*source.family).image_embedder != nullptr;
}

std::unique_ptr<ImageEmbedder> open_image_embedder(const Source& source, const Options& options) {
  return open(source, options, &Uses::image_embedder, " makes no vectors of images");
}

at::Tensor pooled(const at::Tensor& states, const at::Tensor& mask, Pool pool) {
  if (pool == Pool::kCls) return states.select(1, 0).to(at::kFloat);
  const at::Tensor lengths = mask.sum(1);
  if (pool == Pool::kLast) {
    const at::Tensor places = (lengths - 1).view({-1, 1, 1}).expand({-1, 1, states.size(2)});
    return states.gather(1, places).squeeze(1).to(at::kFloat);
  }
  const at::Tensor counted = states.to(at::kFloat).masked_fill(mask.logical_not().unsqueeze(2), 0);
  return counted.sum(1) / lengths.unsqueeze(1);
}

}  // namespace infer
