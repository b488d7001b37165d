// Goal: embedding and head as units of their own train as in the root, to the bit, and take no memory beside the
// blocks'. Method: one model whose table and head are large beside its blocks, sharded both ways, and the formula of
// its pools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWords = 997;  // the table has 5 blocks' parameters

struct Weight : torch::nn::Module {
  explicit Weight(at::Tensor value) : weight(register_parameter("weight", std::move(value))) {}
  at::Tensor weight;
};

at::Tensor through(const Wrap& wrap, at::Tensor x, const std::function<at::Tensor(at::Tensor)>& forward) {
  return wrap ? wrap(std::move(x), forward) : forward(std::move(x));
}

struct LanguageModel : torch::nn::Module {
  LanguageModel(bool tied, int layers) {
    words = register_module("words", std::make_shared<Weight>(at::randn({kWords, kWidth}) * 0.5));
    for (int i = 0; i < layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    norm = register_module("norm", std::make_shared<Weight>(at::ones({kWidth})));
    if (!tied) head = register_module("head", std::make_shared<Weight>(at::randn({kWords, kWidth}) * 0.5));
  }

  /// The mean loss of next-token prediction; tokens [batch, length + 1].
  at::Tensor forward(const at::Tensor& tokens) {
    return through(wrap, tokens, [this](const at::Tensor& in) {
      at::Tensor x = through(words_wrap, in.narrow(1, 0, kLength),
                             [this](const at::Tensor& ids) { return at::embedding(words->weight, ids); });
      for (const auto& block : blocks) x = block->forward(x);
      return through(head_wrap, x, [this, targets = in.narrow(1, 1, kLength).reshape({-1})](const at::Tensor& last) {
        const at::Tensor& weight = head ? head->weight : words->weight;
        const at::Tensor hidden = normalise(last, norm->weight).to(weight.scalar_type());
        return at::cross_entropy_loss(at::matmul(hidden, weight.t()).to(at::kFloat).reshape({-1, kWords}), targets);
      });
    });
  }

  std::shared_ptr<Weight> words, norm, head;  // no head: tied
  std::vector<std::shared_ptr<Block>> blocks;
  Wrap wrap, words_wrap, head_wrap;
};

enum class Outer { kInRoot, kUnits };

/// One rank's sharded copy of the model with its optimizer.
struct OfLanguage {
  OfLanguage(fsdp::DeviceMesh& of, Outer outer, bool tied, const fsdp::ShardOptions& options = {}, int layers = 4)
      : mesh(of), model(made(tied, layers)), sharded(model, mesh) {
    if (outer == Outer::kUnits) {
      fsdp::ShardOptions of_words = options;
      of_words.backward_reads_parameters = tied;
      of_words.reduce_each_run = tied;
      using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;
      words = sharded.fully_shard(model->words, of_words, tied ? Modules{model->norm} : Modules{});
      model->words_wrap = wrapper(words);
    }
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
    fsdp::ShardOptions last = options;
    last.reshard_after_forward = false;
    if (outer == Outer::kUnits) {
      last.runs_last = true;
      head = tied ? words : sharded.fully_shard(model->head, last, {model->norm});
      model->head_wrap = wrapper(head);
      last.runs_last = false;
    }
    model->wrap = wrapper(sharded.fully_shard(model, last));
    optimizer = std::make_unique<fsdp::AdamW>(sharded, fsdp::AdamWOptions());
  }

  static std::shared_ptr<LanguageModel> made(bool tied, int layers) {
    static std::mutex generator;  // threads share it
    const std::lock_guard<std::mutex> lock(generator);
    at::manual_seed(3);
    return std::make_shared<LanguageModel>(tied, layers);
  }

  double step(std::int64_t number, int micro_batches = 1) {
    const at::Tensor own = part_of(tokens_of(number), mesh.rank(), mesh.world_size());
    double sum = 0;
    for (int i = 0; i < micro_batches; ++i) {
      sharded.set_requires_gradient_sync(i + 1 == micro_batches);
      const at::Tensor loss = model->forward(part_of(own, i, micro_batches)) / micro_batches;
      loss.backward();
      sum += loss.item<double>();
    }
    optimizer->step(1e-2);
    sharded.zero_grad();
    return sum;
  }

  fsdp::DeviceMesh& mesh;
  std::shared_ptr<LanguageModel> model;
  fsdp::ShardedModel sharded;
  std::shared_ptr<fsdp::Unit> words, head;
  std::unique_ptr<fsdp::Optimizer> optimizer;
};

fsdp::ShardOptions mixed() {
  fsdp::ShardOptions options;
  options.precision.param_dtype = at::kBFloat16;
  return options;
}

void expect_like_the_root(bool tied, double most) {
  for (const int ranks : kWorldSizes) {
    for (const fsdp::ShardOptions& options : {fsdp::ShardOptions(), mixed()}) {
      run_ranks(ranks, [&](fsdp::DeviceMesh& mesh) {
        OfLanguage in_root(mesh, Outer::kInRoot, tied, options), units(mesh, Outer::kUnits, tied, options);
        for (int step = 0; step < 6; ++step) {
          const int micro_batches = step % 3 == 2 ? 3 : 1;
          const double want = in_root.step(step, micro_batches), got = units.step(step, micro_batches);
          EXPECT_LE(relative(got, want), most) << "step " << step << ", " << ranks << " ranks";
        }
        const auto want = in_root.sharded.gather_full_state();
        const auto got = units.sharded.gather_full_state();
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [name, values] : want) EXPECT_LE(distance(got.at(name), values), most) << name;
      });
    }
  }
}

TEST(OuterUnits, TrainAsInTheRootToTheBit) {
  expect_like_the_root(/*tied=*/false, 0);
}

TEST(OuterUnits, ThatAreTiedTrainAsInTheRoot) {
  expect_like_the_root(/*tied=*/true, 1e-4);
}

TEST(OuterUnits, AreGatheredAsOftenAsTheyAreRead) {
  static constexpr int kSteps = 5;
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    OfLanguage units(mesh, Outer::kUnits, /*tied=*/false), tied(mesh, Outer::kUnits, /*tied=*/true);
    for (int step = 0; step < kSteps; ++step) {
      units.step(step);
      tied.step(step);
    }
    EXPECT_EQ(units.words->gathers(), kSteps) << "the embedding's backward reads no table";
    EXPECT_EQ(units.head->gathers(), kSteps) << "the head's backward comes at once";
    EXPECT_EQ(tied.words->gathers(), 4 * kSteps) << "twice in forward and twice in backward";
    for (const OfLanguage* each : {&units, &tied})
      for (std::size_t i = 1; i <= each->model->blocks.size(); ++i)
        EXPECT_EQ(each->sharded.units()[i]->gathers(), 2 * kSteps) << "block " << i << ": nothing is gathered in vain";
    // The first step knows no order for its forward.
    EXPECT_EQ(units.head->prefetches(), kSteps - 1);
    EXPECT_EQ(tied.words->prefetches(), 2 * (kSteps - 1) + kSteps) << "backward begins with its head";
  });
}

/// The size of a unit's buffers: gathered, and of its gradients.
std::int64_t buffer_of(const fsdp::Unit& unit, at::ScalarType type, bool trainable_only) {
  std::int64_t bytes = 0;
  for (const auto& segment : unit.segments()) {
    if (trainable_only && !segment->key().trainable) continue;
    bytes += (segment->layout().padded_numel() * c10::elementSize(type) + 63) / 64 * 64;
  }
  return bytes;
}

TEST(OuterUnits, TakeNoMemoryBesideThatOfTheBlocksAndOfOneOfThem) {
  for (const int ranks : {2, 4}) {
    for (const bool tied : {false, true}) {
      for (const fsdp::ShardOptions& options : {fsdp::ShardOptions(), mixed()}) {
        run_ranks(ranks, [&](fsdp::DeviceMesh& mesh) {
          OfLanguage its(mesh, Outer::kUnits, tied, options);
          const at::ScalarType type = options.precision.param_dtype;
          const fsdp::Unit& block = *its.sharded.units()[1];
          const std::int64_t outer = std::max(buffer_of(*its.words, type, false), buffer_of(*its.head, type, false));
          const std::int64_t gradients =
              std::max(buffer_of(*its.words, at::kFloat, true), buffer_of(*its.head, at::kFloat, true));
          const std::int64_t want = outer + buffer_of(block, type, false) + gradients;
          ASSERT_GT(gradients, 2 * buffer_of(block, at::kFloat, true));
          for (int step = 0; step < 5; ++step) {
            its.step(step);
            // Sums of tied gradients have memory of a shard beside the pool's.
            const std::int64_t scratch = tied ? trainable_part(*its.words).layout().chunk() * 4 : 0;
            EXPECT_EQ(its.sharded.memory().pool_bytes, want + scratch) << "step " << step << ", tied " << tied;
          }
        });
      }
    }
  }
}

TEST(OuterUnits, WhoseBackwardReadsAParameterAfterAllNameTheUnit) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    OfLanguage its(mesh, Outer::kUnits, /*tied=*/false);
    const auto inner = its.model->words_wrap;
    its.model->words_wrap = [&](at::Tensor ids, const auto& forward) {
      return inner(ids, [&](at::Tensor in) { return forward(in) * its.model->words->weight[0]; });
    };
    EXPECT_THAT(error_of([&] { its.step(0); }),
                HasSubstr("unit words: a parameter, or a view of one, was used outside"));
  });
}

}  // namespace
