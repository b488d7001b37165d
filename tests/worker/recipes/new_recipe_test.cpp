// Goal: the recipe that docs/new-recipe.md explains is one file and works: the model comes nearer to its teacher, the
// teacher stays as it is, no checkpoint holds it, and a stopped training goes on.
// Method: a drawn model in a folder is the teacher; the example's row and maker are registered for a while, and run
// files name the recipe.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/usage_error.h"
#include "fsdp/files/checkpoint.h"
#include "spec/recipes.h"
#include "spec/tables/checkpoint_keys.h"
#include "spec/tables/llama_keys.h"
#include "tests/places.h"
#include "tests/worker/llama_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

// Functions of examples/new-recipe/distill.cpp.
namespace worker {
spec::Recipe distill_row();
std::unique_ptr<Recipe> make_distill(const RunConfig& config);
}  // namespace worker

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A training of a small model whose teacher lies in a folder.
class NewRecipe : public ::testing::Test {
 protected:
  NewRecipe() {
    auto sizes = spec::bind<spec::Llama>(spec::llama(), run_of(folder_, "").values);
    sizes.vocab_size = 257;
    const NamedTensors tensors = drawn(sizes, 3);
    for (const auto& [name, values] : tensors) {
      if (values.dim() == 2) values.mul_(4);  // it says something
    }
    fsdp::Json config = config_json(sizes);
    config["max_position_embeddings"] = sizes.max_position_embeddings;
    write_folder(folder_ / "teacher", config, tensors);
  }

  RunConfig run(const std::string& train, const std::string& checkpoints = "checkpoints", const std::string& model = "",
                const std::string& recipe = "distill") const {
    return parse_run_config(
        R"({"format":1,"name":"test","recipe":")" + recipe +
        R"(","model":{"hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,
            "num_attention_heads":2)" +
        model + R"(},"data":{"source":"fixture","sequence_length":32,"cache_folder":")" + (folder_ / "cache").native() +
        R"("},"train":{"learning_rate":0.01,"batch_size":8,"warmup_steps":0)" + train +
        R"(},"checkpoint":{"every_steps":0,"folder":")" + (folder_ / checkpoints).native() + "\"}}");
  }
  std::string teacher() const { return R"(,"teacher":")" + (folder_ / "teacher").native() + "\""; }

  std::vector<double> values(const RunConfig& config, int ranks, const char* series = "loss", int save_at = 0,
                             std::int64_t attempt = 1) const {
    std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
    listeners[0].save_at = save_at;
    train(config, listeners, attempt);
    std::vector<double> out;
    for (const auto& step : listeners[0].steps) {
      if (const auto value = value_of(step.values, series)) out.push_back(*value);
    }
    return out;
  }

  std::string refusal(const RunConfig& config) const {
    std::vector<Listener> listeners(1);
    std::string error = "(nothing was thrown)";
    listeners[0].on_failure = [&](const std::string& text) { error = text; };
    train(config, listeners);
    return error;
  }

  static spec::Values best_by(const std::string& series) {
    spec::Values values;
    values.set("checkpoint.best", series);
    return values;
  }

  const TemporaryFolder folder_;
  const spec::ScratchRecipes row_{[](std::vector<spec::Recipe>& recipes) { recipes.push_back(distill_row()); }};
  const ScratchMaker maker_{"distill", make_distill};
};

TEST_F(NewRecipe, ComesNearerToItsTeacher) {
  const auto divergence = values(run(teacher() + R"(,"steps":40,"teacher_weight":1)"), 2, "divergence");
  ASSERT_EQ(divergence.size(), 40U);
  EXPECT_LT(divergence.back(), 0.8 * divergence.front());
}

TEST_F(NewRecipe, WithoutTheTeachersPartTrainsAsCausalLm) {
  const auto alone = values(run(teacher() + R"(,"steps":4,"teacher_weight":0)", "alone"), 1);
  std::vector<Listener> listeners(1);
  train(run(R"(,"steps":4)", "plain", "", "causal_lm"), listeners);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(alone[i], value_of(listeners[0].steps[i].values, "loss").value_or(-1), 1e-4) << "step " << i + 1;
}

TEST_F(NewRecipe, GoesOnAndSavesTheStudentAlone) {
  const std::string train = teacher() + R"(,"steps":6)";
  const auto whole = values(run(train, "whole"), 2);
  auto parts = values(run(train), 2, "loss", /*save_at=*/3);
  const auto rest = values(run(train), 2, "loss", 0, /*attempt=*/2);
  EXPECT_EQ(rest.size(), 3U);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);

  const auto newest = fsdp::latest_valid(folder_ / "checkpoints");
  ASSERT_TRUE(newest);
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(newest->path))
    if (entry.is_regular_file()) bytes += entry.file_size();
  const auto of_teacher = std::filesystem::file_size(folder_ / "teacher/model.safetensors");
  EXPECT_LT(bytes, of_teacher * 2) << "the student, its optimizer, and no teacher";
}

TEST_F(NewRecipe, ItsSeriesAreThoseOfItsRow) {
  std::vector<Listener> listeners(1);
  RunConfig config = run(teacher() + R"(,"steps":1)");
  train(config, listeners);
  ASSERT_EQ(listeners[0].declared.size(), 1U);
  const auto& declared = listeners[0].declared.front();
  const auto divergence = std::ranges::find(declared, "divergence", &spec::Series::name);
  ASSERT_NE(divergence, declared.end());
  EXPECT_EQ(divergence->unit, "nats");
  EXPECT_EQ(divergence->better, spec::Better::kLower);
  EXPECT_TRUE(spec::conflicts_of_best(declared, best_by("validation/loss")).empty());
  EXPECT_FALSE(spec::conflicts_of_best(declared, best_by("validation/rouge1")).empty());
}

TEST_F(NewRecipe, ARunThatDoesNotFitIsRefused) {
  EXPECT_THAT(refusal(run(R"(,"steps":2)")), HasSubstr("train.teacher is missing"));
  EXPECT_THAT(refusal(run(teacher() + R"(,"steps":2)", "checkpoints", R"(,"vocab_size":300)")),
              AllOf(HasSubstr("the teacher has 257 tokens, and the model 300"), HasSubstr("model.vocab_size = 257")));
  EXPECT_THAT(refusal(run(R"(,"steps":2,"teacher":"/no/such/folder")")), HasSubstr("/no/such/folder"));
}

std::string error_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(NewRecipeRegistration, IsARowAndAMaker) {
  const char* const kRun = R"({"format":1,"name":"test","recipe":"distill","data":{"source":"fixture"},
                               "train":{"teacher":"/no/such/folder"}})";
  EXPECT_THAT(error_of([&] { parse_run_config(kRun); }),
              AllOf(HasSubstr("recipe = \"distill\""), HasSubstr("\"dino\"")));
  const spec::ScratchRecipes row([](std::vector<spec::Recipe>& recipes) { recipes.push_back(distill_row()); });
  const RunConfig config = parse_run_config(kRun);
  EXPECT_EQ(config.values.real("train.temperature"), 2) << "the default of the recipe's own row";
  EXPECT_THAT(error_of([&] { make_recipe(config); }),
              AllOf(HasSubstr("recipe = \"distill\": there is no such recipe"), HasSubstr("masked_lm")));
  const ScratchMaker maker("distill", make_distill);
  EXPECT_THAT(error_of([&] { make_recipe(config); }), HasSubstr("/no/such/folder")) << "the recipe itself is asked";
}

/// Code that the document shows is code that these tests have built.
TEST(NewRecipeDocument, ShowsLinesOfTheExamples) {
  const std::string document = read_file(::test::source_folder() + "/docs/new-recipe.md");
  std::string example;
  for (const char* file : {"new-recipe/distill.cpp", "new-family/opt.cpp"})
    example += read_file(std::filesystem::path(::test::source_folder() + "/examples") / file);
  constexpr std::string_view kBegin = "```cpp\n", kEnd = "```\n";
  int blocks = 0;
  for (auto at = document.find(kBegin); at != std::string::npos; at = document.find(kBegin, at + 1)) {
    const auto begin = at + kBegin.size();
    const std::string block = document.substr(begin, document.find(kEnd, begin) - begin);
    EXPECT_NE(example.find(block), std::string::npos) << "not in the examples:\n" << block;
    ++blocks;
  }
  EXPECT_GE(blocks, 10);
}

}  // namespace
}  // namespace worker::testing
