#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "spec/table.h"

namespace worker {

/// No tensor, for FileNames.
std::string no_tensor(std::string_view in_file, const spec::Values& model);

/// How the tensors in a family's files belong to the parameters of its models. No member is null.
struct FileNames {
  /// The prefix that the base model's parameters have inside of a model with a head: "bert.". Files of the base model
  /// lack it.
  std::string_view base;
  /// The parameter of a name in a file, spelt as that file spells it: "LayerNorm.gamma" becomes "LayerNorm.weight".
  std::string (*parameter_of)(std::string_view in_file);
  /// Whether the model does without that tensor, such as a table that old files hold, or a second name of a tied
  /// weight.
  bool (*may_ignore)(std::string_view in_file, const spec::Values& model);
  /// Whether training may draw that parameter where the files lack it, such as a head.
  bool (*may_lack)(std::string_view parameter);
  /// The tensor to which one must be equal, because the model has one parameter for both: the table of embeddings for a
  /// tied head. transformers 4 takes the table for both, and transformers 5 keeps a head that differs. Empty: none.
  std::string (*equal_to)(std::string_view in_file, const spec::Values& model) = no_tensor;
  /// The tensor that counts instead of one where the files have both. Empty: none.
  std::string (*replaced_by)(std::string_view in_file, const spec::Values& model) = no_tensor;
};

/// The parameter that a tensor in a file gives its values to. Tries the name as it is, then with the base prefix
/// removed, then with it added, as transformers does. `is_parameter` says whether the model has that name. Where no
/// name fits, it returns the first one, so that an error can name it.
std::string parameter_in(const FileNames& names, std::string_view in_file,
                         const std::function<bool(const std::string& name)>& is_parameter);

/// A parameter_of that changes nothing.
std::string same_name(std::string_view in_file);

}  // namespace worker
