#include "worker/train/train_config.h"

#include <gmock/gmock.h>

#include "base/usage_error.h"
#include "tests/worker/temporary_folder.h"

namespace worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig parse(const std::string& rest) {
  return parse_run_config(R"({"format":1,"name":"n")" + rest + "}");
}

std::string refusal(const std::string& rest) {
  return testing::message_of<base::UsageError>([&] { parse(rest); });
}

TEST(RunFile, NeedsNothingButFormatAndName) {
  const auto c = parse("");
  EXPECT_EQ(c.name, "n");
  EXPECT_EQ(c.recipe, "causal_lm");
  EXPECT_EQ(c.family, "llama");
  EXPECT_FALSE(c.values.has("model.vocab_size")) << "the data decide";
  EXPECT_EQ(c.values.whole("model.num_key_value_heads"), c.values.whole("model.num_attention_heads"));
  EXPECT_EQ(c.checkpoint.folder, "checkpoints");
}

TEST(RunFile, EveryKeyArrives) {
  const auto c = parse(R"(,"recipe":"causal_lm",
    "model":{"family":"llama","vocab_size":300,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,
             "num_attention_heads":8,"num_key_value_heads":2,"max_position_embeddings":99,"rope_theta":1e6,
             "rms_norm_eps":1e-5,"tie_word_embeddings":true,"initializer_range":0.1},
    "data":{"source":"folder","path":"/text","sequence_length":64,"validation_fraction":0.25,"max_bytes":2000,
            "cache_folder":"/cache"},
    "train":{"steps":50,"batch_size":16,"micro_batch_size":4,"learning_rate":0.5,"min_learning_rate":0.05,
             "warmup_steps":5,"schedule":"linear","weight_decay":0.2,"beta1":0.8,"beta2":0.9,"epsilon":1e-6,
             "optimizer":"adam","weight_decay_schedule":"cosine","final_weight_decay":0.3,"layer_decay":0.75,
             "clip_norm":2,"clip_norm_type":"inf","seed":7,"precision":"bf16","validation_every_steps":10,"validation_batches":3,
             "deterministic":true,"step_delay_ms":20},
    "checkpoint":{"folder":"/ckpt","every_steps":25,"keep":2,"best":"validation/loss"},
    "fsdp":{"reshard_after_forward":false,"prefetch":false})");
  EXPECT_EQ(c.recipe, "causal_lm");
  EXPECT_EQ(c.values.whole("model.vocab_size"), 300);
  EXPECT_EQ(c.values.whole("model.hidden_size"), 64);
  EXPECT_EQ(c.values.whole("model.intermediate_size"), 96);
  EXPECT_EQ(c.values.whole("model.num_hidden_layers"), 3);
  EXPECT_EQ(c.values.whole("model.num_attention_heads"), 8);
  EXPECT_EQ(c.values.whole("model.num_key_value_heads"), 2);
  EXPECT_EQ(c.values.whole("model.max_position_embeddings"), 99);
  EXPECT_EQ(c.values.real("model.rope_theta"), 1e6);
  EXPECT_EQ(c.values.real("model.rms_norm_eps"), 1e-5);
  EXPECT_TRUE(c.values.flag("model.tie_word_embeddings"));
  EXPECT_EQ(c.values.real("model.initializer_range"), 0.1);
  EXPECT_EQ(c.data.source, "folder");
  EXPECT_EQ(c.data.path, "/text");
  EXPECT_EQ(c.data.sequence_length, 64);
  EXPECT_EQ(c.data.validation_fraction, 0.25);
  EXPECT_EQ(c.data.max_bytes, 2000);
  EXPECT_EQ(c.data.cache_folder, "/cache");
  EXPECT_EQ(c.train.steps, 50);
  EXPECT_EQ(c.train.batch_size, 16);
  EXPECT_EQ(c.train.micro_batch_size, 4);
  EXPECT_EQ(c.train.learning_rate, 0.5);
  EXPECT_EQ(c.train.min_learning_rate, 0.05);
  EXPECT_EQ(c.train.warmup_steps, 5);
  EXPECT_EQ(c.train.schedule, spec::LearningRateSchedule::kLinear);
  EXPECT_EQ(c.optimizer.weight_decay, 0.2);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.optimizer.beta2, 0.9);
  EXPECT_EQ(c.optimizer.epsilon, 1e-6);
  EXPECT_EQ(c.optimizer.kind, spec::OptimizerKind::kAdam);
  EXPECT_EQ(c.optimizer.weight_decay_schedule, spec::WeightDecaySchedule::kCosine);
  EXPECT_EQ(c.optimizer.final_weight_decay, 0.3);
  EXPECT_EQ(c.optimizer.layer_decay, 0.75);
  EXPECT_EQ(c.train.clip_norm, 2);
  EXPECT_EQ(c.train.clip_norm_type, "inf");
  EXPECT_EQ(c.train.seed, 7);
  EXPECT_EQ(c.train.precision, spec::Precision::kBf16);
  EXPECT_EQ(c.train.validation_every_steps, 10);
  EXPECT_EQ(c.train.validation_batches, 3);
  EXPECT_TRUE(c.train.deterministic);
  EXPECT_EQ(c.train.step_delay_ms, 20);
  EXPECT_EQ(c.checkpoint.folder, "/ckpt");
  EXPECT_EQ(c.checkpoint.every_steps, 25);
  EXPECT_EQ(c.checkpoint.keep, 2);
  EXPECT_EQ(c.checkpoint.best, "validation/loss");
  EXPECT_FALSE(c.fsdp.reshard_after_forward);
  EXPECT_FALSE(c.fsdp.prefetch);
}

TEST(RunFile, EveryKeyOfSgdAndOfTheStepScheduleArrives) {
  const auto c = parse(R"(,"train":{"optimizer":"sgd","momentum":0.5,"dampening":0.25,"schedule":"step","step_size":7,
                          "gamma":0.3})");
  EXPECT_EQ(c.optimizer.kind, spec::OptimizerKind::kSgd);
  EXPECT_EQ(c.optimizer.momentum, 0.5);
  EXPECT_EQ(c.optimizer.dampening, 0.25);
  EXPECT_FALSE(c.optimizer.nesterov);
  EXPECT_TRUE(parse(R"(,"train":{"optimizer":"sgd","nesterov":true})").optimizer.nesterov);
  EXPECT_EQ(c.train.schedule, spec::LearningRateSchedule::kStep);
  EXPECT_EQ(c.train.step_size, 7);
  EXPECT_EQ(c.train.gamma, 0.3);
  EXPECT_EQ(c.train.min_learning_rate, 0);
}

TEST(RunFile, WholeNumbersMayBeTexts) {
  EXPECT_EQ(parse(R"(,"train":{"steps":"123","seed":"5"})").train.steps, 123);
  EXPECT_THAT(refusal(R"(,"train":{"steps":"12x"})"), HasSubstr("train.steps = \"12x\": want a whole number"));
}

TEST(RunFile, NullMeansAbsentAndSoDoesAnEmptyPath) {
  const auto c = parse(
      R"(,"model":{"vocab_size":null},"data":{"max_bytes":null,"path":""},"train":null,"checkpoint":{"best":null})");
  EXPECT_FALSE(c.values.has("model.vocab_size"));
  EXPECT_EQ(c.data.max_bytes, 16 << 20);
  EXPECT_EQ(c.data.path, "");
  EXPECT_EQ(c.checkpoint.best, "");
}

TEST(RunFile, AnUnknownKeyIsAnErrorWithASuggestion) {
  EXPECT_THAT(refusal(R"(,"train":{"learning_rat":1})"),
              AllOf(HasSubstr("train.learning_rat = 1"), HasSubstr("did you mean \"learning_rate\"")));
  EXPECT_THAT(refusal(R"(,"modle":{})"), HasSubstr("did you mean \"model\""));
  EXPECT_THAT(refusal(R"(,"fsdp":{"zzzzzzzzzzzz":1})"), ::testing::Not(HasSubstr("did you mean")));
}

TEST(RunFile, WrongTypesAndImpossibleValuesNameKeyValueAndRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"train":{"steps":0})", "train.steps = 0: want a whole number from 1 to 4294967295"},
      {R"(,"train":{"steps":1.5})", "train.steps = 1.5: want a whole number"},
      {R"(,"train":{"steps":true})", "train.steps = true: want a whole number"},
      {R"(,"train":{"learning_rate":0})", "train.learning_rate = 0: want a number above 0"},
      {R"(,"train":{"learning_rate":"1"})", "train.learning_rate = \"1\": want a number"},
      {R"(,"train":{"beta2":1})", "train.beta2 = 1: want a number from 0 to 0.999999"},
      {R"(,"train":{"learning_rate":0.1,"min_learning_rate":0.2})", "want at most learning_rate"},
      {R"(,"train":{"steps":5,"warmup_steps":6})", "train.warmup_steps = 6: want at most steps = 5"},
      {R"(,"train":{"schedule":"poly"})",
       R"(train.schedule = "poly": want one of "cosine", "linear", "constant", "step")"},
      {R"(,"train":{"gamma":0.5})", "train.gamma = 0.5: want none with schedule = \"cosine\"; set schedule = \"step\""},
      {R"(,"train":{"step_size":5})", "train.step_size = 5: want none with schedule = \"cosine\""},
      {R"(,"train":{"optimizer":"adamax"})",
       R"(train.optimizer = "adamax": want one of "adamw", "adam", "sgd", "lion", "adafactor", "muon")"},
      {R"(,"train":{"momentum":0.5})",
       "train.momentum = 0.5: want no momentum with optimizer = \"adamw\"; leave it out, or choose another "
       "train.optimizer"},
      {R"(,"train":{"optimizer":"sgd","beta1":0.5})", "train.beta1 = 0.5: want no beta1 with optimizer = \"sgd\""},
      {R"(,"train":{"optimizer":"adafactor","beta2":0.5})", "want no beta2 with optimizer = \"adafactor\""},
      {R"(,"train":{"optimizer":"lion","moments":"bf16"})", "want no moments with optimizer = \"lion\""},
      {R"(,"train":{"optimizer":"lion","epsilon":0.05})", "want no epsilon with optimizer = \"lion\""},
      {R"(,"train":{"optimizer":"sgd","nesterov":true,"dampening":0.5})", "train.nesterov = true: want no nesterov"},
      {R"(,"train":{"optimizer":"sgd","nesterov":true,"momentum":0})", "train.nesterov = true: want no nesterov"},
      {R"(,"train":{"final_weight_decay":0.5})",
       "train.final_weight_decay = 0.5: want weight_decay = 0.1 with weight_decay_schedule = \"constant\""},
      {R"(,"train":{"layer_decay":0})", "train.layer_decay = 0: want a number above 0, at most 1"},
      {R"(,"train":{"clip_norm_type":"0"})", R"(train.clip_norm_type = "0": want a number above 0, or "inf")"},
      {R"(,"train":{"clip_norm_type":"max"})", R"(train.clip_norm_type = "max": want a number above 0, or "inf")"},
      {R"(,"train":{"precision":"fp8"})", R"(want one of "fp32", "bf16", "fp16")"},
      {R"(,"train":[])", "train = []: want an object"},
      {R"(,"model":{"vocab_size":256})", "model.vocab_size = 256: want at least 257"},
      {R"(,"model":{"hidden_size":65})", "model.hidden_size = 65: want a multiple"},
      {R"(,"model":{"family":"mamba"})", "model.family = \"mamba\": want one of \"llama\""},
      {R"(,"model":{"tie_word_embeddings":1})", "want true or false"},
      {R"(,"data":{"source":"web"})", "data.source = \"web\""},
      {R"(,"data":{"source":"folder"})", "data.path = \"\""},
      {R"(,"data":{"validation_fraction":1})", "data.validation_fraction = 1"},
      {R"(,"model":{"max_position_embeddings":2048},"data":{"sequence_length":4096})",
       "model.max_position_embeddings = 2048"},
      {R"(,"checkpoint":{"keep":0})", "checkpoint.keep = 0"},
      {R"(,"checkpoint":{"folder":3})", "checkpoint.folder = 3: want a path"},
      {R"(,"checkpoint":{"best":"accuracy"})",
       "checkpoint.best = \"accuracy\": want a series that this recipe reports; try validation/loss"},
      {R"(,"checkpoint":{"best":"loss"})", "checkpoint.best = \"loss\": want a series measured on held-out data"},
      {R"(,"checkpoint":{"best":"validation/loss"},"train":{"validation_every_steps":0})",
       "checkpoint.best = \"validation/loss\": want no series while nothing is validated "
       "(train.validation_every_steps = 0); give train.validation_every_steps a value above 0"},
      {R"(,"checkpoint":{"best":"validation/loss"},"data":{"validation_fraction":0})",
       "want no series while nothing is validated (data.validation_fraction = 0)"},
  };
  for (const auto& [rest, says] : cases) EXPECT_THAT(refusal(rest), HasSubstr(says)) << rest;
}

TEST(RunFile, AnotherFormatOrNoJsonIsAnError) {
  EXPECT_THAT(testing::message_of<base::UsageError>([] { parse_run_config(R"({"format":2,"name":"n"})"); }),
              HasSubstr("format = 2"));
  EXPECT_THAT(testing::message_of<base::UsageError>([] { parse_run_config(R"({"name":"n"})"); }),
              HasSubstr("format is missing"));
  EXPECT_THAT(testing::message_of<base::UsageError>([] { parse_run_config("[1]"); }), HasSubstr("no JSON object"));
  EXPECT_THAT(testing::message_of<base::UsageError>([] { parse_run_config("{\"format\":"); }), HasSubstr("no JSON"));
}

TEST(RunFile, TheErrorNamesTheFile) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "run.json", "{}");
  EXPECT_THAT(testing::message_of<base::UsageError>([&] { read_run_config(folder / "run.json"); }),
              HasSubstr("run.json: "));
  EXPECT_THAT(testing::message_of<base::UsageError>([&] { read_run_config(folder / "absent.json"); }),
              HasSubstr("absent.json"));
  EXPECT_THAT(testing::message_of<base::UsageError>([&] { read_run_config(folder.path()); }), HasSubstr("run file"));
}

TEST(BatchSplit, TotalIsMicroBatchTimesRanksTimesAccumulation) {
  spec::Training c;
  c.batch_size = 24;
  c.micro_batch_size = 3;
  EXPECT_EQ(split_batch(c, 2).accumulation, 4);
  EXPECT_EQ(split_batch(c, 8).accumulation, 1);
  c.micro_batch_size = 0;
  EXPECT_EQ(split_batch(c, 4).micro_batch_size, 6);
  EXPECT_EQ(split_batch(c, 4).accumulation, 1);
  c.batch_size = 0;
  EXPECT_EQ(split_batch(c, 4).batch_size, 32);
}

TEST(BatchSplit, ABatchThatDoesNotDivideIsAnErrorWithTheNearestThatDo) {
  spec::Training c;
  c.batch_size = 10;
  c.micro_batch_size = 2;
  EXPECT_THAT(testing::message_of<base::UsageError>([&] { split_batch(c, 3); }),
              AllOf(HasSubstr("train.batch_size = 10"), HasSubstr("6 or 12")));
  c.micro_batch_size = 0;
  EXPECT_THAT(testing::message_of<base::UsageError>([&] { split_batch(c, 16); }), HasSubstr("try 16"));
}

}  // namespace
}  // namespace worker
