#include "worker/generate/generate_t5.h"

#include <ATen/ops/full.h>

#include <utility>

namespace worker {
namespace {

class T5Reader : public RowReader {
 public:
  T5Reader(const T5ForConditionalGeneration& model, at::Tensor encoded, at::Tensor mask, std::int64_t capacity,
           Activations activations)
      : model_(model),
        activations_(activations),
        encoded_(std::move(encoded)),
        mask_(std::move(mask)),
        cache_(model.cache(encoded_.size(0), capacity, activations.dtype, activations.device)) {}

  at::Tensor next(const at::Tensor& ids) override {
    return model_.next(ids.to(activations_.device), encoded_, mask_, cache_);
  }

  void idle() override {
    auto cache = model_.cache(1, 1, activations_.dtype, activations_.device);
    const at::Tensor first = at::full({1, 1}, model_.config().decoder_start_token_id,
                                      at::TensorOptions(at::kLong).device(activations_.device));
    model_.next(first, encoded_.narrow(0, 0, 1), mask_.narrow(0, 0, 1), cache);
  }

 private:
  const T5ForConditionalGeneration& model_;
  const Activations activations_;
  const at::Tensor encoded_, mask_;
  T5Cache cache_;
};

class T5Answers : public EncoderDecoder {
 public:
  T5Answers(T5ForConditionalGeneration& model, Activations activations) : model_(model), activations_(activations) {}

  torch::nn::Module& module() override { return model_; }
  std::int64_t first_token() const override { return model_.config().decoder_start_token_id; }
  std::int64_t padding() const override { return model_.config().pad_token_id; }

  std::unique_ptr<RowReader> encode(const at::Tensor& ids, const at::Tensor& mask, std::int64_t capacity) override {
    const at::Tensor counts = mask.to(activations_.device);
    return std::make_unique<T5Reader>(model_, model_.encode(ids.to(activations_.device), counts), counts, capacity,
                                      activations_);
  }

 private:
  T5ForConditionalGeneration& model_;
  const Activations activations_;
};

}  // namespace

std::unique_ptr<EncoderDecoder> answers_of(T5ForConditionalGeneration& model, Activations activations) {
  return std::make_unique<T5Answers>(model, activations);
}

}  // namespace worker
