#include <ATen/core/grad_mode.h>

#include <memory>

#include "base/usage_error.h"
#include "worker/infer/infer_model.h"
#include "worker/models/dinov2/dinov2_model.h"

namespace infer {
namespace {

/// A checkpoint's part with the model's weights, and where they are in it.
constexpr const char *kTeacher = "teacher", *kBackbone = "backbone";

/// The backbone under the name that it has in checkpoints, beside heads that are not loaded.
class InCheckpoint : public torch::nn::Module, public worker::Wrapped {
 public:
  explicit InCheckpoint(const spec::Dinov2& sizes)
      : backbone_(register_module(kBackbone, std::make_shared<worker::Dinov2Model>(sizes))) {}
  worker::Dinov2Output forward(const at::Tensor& pixels) const {
    worker::Dinov2Output out;
    out.registers = backbone_->config().num_register_tokens;
    out.tokens = worker::call(wrapper, pixels, [this](const at::Tensor& in) { return backbone_->forward(in).tokens; });
    return out;
  }

 private:
  std::shared_ptr<worker::Dinov2Model> backbone_;
};

spec::Dinov2 dinov2_sizes(const Source& source) {
  return spec::bind<spec::Dinov2>(spec::dinov2(), source.values);
}

std::shared_ptr<torch::nn::Module> module_of(const Source& source) {
  if (source.checkpoint) return std::make_shared<InCheckpoint>(dinov2_sizes(source));
  return std::make_shared<worker::Dinov2Model>(dinov2_sizes(source));
}

class Dinov2Embedder : public ImageEmbedder {
 public:
  Dinov2Embedder(const Source& source, const Options& options)
      : loaded_(
            source, options, [&] { return module_of(source); }, {}, /*some_parameters=*/true) {}

  Pool usual_pool() const override { return Pool::kCls; }
  at::Tensor embed(const at::Tensor& pixels, Pool pool) override {
    const at::NoGradGuard no_grad;
    const auto& to = loaded_.activations();
    const auto out = output(pixels.to(to.device, to.dtype));
    const at::Tensor vectors = pool == Pool::kCls ? out.cls() : out.patches().to(at::kFloat).mean(1);
    return vectors.to(at::kCPU, at::kFloat);
  }

 private:
  worker::Dinov2Output output(const at::Tensor& pixels) {
    if (auto* whole = dynamic_cast<InCheckpoint*>(&loaded_.module())) return whole->forward(pixels);
    return dynamic_cast<worker::Dinov2Model&>(loaded_.module()).forward(pixels);
  }
  LoadedModel loaded_;
};

}  // namespace

std::unique_ptr<ImageEmbedder> dinov2_embedder(const Source& source, const Options& options) {
  if (options.pool == "last")
    throw base::UsageError("--pool last: the patches of an image have no last one; want cls or mean");
  Options own = options;
  if (own.part == kUsualPart) own.part = kTeacher;
  return std::make_unique<Dinov2Embedder>(source, own);
}

}  // namespace infer
