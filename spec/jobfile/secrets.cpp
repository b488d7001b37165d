#include "spec/jobfile/secrets.h"

#include "spec/secret_variables.h"

namespace jobfile {
namespace {

void mask(google::protobuf::Map<std::string, std::string>& variables) {
  for (auto& [name, value] : variables) value = spec::shown_value(name, value);
}

}  // namespace

void mask_secrets(muster::v1::SweepElement& element) {
  for (auto& [key, value] : *element.mutable_settings()) {
    const auto dot = key.find('.');
    const auto table = key.substr(0, dot);
    if (table == "env" || table == "submitted_env") value = spec::shown_value(key.substr(dot + 1), value);
  }
}

void mask_secrets(muster::v1::JobSpec& spec) {
  mask(*spec.mutable_env());
  mask(*spec.mutable_submitted_env());
  if (spec.has_sweep()) mask_secrets(*spec.mutable_sweep());
}

}  // namespace jobfile
