#include "train/loss_scale.h"

namespace worker {
namespace {

constexpr const char* kMember = "grad_scaler";

fsdp::NormType norm_type(schema::ClipNorm type) {
  switch (type) {
    case schema::ClipNorm::kOne:
      return fsdp::NormType::kOne;
    case schema::ClipNorm::kInf:
      return fsdp::NormType::kInf;
    case schema::ClipNorm::kTwo:
      break;
  }
  return fsdp::NormType::kTwo;
}

}  // namespace

LossScale::LossScale(const schema::Training& train, at::Device device) : train_(train) {
  if (train.precision != schema::Precision::kFp16) return;
  fsdp::GradScalerOptions options;
  options.min_scale = kFloor;
  scaler_.emplace(device, options);
}

at::Tensor LossScale::scaled(const at::Tensor& loss) const {
  return scaler_ ? scaler_->scale(loss) : loss;
}

fsdp::GradientNorm LossScale::gradient_norm(fsdp::ShardedModel& sharded) const {
  const auto type = norm_type(train_.clip_norm_type);
  return scaler_ ? scaler_->gradient_norm(sharded, train_.clip_norm, type)
                 : fsdp::gradient_norm(sharded, train_.clip_norm, type);
}

std::optional<at::Tensor> LossScale::value() const {
  return scaler_ ? std::optional(scaler_->scale()) : std::nullopt;
}

void LossScale::update(const fsdp::GradientNorm& norm) {
  if (scaler_) scaler_->update(norm.found_inf);
}

void LossScale::save(fsdp::Json& extra) const {
  if (scaler_) extra[kMember] = scaler_->state();
}

void LossScale::load(const fsdp::Json& extra) {
  const fsdp::Json* saved = extra.find(kMember);
  if (scaler_ && saved != nullptr) scaler_->load(*saved);
}

}  // namespace worker
