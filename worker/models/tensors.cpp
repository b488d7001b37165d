#include "worker/models/tensors.h"

namespace worker {

std::string no_tensor(std::string_view, const spec::Values&) {
  return {};
}

std::string parameter_in(const FileNames& names, std::string_view in_file,
                         const std::function<bool(const std::string& name)>& is_parameter) {
  std::string plain = names.parameter_of(in_file);
  if (is_parameter(plain) || names.base.empty()) return plain;
  if (plain.starts_with(names.base)) {
    if (std::string without = plain.substr(names.base.size()); is_parameter(without)) return without;
  }
  if (std::string with = std::string(names.base) + plain; is_parameter(with)) return with;
  return plain;
}

std::string same_name(std::string_view in_file) {
  return std::string(in_file);
}

}  // namespace worker
