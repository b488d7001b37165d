#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "fsdp/text/json.h"
#include "spec/table.h"
#include "worker/models/causal_model.h"
#include "worker/models/ops.h"

namespace worker {

/// The files that describe a model of transformers.
struct ModelFiles {
  fsdp::Json config;           ///< config.json
  fsdp::Json generation = {};  ///< generation_config.json; null: there is none
  /// The names of the tensors in the files of weights. Null: not known, and config.json alone decides, as in a
  /// checkpoint, whose config.json a family has written.
  std::shared_ptr<const std::set<std::string, std::less<>>> tensors = nullptr;

  bool has(std::string_view tensor) const { return tensors != nullptr && tensors->contains(tensor); }
};

/// A family of models: its config.json, the names in its files, its first values, and what programs must know of it. A
/// new family is a folder with such a row, which is declared below, and one line in family.cpp; see docs/new-recipe.md.
///
/// `values` are those of the rows of `table`, with defaults where the rest is absent.
struct Family {
  std::string_view name;  ///< as model_type in config.json: "llama"
  /// Further values of model_type that `read` takes: "dinov2_with_registers".
  std::span<const std::string_view> other_types = {};
  const spec::Table& table;
  /// Architectures that config.json may name, ours first.
  std::span<const std::string_view> architectures;
  /// The rows that config.json gives, and what transformers takes for those that it lacks. Throws std::invalid_argument
  /// that names a member of the file that this family does not have here.
  spec::Values (*read)(const fsdp::Json& config);
  /// Completes the rows by what other files say, such as the token that a decoder begins with. Throws
  /// std::invalid_argument naming the files where they contradict each other. Null: no other file says anything.
  void (*complete)(const ModelFiles& files, spec::Values& values) = nullptr;
  /// Writes the values into config.json. Only what differs is changed, so a file that was read keeps its members
  /// without effect.
  void (*write)(const spec::Values& values, std::string_view architecture, fsdp::Json& config);
  FileNames names;
  /// The table of token embeddings among the parameters, whose rows are the vocabulary. Empty: the model reads no
  /// tokens.
  std::string_view token_embedding = {};
  /// The linear layers that get adapters (LoRA) where a run names none: the last parts of their names, with spaces
  /// between. Empty: a run must name them.
  std::string_view lora_layers = {};
  /// Draws first values for elements of the parameter `name` into `into`.
  void (*draw)(const spec::Values& values, const std::string& name, const at::Tensor& into, at::Generator& random);
  /// How many layers lie between a parameter and the output: 0 for the head, 1 for the last block. For
  /// train.layer_decay.
  int (*layers_above)(const spec::Values& values, const std::string& parameter);
  /// A decoder without values; null in families without one. Throws std::invalid_argument naming key, value and remedy
  /// when the sizes contradict each other.
  std::shared_ptr<CausalModel> (*make_causal)(const spec::Values& values) = nullptr;
};

/// BERT as transformers stores it: BertForMaskedLM and BertForSequenceClassification. Files of BertForPreTraining and
/// BertModel, files that name the norms' values gamma and beta, and files of one head for a model with the other are
/// read, too. Heads and pooler may be lacking, and then training draws them.
const Family& bert_family();
/// DINOv2 as transformers stores it: Dinov2Model, or Dinov2WithRegistersModel where model.num_register_tokens is above
/// 0. Files of transformers' models with a classifier, and of its backbones, are read as these.
const Family& dinov2_family();
/// GPT-NeoX as transformers stores it: GPTNeoXForCausalLM, from transformers 4 and 5. Pythia is one.
const Family& gpt_neox_family();
/// Llama and CodeLlama as transformers stores them: LlamaForCausalLM, from transformers 4 and 5.
const Family& llama_family();
/// T5 as transformers stores it: T5ForConditionalGeneration, of T5, T5 1.1 and Flan-T5.
const Family& t5_family();

/// A Family::draw of draw_normal() with model.initializer_range.
void draw_by_initializer_range(const spec::Values& values, const std::string& name, const at::Tensor& into,
                               at::Generator& random);

/// A Family::layers_above for a model of model.num_hidden_layers blocks, whose parameters are called "<blocks>0.",
/// "<blocks>1.", .., above the embeddings, whose names begin with `embeddings`.
int layers_above_blocks(const spec::Values& values, const std::string& parameter, std::string_view blocks,
                        std::string_view embeddings);

/// The rows that the files of a model give: what `read` and `complete` make of them.
spec::Values read_model(const Family& family, const ModelFiles& files);

/// The family of this name. Throws std::invalid_argument that lists the families.
const Family& family(std::string_view name);

/// The family whose config.json has this model_type. Throws std::invalid_argument that lists the families.
const Family& family_of_type(std::string_view model_type);

std::span<const Family* const> families();

/// Adds a family for as long as this object lives. For tests that build one. The last one made is the first one to go.
/// Not thread-safe.
class ScratchFamily {
 public:
  explicit ScratchFamily(const Family& family);
  ~ScratchFamily();
  ScratchFamily(const ScratchFamily&) = delete;
  ScratchFamily& operator=(const ScratchFamily&) = delete;
};

}  // namespace worker
