#include "worker/models/family.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "worker/models/bert/bert_hf.h"
#include "worker/models/dinov2/dinov2_hf.h"
#include "worker/models/gpt_neox/gpt_neox_hf.h"
#include "worker/models/llama/llama_hf.h"
#include "worker/models/t5/t5_hf.h"

namespace worker {
namespace {

/// The registration of a family is one line here.
std::vector<const Family*>& registered_families() {
  static std::vector all{&llama_family(), &gpt_neox_family(), &dinov2_family(), &bert_family(), &t5_family()};
  return all;
}

[[noreturn]] void refuse_family(std::string_view name) {
  std::string list;
  for (const auto* one : families()) list += (list.empty() ? "" : ", ") + std::string(one->name);
  throw std::invalid_argument("there is no model family \"" + std::string(name) + "\"; want one of: " + list);
}

}  // namespace

std::span<const Family* const> families() {
  return registered_families();
}

spec::Values read_model(const Family& family, const ModelFiles& files) {
  spec::Values values = family.read(files.config);
  if (family.complete != nullptr) family.complete(files, values);
  return values;
}

const Family& family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  if (found == families().end()) refuse_family(name);
  return **found;
}

const Family& family_of_type(std::string_view model_type) {
  const auto found = std::ranges::find_if(families(), [&](const Family* one) {
    return one->name == model_type || std::ranges::find(one->other_types, model_type) != one->other_types.end();
  });
  if (found == families().end()) refuse_family(model_type);
  return **found;
}

ScratchFamily::ScratchFamily(const Family& family) {
  registered_families().push_back(&family);
}

ScratchFamily::~ScratchFamily() {
  registered_families().pop_back();
}

}  // namespace worker
