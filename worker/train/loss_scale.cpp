#include "worker/train/loss_scale.h"

namespace worker {
namespace {

constexpr const char* kMember = "grad_scaler";

}  // namespace

LossScale::LossScale(const spec::Training& train, at::Device device) : train_(train) {
  if (train.precision != spec::Precision::kFp16) return;
  fsdp::GradScalerOptions options;
  options.min_scale = kFloor;
  scaler_.emplace(device, options);
}

at::Tensor LossScale::scaled(const at::Tensor& loss) const {
  return scaler_ ? scaler_->scale(loss) : loss;
}

fsdp::GradientNorm LossScale::gradient_norm(fsdp::ShardedModel& sharded) const {
  const double order = spec::norm_order(train_.clip_norm_type);
  return scaler_ ? scaler_->gradient_norm(sharded, train_.clip_norm, order)
                 : fsdp::gradient_norm(sharded, train_.clip_norm, order);
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
