#include "worker/models/family.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

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

void draw_by_initializer_range(const spec::Values& values, const std::string& name, const at::Tensor& into,
                               at::Generator& random) {
  draw_normal(name, into, values.real("model.initializer_range"), random);
}

int layers_above_blocks(const spec::Values& values, const std::string& parameter, std::string_view blocks,
                        std::string_view embeddings) {
  const auto count = static_cast<int>(values.whole("model.num_hidden_layers"));
  if (parameter.starts_with(blocks)) return count - std::stoi(parameter.substr(blocks.size()));
  return parameter.starts_with(embeddings) ? count + 1 : 0;
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
