#include "models/family.h"

#include <array>
#include <stdexcept>

#include "models/bert/hf.h"
#include "models/dinov2/hf.h"
#include "models/gpt_neox/hf.h"
#include "models/llama/hf.h"
#include "models/t5/hf.h"

namespace worker {

std::span<const Family* const> families() {
  static const std::array all{&llama_family(), &gpt_neox_family(), &dinov2_family(), &bert_family(), &t5_family()};
  return all;
}

const Family& family(std::string_view name) {
  std::string list;
  for (const auto* one : families()) {
    if (one->name == name) return *one;
    list += (list.empty() ? "" : ", ") + std::string(one->name);
  }
  throw std::invalid_argument("there is no model family \"" + std::string(name) + "\"; want one of: " + list);
}

}  // namespace worker
