#include "worker/models/first_values.h"

namespace worker {

void draw_normal(const std::string& name, const at::Tensor& values, double deviation, at::Generator& random) {
  if (name.ends_with("norm.weight") || name.ends_with("Norm.weight")) {
    values.fill_(1.0);
  } else if (name.ends_with(".bias")) {
    values.fill_(0.0);
  } else {
    values.normal_(0.0, deviation, random);
  }
}

}  // namespace worker
