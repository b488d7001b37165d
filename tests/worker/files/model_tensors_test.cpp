// Goal: two tensors of a file for one parameter are equal, or the file is refused; and where transformers takes the
// second one, we do, too.
#include "worker/files/model_tensors.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "fsdp/files/safetensors.h"
#include "tests/worker/temporary_folder.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/family.h"
#include "worker/models/t5/t5_model.h"

namespace worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

spec::Values tied(bool is_tied) {
  spec::Values values;
  values.set("model.tie_word_embeddings", is_tied);
  return values;
}

/// The error about a file with these tensors; "equal" if there is none.
std::string finding(const Family& family, bool is_tied, const Tensors& tensors) {
  const TemporaryFolder folder;
  fsdp::write_safetensors(folder / "model.safetensors", tensors);
  try {
    check_equal_tensors(family.names, tied(is_tied), fsdp::TensorFiles(folder.path()));
    return "equal";
  } catch (const fsdp::UnfitTensors& error) {
    return error.what();
  }
}

TEST(EqualTensors, AreTheHeadAndTheTableOfATiedModel) {
  struct Case {
    const Family& family;
    const char *head, *table;
  };
  for (const auto& [family, head, table] :
       {Case{llama_family(), "lm_head.weight", "model.embed_tokens.weight"},
        Case{gpt_neox_family(), "embed_out.weight", "gpt_neox.embed_in.weight"},
        Case{t5_family(), "lm_head.weight", "shared.weight"},
        Case{t5_family(), "encoder.embed_tokens.weight", "shared.weight"},
        Case{bert_family(), "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
        Case{bert_family(), "cls.predictions.decoder.bias", "cls.predictions.bias"}}) {
    SCOPED_TRACE(std::string(family.name) + " " + head);
    const at::Tensor values = at::ones({5, 3});
    at::Tensor other = values.clone();
    other[4][2] = 2;
    EXPECT_EQ(finding(family, true, {{head, values}, {table, values}}), "equal");
    EXPECT_EQ(finding(family, true, {{table, values}}), "equal") << "nothing to compare";
    EXPECT_THAT(finding(family, true, {{head, other}, {table, values}}),
                AllOf(HasSubstr(std::string(head) + " has other values than " + table),
                      HasSubstr("\"tie_word_embeddings\": false"), HasSubstr("or remove " + std::string(head))));
    EXPECT_THAT(finding(family, true, {{head, at::ones({4, 3})}, {table, values}}), HasSubstr("has other values"));
  }
  EXPECT_EQ(finding(llama_family(), false,
                    {{"lm_head.weight", at::zeros({2})}, {"model.embed_tokens.weight", at::ones({2})}}),
            "equal")
      << "two parameters";
}

TEST(EqualTensors, AreComparedToTheirLastPiece) {
  const at::Tensor values = at::ones({3, 1 << 20});
  at::Tensor other = values.clone();
  other[2][(1 << 20) - 1] = 2;
  EXPECT_THAT(finding(llama_family(), true, {{"lm_head.weight", other}, {"embed_tokens.weight", values}}),
              HasSubstr("other values than embed_tokens.weight"))
      << "a file of the base model";
}

TEST(LoadNames, OfAnUntiedBertTakeTheBiasOfTheDecoder) {
  const TemporaryFolder folder;
  fsdp::write_safetensors(folder / "model.safetensors",
                          {{"cls.predictions.bias", at::zeros({4})}, {"cls.predictions.decoder.bias", at::ones({4})}});
  const fsdp::TensorFiles files(folder.path());
  const auto is_parameter = [](const std::string& name) { return name == "cls.predictions.bias"; };
  for (const bool is_tied : {true, false}) {
    const auto values = tied(is_tied);
    const auto names = load_names(bert_family().names, values, files, is_parameter);
    EXPECT_EQ(names.parameter_of("cls.predictions.decoder.bias"), "cls.predictions.bias");
    EXPECT_EQ(names.parameter_of("cls.predictions.bias") == "cls.predictions.bias", is_tied);
    EXPECT_TRUE(names.may_ignore("cls.predictions.bias"));
  }
}

TEST(TensorNames, AreNotKnownWithoutFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(tensor_names(folder.path()), nullptr);
  fsdp::write_safetensors(folder / "model.safetensors", {{"a", at::ones({1})}});
  ASSERT_NE(tensor_names(folder.path()), nullptr);
  EXPECT_TRUE(tensor_names(folder.path())->contains("a"));
}

}  // namespace
}  // namespace worker
