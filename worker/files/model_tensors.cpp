#include "worker/files/model_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace worker {
namespace {

using fsdp::TensorFiles;

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements that are compared at once

bool are_equal(const TensorFiles::Place& one, const std::string& one_name, const TensorFiles::Place& other,
               const std::string& other_name) {
  if (one.entry.shape != other.entry.shape) return false;
  const std::int64_t all = one.file->numel(one_name);
  for (std::int64_t begin = 0; begin < all; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, all - begin);
    const at::Tensor left = at::empty({count}, at::kFloat), right = at::empty({count}, at::kFloat);
    one.file->read(one_name, begin, left);
    other.file->read(other_name, begin, right);
    if (!at::equal(left, right)) return false;
  }
  return true;
}

/// The tensor of the files that has this name, with or without the base prefix.
const std::pair<const std::string, TensorFiles::Place>* find_tensor(const FileNames& names, const TensorFiles& files,
                                                                    const std::string& name) {
  auto found = files.tensors().find(name);
  if (found == files.tensors().end() && !names.base.empty() && name.starts_with(names.base))
    found = files.tensors().find(name.substr(names.base.size()));
  return found == files.tensors().end() ? nullptr : &*found;
}

}  // namespace

fsdp::LoadNames load_names(const FileNames& names, const spec::Values& values, const TensorFiles& files,
                           std::function<bool(const std::string& name)> is_parameter, const std::string& prefix) {
  const auto is_replaced = [&names, &values, &files](const std::string& in_file) {
    const std::string by = names.replaced_by(in_file, values);
    return !by.empty() && find_tensor(names, files, by) != nullptr;
  };
  fsdp::LoadNames load;
  load.parameter_of = [&names, is_replaced, prefix,
                       is_parameter = std::move(is_parameter)](const std::string& in_file) {
    // No parameter has this name.
    if (is_replaced(in_file)) return "(replaced) " + in_file;
    return prefix + parameter_in(names, in_file, [&](const std::string& name) { return is_parameter(prefix + name); });
  };
  load.may_ignore = [&names, &values, is_replaced](const std::string& in_file) {
    return is_replaced(in_file) || names.may_ignore(in_file, values);
  };
  load.may_lack = [&names, size = prefix.size()](const std::string& name) { return names.may_lack(name.substr(size)); };
  return load;
}

void check_equal_tensors(const FileNames& names, const spec::Values& values, const TensorFiles& files) {
  for (const auto& [name, place] : files.tensors()) {
    const std::string like = names.equal_to(name, values);
    const auto* const other = like.empty() ? nullptr : find_tensor(names, files, like);
    if (other == nullptr || are_equal(place, name, other->second, other->first)) continue;
    throw fsdp::UnfitTensors(
        name + " has other values than " + other->first +
        ", and by config.json this model has one parameter for both. transformers 4 takes " + other->first +
        ", and transformers 5 may take " + name +
        "; write \"tie_word_embeddings\": false into config.json for a model with both, or remove " + name +
        " from the files");
  }
}

std::shared_ptr<const std::set<std::string, std::less<>>> tensor_names(const std::filesystem::path& folder) {
  try {
    const TensorFiles files(folder);
    std::set<std::string, std::less<>> names;
    for (const auto& [name, place] : files.tensors()) names.insert(name);
    return std::make_shared<const std::set<std::string, std::less<>>>(std::move(names));
  } catch (const fsdp::UnfitTensors&) {
    return nullptr;
  } catch (const c10::Error&) {
    return nullptr;
  }
}

}  // namespace worker
