#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/models/family.h"

namespace worker {

/// BERT as transformers stores it: BertForMaskedLM and BertForSequenceClassification. Files of BertForPreTraining and
/// BertModel, files that name the norms' values gamma and beta, and files of one head for a model with the other are
/// read, too. Heads and pooler may be lacking, and then training draws them.
const Family& bert_family();

/// The architectures of BERT that are trained here, as config.json names them.
inline constexpr std::string_view kBertForMaskedLm = "BertForMaskedLM";
inline constexpr std::string_view kBertClassifier = "BertForSequenceClassification";

/// The further names that a file of a BERT without tied weights has for a parameter: transformers 5 adds the decoder's
/// bias under a name of its own, and transformers 4 takes the other name.
std::vector<std::string> second_bert_names(const std::string& parameter);

/// The names of a classifier's labels in config.json, by number: `id2label`, else `num_labels` names "LABEL_0",
/// "LABEL_1", .., else two, as transformers has it. Throws std::invalid_argument that names the member and the remedy
/// when the numbers are not 0, 1, .. or a name is no text.
std::vector<std::string> bert_labels(const fsdp::Json& config);

/// Writes `id2label`, `label2id` and `problem_type` of a classifier with these labels, each of which is another text.
/// Throws std::invalid_argument naming a label that comes twice.
void write_bert_labels(std::span<const std::string> labels, fsdp::Json& config);

}  // namespace worker
