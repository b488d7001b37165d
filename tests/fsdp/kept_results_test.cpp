// Goal: a recomputed part computes no chosen operation twice, with the same bits, on the device and on the host.
// Method: a part with a product that counts its calls, beside the plain part.
#include "fsdp/engine/kept_results.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/host_activations.h"
#include "fsdp/engine/recompute.h"
#include "fsdp/memory/storage.h"
#include "tests/fsdp/error_of.h"

namespace {

using ::testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int products = 0;

/// x w, which a recomputed part may keep.
struct KeptProduct : torch::autograd::Function<KeptProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return fsdp::KeptResults::of("product", [&] { return ++products, variable_list{x.matmul(w)}; })[0];
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0].matmul(saved[1].t()), saved[0].t().matmul(gradients[0])};
  }
};

struct Layers : torch::nn::Module {
  Layers() {
    at::manual_seed(4);
    for (const char* name : {"a", "b"}) weights.push_back(register_parameter(name, at::randn({16, 16}) * 0.3));
  }
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& in) const {
    const at::Tensor hidden = at::dropout(at::tanh(KeptProduct::apply(in[0], weights[0])), 0.5, true);
    return {KeptProduct::apply(hidden, weights[1])};  // the result itself is one that is kept
  }
  std::vector<at::Tensor> weights;
};

using CallPart = std::function<std::vector<at::Tensor>(const Layers&, std::vector<at::Tensor>)>;

/// The result and all gradients of four parts in a row, each with weights of its own.
std::vector<at::Tensor> trained(const CallPart& call, int backwards) {
  const std::vector<Layers> parts(4);
  at::manual_seed(9);
  const at::Tensor x = at::randn({3, 16}).requires_grad_();
  std::vector<at::Tensor> now{x};
  for (const Layers& part : parts) now = call(part, now);
  for (int i = 1; i < backwards; ++i) now[0].sum().backward({}, /*retain_graph=*/true);
  now[0].pow(2).sum().backward();
  std::vector<at::Tensor> out{now[0].detach(), x.grad()};
  for (const Layers& part : parts)
    for (const at::Tensor& weight : part.weights) out.push_back(weight.grad());
  return out;
}

auto recomputing(const fsdp::RecomputeOptions& options) {
  return [options](const Layers& layers, std::vector<at::Tensor> in) {
    return fsdp::recompute(
        std::move(in), [&layers](std::vector<at::Tensor> list) { return layers.forward(list); }, layers, options);
  };
}

TEST(KeptResults, AreNotComputedAgainAndChangeNoBit) {
  const auto plain = [](const Layers& layers, const std::vector<at::Tensor>& in) { return layers.forward(in); };
  const auto host = std::make_shared<fsdp::HostActivations>(at::kCPU, /*least_bytes=*/0);
  for (const int backwards : {1, 2}) {
    const auto want = trained(plain, backwards);
    for (const auto& [options, times] :
         std::vector<std::pair<fsdp::RecomputeOptions, int>>{{{}, 8 + 8 * backwards},
                                                             {{.keep = {"product"}}, 8},
                                                             {{.keep = {"another"}}, 8 + 8 * backwards},
                                                             {{.host = host}, 8 + 8 * backwards},
                                                             {{.keep = {"product"}, .host = host}, 8}}) {
      SCOPED_TRACE(std::to_string(options.keep.size()) + (options.host ? " on the host" : ""));
      products = 0;
      const auto got = trained(recomputing(options), backwards);
      EXPECT_EQ(products, times);
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i;
    }
  }
  EXPECT_EQ(host->bytes(), 0) << "a graph that is gone holds nothing";
}

TEST(KeptResults, TakeTheMemoryOfTheirTensorsUntilBackward) {
  const auto held = [](const fsdp::RecomputeOptions& options) {
    const Layers layers;
    const at::Tensor x = at::randn({64, 16}).requires_grad_();
    const fsdp::CountTensorBytes count;
    const auto out = recomputing(options)(layers, {x});
    return fsdp::TensorBytes::current()->now() - static_cast<std::int64_t>(out[0].nbytes());
  };
  const std::int64_t product = 64 * 16 * 4, random_state = held({});
  EXPECT_EQ(held({.keep = {"product"}}) - random_state, product) << "the second one is the result itself";
  EXPECT_FALSE(fsdp::KeptResults::keeps("product")) << "outside of a part";
}

TEST(KeptResults, OfAPartThatComputesOtherOperationsAreAnError) {
  const Layers layers;
  const auto failure = [&](const std::vector<std::string>& first, const std::vector<std::string>& second) {
    bool again = false;
    const auto part = [&](std::vector<at::Tensor> in) {
      at::Tensor out = in[0] * layers.weights[0];
      for (const std::string& name : again ? second : first)
        out = out + fsdp::KeptResults::of(name, [] { return variable_list{at::ones({16})}; })[0];
      again = true;
      return variable_list{out};
    };
    const auto out = fsdp::recompute({at::ones({16, 16})}, part, layers, {.keep = {"norm", "product"}});
    return error_of([&] { out[0].sum().backward(); });
  };
  EXPECT_EQ(failure({"norm", "product"}, {"norm", "product"}), "no error");
  EXPECT_THAT(failure({"norm", "product"}, {"product"}),
              HasSubstr("the second call of a part asks for product where the first one computed norm"));
  EXPECT_THAT(failure({"norm"}, {"norm", "norm"}), HasSubstr("where the first one computed nothing more"));
}

}  // namespace
