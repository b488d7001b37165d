// Goal: a step of BERT on two ranks is the step of one rank on the whole batch, with blocks recomputed, padding, and
// other numbers of masked tokens on each rank. Method: small models in fp32; gradients and weights are compared.
#include <ATen/ops/allclose.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/ranks.h"
#include "tests/worker/small_bert.h"
#include "worker/models/head_loss.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

using testing::bert_draw;
using testing::mask_of;
using testing::small_bert;
using testing::small_ids;

using BertState = std::map<std::string, at::Tensor>;
struct BertStep {
  BertState gradients, weights;
};

/// One SGD step of this rank's rows of a batch of four. `loss` is the sum over these rows.
template <class Model>
BertStep bert_step(fsdp::DeviceMesh& mesh, std::shared_ptr<Model> model,
                   const std::function<at::Tensor(const Model&, std::int64_t begin, std::int64_t rows)>& loss) {
  fsdp::ShardedModel sharded(model, mesh);
  fsdp::ShardOptions options;
  options.precision.gradient_divide_factor = 1;  // sums, so that both worlds are equal
  const auto blocks = model->blocks();
  for (const auto& block : blocks) block->wrapper = wrapper_of(sharded.fully_shard(block, options));
  blocks[0]->wrapper = nested(blocks[0]->wrapper, recomputing(*blocks[0]));
  blocks[1]->attention_wrapper = recomputing(*blocks[1]);
  blocks[1]->mlp_wrapper = recomputing(*blocks[1]);
  model->wrapper = wrapper_of(sharded.fully_shard(model, options));
  fsdp::initialize(sharded, 1, bert_draw());
  fsdp::Sgd optimizer(sharded);
  const std::int64_t rows = 4 / mesh.world_size();
  loss(*model, mesh.rank() * rows, rows).backward();
  BertStep out{sharded.gather_full_gradients(), {}};
  optimizer.step(0.1);
  out.weights = sharded.gather_full_state();
  return out;
}

void expect_bert_close(const BertState& got, const BertState& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    EXPECT_TRUE(at::allclose(got.at(name), value, 1e-4, 1e-6)) << what << " of " << name;
  }
}

template <class Run>
void compare_bert_worlds(Run run) {
  BertStep alone;
  run_ranks(1, [&](fsdp::DeviceMesh& mesh) { alone = run(mesh); });
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    const BertStep both = run(mesh);
    expect_bert_close(both.gradients, alone.gradients, "gradient");
    expect_bert_close(both.weights, alone.weights, "weight");
  });
}

TEST(BertRanks, MaskedLmStepsAsOneRankDoes) {
  // Rows of the second rank are shorter and have one target, or none.
  for (const bool tied : {true, false}) {
    for (const std::vector<std::int64_t>& masked : {std::vector<std::int64_t>{3, 9, 10, 20}, {3, 9, 10}}) {
      compare_bert_worlds([&](fsdp::DeviceMesh& mesh) {
        return bert_step<BertForMaskedLm>(
            mesh, std::make_shared<BertForMaskedLm>(small_bert(tied)),
            [&](const BertForMaskedLm& model, std::int64_t begin, std::int64_t rows) {
              at::Tensor ids = at::arange(32).view({4, 8}), targets = at::full_like(ids, data::order::kNoTarget);
              for (const auto at : masked) targets.view(-1)[at] = at % 7;
              const at::Tensor mask = mask_of({8, 7, 5, 5}, 8);
              const auto mine = [&](const at::Tensor& t) { return t.narrow(0, begin, rows); };
              return model.loss({mine(ids), mine(mask), mine(ids).remainder(2)}, mine(targets));
            });
      });
    }
  }
}

TEST(BertRanks, AClassifierStepsAsOneRankDoes) {
  compare_bert_worlds([&](fsdp::DeviceMesh& mesh) {
    return bert_step<BertForSequenceClassification>(
        mesh, std::make_shared<BertForSequenceClassification>(small_bert(), 3),
        [&](const BertForSequenceClassification& model, std::int64_t begin, std::int64_t rows) {
          const at::Tensor ids = at::arange(32).view({4, 8}),
                           labels = at::tensor(std::vector<std::int64_t>{0, 2, 1, 2}),
                           weights = at::tensor({1.0, 2.0, 0.5}, at::kFloat);
          return model.loss({ids.narrow(0, begin, rows), mask_of({8, 7, 5, 5}, 8).narrow(0, begin, rows)},
                            labels.narrow(0, begin, rows), weights);
        });
  });
}

}  // namespace
}  // namespace worker
