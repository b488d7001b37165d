// Goal: config.json is read as transformers means it, each member of it, and written without losing one. Method: texts
// of both transformers 4 and 5, for every family.
#include "worker/models/family.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fsdp/engine/initialize.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/llama/llama_model.h"
#include "worker/models/t5/t5_model.h"

namespace worker {
namespace {

using fsdp::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of_reading(const std::string& text) {
  try {
    llama_family().read(Json::parse(text));
    return "no error";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Families, AreFoundByTheirNames) {
  EXPECT_EQ(family("llama").name, "llama");
  try {
    family("lama");
    ADD_FAILURE();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"lama\""), HasSubstr("want one of: llama")));
  }
}

TEST(Families, AreFoundByTheTypesOfTheirFiles) {
  for (const auto* one : families()) EXPECT_EQ(&family_of_type(one->name), one);
  EXPECT_EQ(family_of_type("dinov2_with_registers").name, "dinov2");
  EXPECT_THROW(family_of_type("dinov2_with_anything"), std::invalid_argument);
  EXPECT_THROW(family("dinov2_with_registers"), std::invalid_argument) << "model.family has one name for both";
}

/// A model of the family's usual sizes that takes no memory; null: of images.
std::shared_ptr<torch::nn::Module> without_values(const Family& family) {
  const fsdp::MetaDeviceGuard guard;
  const spec::Values values = family.read(Json(Json::Object{}));
  if (family.make_causal != nullptr) return family.make_causal(values);
  if (family.name == "bert") return std::make_shared<BertForMaskedLm>(spec::bind<spec::Bert>(spec::bert(), values));
  if (family.name == "t5")
    return std::make_shared<T5ForConditionalGeneration>(spec::bind<spec::T5>(spec::t5(), values));
  return nullptr;
}

TEST(Families, NameTheirEmbeddingAndTheirLayersForAdapters) {
  for (const auto* family : families()) {
    SCOPED_TRACE(family->name);
    const auto model = without_values(*family);
    EXPECT_EQ(model == nullptr, family->token_embedding.empty());
    if (model == nullptr) continue;
    const auto parameters = model->named_parameters();
    const at::Tensor* table = parameters.find(std::string(family->token_embedding));
    ASSERT_NE(table, nullptr) << family->token_embedding;
    EXPECT_EQ(table->size(0), family->read(Json(Json::Object{})).whole("model.vocab_size"));
    EXPECT_EQ(family->lora_layers.empty(), family->make_causal == nullptr) << "adapters are of decoders";
    std::istringstream layers{std::string(family->lora_layers)};
    for (std::string layer; layers >> layer;) {
      EXPECT_TRUE(std::ranges::any_of(parameters.keys(), [&](const std::string& name) {
        return name.ends_with("." + layer + ".weight");
      })) << layer;
    }
  }
}

TEST(Families, ReadWhatTheyWrite) {
  for (const auto* family : families()) {
    SCOPED_TRACE(family->name);
    const spec::Values standard = family->read(Json(Json::Object{}));
    Json config;
    family->write(standard, family->architectures.front(), config);
    EXPECT_EQ(config.at("model_type").as_string(), family->name);
    EXPECT_EQ(config.at("architectures").as_array().front().as_string(), family->architectures.front());
    const spec::Values again = family->read(config);
    for (const auto& [name, value] : standard) {
      ASSERT_TRUE(again.has(name)) << name;
      EXPECT_EQ(*again.find(name), value) << name;
    }
    const std::string before = config.dump();
    family->write(again, family->architectures.front(), config);
    EXPECT_EQ(config.dump(), before);
  }
}

TEST(LlamaConfig, TakesTransformersDefaultsForWhatIsAbsentOrNull) {
  const auto values = llama_family().read(Json::parse(R"({"num_attention_heads": 8, "head_dim": null})"));
  EXPECT_EQ(values.whole("model.hidden_size"), 4096);
  EXPECT_EQ(values.whole("model.num_key_value_heads"), 8);
  EXPECT_EQ(values.real("model.rms_norm_eps"), 1e-6);
  EXPECT_EQ(values.real("model.rope_theta"), 10000);
  EXPECT_EQ(values.text("model.rope_type"), "default");
  EXPECT_FALSE(values.has("model.head_dim"));
  EXPECT_FALSE(values.has("model.rope_factor"));
}

TEST(LlamaConfig, ReadsScaledRopeOfBothTransformers) {
  const char* const kOld = R"({"rope_theta": 500000, "max_position_embeddings": 131072,
      "rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 8192}})";
  const char* const kNew = R"({"max_position_embeddings": 131072,
      "rope_parameters": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192, "rope_theta": 500000.0}})";
  for (const char* text : {kOld, kNew}) {
    const auto values = llama_family().read(Json::parse(text));
    const auto model = spec::bind<spec::Llama>(spec::llama(), values);
    EXPECT_EQ(model.rope_type, spec::RopeScaling::kLlama3);
    EXPECT_EQ(model.rope_factor, 32);
    EXPECT_EQ(model.rope_high_freq_factor, 4);
    EXPECT_EQ(model.rope_original_max_position_embeddings, 8192);
    EXPECT_EQ(model.rope_theta, 500000);
  }
  const auto older = llama_family().read(Json::parse(R"({"rope_scaling": {"type": "linear", "factor": 2.0}})"));
  EXPECT_EQ(older.text("model.rope_type"), "linear");
  EXPECT_EQ(older.real("model.rope_factor"), 2);
}

TEST(LlamaConfig, RefusesWhatItLacksByName) {
  EXPECT_EQ(error_of_reading(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})"), "no error");
  EXPECT_THAT(error_of_reading("[]"), HasSubstr("holds no JSON object"));
  EXPECT_THAT(error_of_reading(R"({"model_type": "mistral"})"),
              HasSubstr("has model_type = \"mistral\", and this model has \"llama\" only"));
  EXPECT_THAT(error_of_reading(R"({"architectures": ["LlamaForSequenceClassification"]})"),
              HasSubstr("want one of: LlamaForCausalLM, LlamaModel"));
  EXPECT_THAT(error_of_reading(R"({"hidden_act": "gelu"})"), HasSubstr("has hidden_act = \"gelu\""));
  EXPECT_THAT(error_of_reading(R"({"pretraining_tp": 2})"), HasSubstr("has pretraining_tp = 2"));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})"),
              HasSubstr("rope_scaling is of type \"yarn\""));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"rope_type": "linear"}})"),
              HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": 2})"), HasSubstr("rope_scaling = 2: want an object"));
  EXPECT_THAT(error_of_reading(R"({"hidden_size": "64"})"),
              HasSubstr("config.json's hidden_size = \"64\": want a whole number"));
  EXPECT_THAT(error_of_reading(R"({"num_hidden_layers": -1})"), HasSubstr("num_hidden_layers = -1: want"));
}

TEST(LlamaConfig, WritingKeepsWhatHasNoEffect) {
  Json config =
      Json::parse(R"({"rms_norm_eps": 1e-5, "hidden_size": 64, "task_specific_params": {"a": [1]}, "eos_token_id": 2,
                                "dtype": "float32", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})");
  auto values = llama_family().read(config);
  values.set("model.hidden_size", std::int64_t{128});
  values.set("model.rope_type", std::string("linear"));
  values.set("model.rope_factor", 4.0);
  llama_family().write(values, "LlamaForCausalLM", config);
  write_dtype(config, at::kBFloat16);
  EXPECT_EQ(config.at("hidden_size").as_int(), 128);
  EXPECT_EQ(config.at("task_specific_params").dump(), R"({"a":[1]})");
  EXPECT_EQ(config.at("eos_token_id").as_int(), 2);
  EXPECT_TRUE(config.at("bos_token_id").is_null());
  EXPECT_EQ(config.at("dtype").as_string(), "bfloat16");
  EXPECT_FALSE(config.contains("torch_dtype"));
  config["torch_dtype"] = "float32";
  write_dtype(config, at::kHalf);
  EXPECT_EQ(config.at("dtype"), config.at("torch_dtype")) << "as versions of transformers read either of them";
  for (const char* rope : {"rope_scaling", "rope_parameters"}) {
    EXPECT_EQ(config.at(rope).at("rope_type").as_string(), "linear") << rope;
    EXPECT_EQ(config.at(rope).at("factor").as_double(), 4) << rope;
  }
}

/// The error of a family about its config.json with one more member.
std::string error_of_member(const Family& family, const std::string& member) {
  try {
    family.read(Json::parse("{" + member + "}"));
    return "no error";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(ConfigMembers, OneThatNobodyKnowsIsRefusedByNameAndValue) {
  for (const auto* family : families()) {
    SCOPED_TRACE(family->name);
    EXPECT_THAT(error_of_member(*family, R"("logit_scale": [0.5, 2])"),
                AllOf(HasSubstr("config.json has logit_scale = [0.5,2], and this program does not know"),
                      HasSubstr("remove the member if it changes nothing, or choose another model")));
    EXPECT_THAT(error_of_member(*family, R"("quantization_config": {"bits": 4})"),
                HasSubstr("quantization_config = {\"bits\":4}, which this program does not have; choose the model "
                          "without quantization"));
    EXPECT_THAT(error_of_member(*family, R"("pruned_heads": {"1": [0]})"), HasSubstr("has pruned_heads"));
    for (const char* fine : {R"("logit_scale": null)", R"("_commit_hash": "1a2b")", R"("transformers_version": "5.1")",
                             R"("pruned_heads": {})", R"("torch_dtype": "float16")", R"("repetition_penalty": 1.1)"}) {
      EXPECT_EQ(error_of_member(*family, fine), "no error") << fine;
    }
  }
}

TEST(ConfigMembers, NullIsWhatItIsForEveryTransformersOrIsRefused) {
  const auto says = [](const char* name, const std::string& member, const std::string& end) {
    EXPECT_EQ(error_of_member(family(name), "\"" + member + "\": null"),
              end.empty() ? "no error" : "config.json has " + member + " = null, " + end)
        << name;
  };
  const std::string flag =
      "which transformers 4 takes as false, and transformers 5 does not; write true or false, as the model was trained";
  const std::string value = "and this program wants a value; write it, or remove the member to have the usual one";
  for (const char* name : {"llama", "gpt_neox", "t5", "bert"}) {
    says(name, "tie_word_embeddings", flag);
    says(name, "vocab_size", value);
    for (const char* fine : {"use_cache", "return_dict", "is_decoder", "pruned_heads", "id2label", "num_labels",
                             "problem_type", "output_attentions", "torch_dtype", "eos_token_ids"})
      says(name, fine, "");
  }
  for (const auto& [name, members] : std::initializer_list<std::pair<const char*, std::vector<const char*>>>{
           {"llama", {"attention_bias", "mlp_bias"}},
           {"gpt_neox", {"attention_bias", "use_parallel_residual"}},
           {"t5", {"is_encoder_decoder", "scale_decoder_outputs"}},
           {"dinov2", {"qkv_bias", "use_swiglu_ffn", "use_mask_token"}}})
    for (const char* member : members) says(name, member, flag);
  for (const auto& [name, members] : std::initializer_list<std::pair<const char*, std::vector<const char*>>>{
           {"llama", {"hidden_act", "rope_theta", "rms_norm_eps", "max_position_embeddings"}},
           {"gpt_neox", {"rotary_pct", "rotary_emb_base", "hidden_act", "attention_dropout"}},
           {"t5", {"dense_act_fn", "feed_forward_proj", "pad_token_id", "eos_token_id", "layer_norm_epsilon"}},
           {"bert", {"position_embedding_type", "hidden_act", "layer_norm_eps", "type_vocab_size"}},
           {"dinov2", {"image_size", "patch_size", "mlp_ratio", "layerscale_value", "drop_path_rate"}}})
    for (const char* member : members) says(name, member, value);
  for (const auto& [name, members] : std::initializer_list<std::pair<const char*, std::vector<const char*>>>{
           {"llama",
            {"head_dim", "num_key_value_heads", "attention_dropout", "rope_scaling", "rope_parameters",
             "pretraining_tp", "partial_rotary_factor", "is_encoder_decoder", "rope_interleaved"}},
           {"gpt_neox", {"rope_scaling", "rope_parameters", "rope_theta", "partial_rotary_factor"}},
           {"t5", {"num_decoder_layers", "decoder_start_token_id", "is_gated_act"}},
           {"bert", {"classifier_dropout", "pad_token_id", "is_encoder_decoder"}},
           {"dinov2", {"tie_word_embeddings", "out_features", "apply_layernorm"}}})
    for (const char* member : members) says(name, member, "");
  EXPECT_THAT(error_of_member(family("t5"), R"("feed_forward_proj": "gated-gelu", "is_gated_act": null)"),
              HasSubstr("is_gated_act = false, and this model has true only"));
}

TEST(ConfigMembers, ALongValueIsCutInItsMessage) {
  const std::string long_text(200, 'x');
  const auto error = error_of_member(llama_family(), R"("note": ")" + long_text + "\"");
  EXPECT_THAT(error, HasSubstr("config.json has note = \"xxx"));
  EXPECT_LT(error.size(), 260U);
}

TEST(ConfigMembers, OfRopeAreKnownToo) {
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "attention_factor": 1.5}})"),
              HasSubstr("config.json's rope_scaling has attention_factor = 1.5, and this program does not know"));
  EXPECT_THAT(error_of_reading(R"({"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}})"),
              HasSubstr("partial_rotary_factor = 0.5"));
  const auto& neox = family("gpt_neox");
  EXPECT_EQ(error_of_member(neox, R"("rotary_pct": 0.5, "partial_rotary_factor": 0.5, "rope_theta": 10000)"),
            "no error")
      << "as transformers 4 writes them twice";
  EXPECT_THAT(
      error_of_member(neox, R"("rotary_pct": 0.5, "partial_rotary_factor": 0.25)"),
      HasSubstr("partial_rotary_factor = 0.25, and transformers reads rotary_pct = 0.5 instead; make them equal"));
}

TEST(ConfigMembers, PlacesOfRopeThatDifferAreRefusedWithBothValues) {
  constexpr const char* kDiffer = "write the one with which the model was trained into both";
  // A file like this comes from transformers 4 when it saves a file of transformers 5 again.
  EXPECT_THAT(
      error_of_reading(R"({"rope_theta": 10000.0, "rope_scaling": null,
                                   "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})"),
      AllOf(HasSubstr("config.json has rope_parameters.rope_theta = 500000.0 and rope_theta = 10000.0 for a version"),
            HasSubstr(kDiffer)));
  EXPECT_THAT(
      error_of_reading(R"({"rope_scaling": {"type": "linear", "factor": 2, "rope_theta": 5e5}})"),
      HasSubstr("has rope_scaling.rope_theta = 500000.0 and no rope_theta, which then is 10000.0 for a version"));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"type": "linear", "factor": 2},
                                   "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5}})"),
              HasSubstr("has rope_parameters.rope_theta = 500000.0 and no rope_theta"));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"rope_type": "linear", "factor": 2},
                                   "rope_parameters": {"rope_type": "linear", "factor": 4}})"),
              HasSubstr(R"(has rope_scaling = {"factor":2,"rope_type":"linear"} and rope_parameters = {"factor":4,)"));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"rope_type": "default"},
                                   "rope_parameters": {"rope_type": "linear", "factor": 4}})"),
              HasSubstr("which differ; transformers passes the latter over; remove the one that is wrong"));
  EXPECT_THAT(error_of_reading(R"({"rope_scaling": {"rope_type": "default", "type": "linear", "factor": 2}})"),
              HasSubstr("rope_scaling has rope_type = \"default\" and type = \"linear\""));
  for (const std::string member : {"rope_type", "type", "rope_theta", "partial_rotary_factor"})
    EXPECT_THAT(error_of_reading(R"({"rope_parameters": {"factor": 2, ")" + member + "\": null}}"),
                HasSubstr("rope_parameters." + member + " = null, which transformers refuses"));
  for (const char* fine :
       {R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5}})",
        R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2},
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500000}})"}) {
    EXPECT_EQ(llama_family().read(Json::parse(fine)).real("model.rope_theta"), 5e5) << fine;
    EXPECT_EQ(llama_family().read(Json::parse(fine)).text("model.rope_type"), "linear") << fine;
  }
  const auto& neox = family("gpt_neox");
  EXPECT_THAT(error_of_member(neox, R"("rotary_emb_base": 10000, "rope_parameters": {"rope_theta": 20000})"),
              HasSubstr("has rope_parameters.rope_theta = 20000 and rotary_emb_base = 10000 for a version"));
  EXPECT_THAT(error_of_member(neox, R"("rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5})"),
              HasSubstr("has rope_scaling.partial_rotary_factor = 0.5 and no rotary_pct, which then is 0.25"));
  EXPECT_EQ(error_of_member(neox, R"("rotary_pct": 0.5, "rope_scaling": {"type": "default"},
                                     "rope_parameters": {"rope_theta": 10000, "partial_rotary_factor": 0.5})"),
            "no error");
}

TEST(GenerationMembers, ThatWouldChooseOtherTokensAreRefused) {
  const auto error_of = [](const char* text, bool is_whole) -> std::string {
    try {
      check_generation(Json::parse(text), "generation_config.json", is_whole);
      return "no error";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  for (const char* text : {R"({"repetition_penalty": 1.1})", R"({"suppress_tokens": [3]})", R"({"min_length": 4})",
                           R"({"forced_bos_token_id": 0})", R"({"no_repeat_ngram_size": 3})",
                           R"({"bad_words_ids": [[5]]})", R"({"stop_strings": ["end"]})"}) {
    EXPECT_THAT(error_of(text, true), AllOf(HasSubstr("generation_config.json has "),
                                            HasSubstr("muster generate does not do that; remove the member")))
        << text;
  }
  EXPECT_EQ(error_of(R"({"repetition_penalty": 1.0, "min_length": 0, "bad_words_ids": null, "do_sample": true,
                         "temperature": 0.6, "num_beams": 4, "eos_token_id": [1, 2], "_from_model_config": true})",
                     true),
            "no error");
  EXPECT_THAT(error_of(R"({"some_penalty": 1})", true), HasSubstr("has some_penalty = 1, and this program does not"));
  EXPECT_EQ(error_of(R"({"hidden_size": 1})", false), "no error") << "a member of the model";
}

TEST(FileNames, ABasePrefixIsAddedOrRemoved) {
  const FileNames& names = llama_family().names;
  const auto has = [](std::string_view wanted) { return [wanted](const std::string& name) { return name == wanted; }; };
  EXPECT_EQ(parameter_in(names, "model.norm.weight", has("model.norm.weight")), "model.norm.weight");
  EXPECT_EQ(parameter_in(names, "norm.weight", has("model.norm.weight")), "model.norm.weight");
  EXPECT_EQ(parameter_in(names, "model.norm.weight", has("norm.weight")), "norm.weight");
  EXPECT_EQ(parameter_in(names, "unknown", has("norm.weight")), "unknown");
}

TEST(LlamaFamily, CountsTheLayersAboveAParameter) {
  spec::Values values;
  values.set("model.num_hidden_layers", std::int64_t{12});
  const auto above = [&](const char* name) { return llama_family().layers_above(values, name); };
  EXPECT_EQ(above("lm_head.weight"), 0);
  EXPECT_EQ(above("model.norm.weight"), 0);
  EXPECT_EQ(above("model.layers.11.mlp.up_proj.weight"), 1);
  EXPECT_EQ(above("model.layers.0.mlp.up_proj.weight"), 12);
  EXPECT_EQ(above("model.embed_tokens.weight"), 13);
}

TEST(LlamaFamily, MakesAModelOfItsValues) {
  auto values = llama_family().read(Json::parse(R"({"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 1, "num_attention_heads": 2})"));
  const auto model = llama_family().make_causal(values);
  EXPECT_EQ(model->blocks().size(), 1u);
  values.set("model.num_attention_heads", std::int64_t{3});
  EXPECT_THROW(llama_family().make_causal(values), std::invalid_argument);
}

}  // namespace
}  // namespace worker
