#include "worker/models/rope_members.h"

#include <stdexcept>
#include <utility>

#include "worker/models/config_json.h"
#include "worker/models/config_members.h"

namespace worker {
namespace {

using fsdp::Json;

const Json* rope_object(const Json& config, const char* name) {
  const Json* object = given_object(config, name);
  if (object == nullptr || object->size() == 0) return nullptr;
  for (const char* member : {"rope_type", "type", "rope_theta", "partial_rotary_factor"}) {
    const Json* value = object->find(member);
    if (value == nullptr || !value->is_null()) continue;
    throw std::invalid_argument(std::string(kModelConfigFile) + " has " + name + "." + member +
                                " = null, which transformers refuses; write the value, or remove the member");
  }
  return object;
}

}  // namespace

RopeObjects rope_objects(const Json& config) {
  return {rope_object(config, "rope_scaling"), rope_object(config, "rope_parameters")};
}

std::string rope_type_of(const Json& object, const std::string& where) {
  const Json *type = object.find("rope_type"), *old = object.find("type");
  if (type != nullptr && old != nullptr && !(*type == *old)) {
    throw std::invalid_argument(where + " has rope_type = " + type->dump() + " and type = " + old->dump() +
                                ", and versions of transformers differ in which one they read; remove one of the two");
  }
  const Json* said = type != nullptr ? type : old;
  if (said == nullptr) return "default";
  if (!said->is_string()) throw std::invalid_argument(where + ".rope_type = " + shown_value(*said) + ": want a text");
  return said->as_string();
}

void read_rope_number(const Json& config, const spec::Table& table, const RopeNumber& number, spec::Values& values) {
  const RopeObjects objects = rope_objects(config);
  const std::string member(number.member), alone(number.alone);
  const Json* found = given(config, alone);
  std::string where = alone;
  Json value = found != nullptr ? *found : Json(number.usual);
  const Json* written = objects.parameters == nullptr ? nullptr : objects.parameters->find(member);
  if (found == nullptr && objects.scaling == nullptr && written != nullptr) {
    value = *written;
    where = "rope_parameters." + member;
  }
  for (const auto& [object, name] :
       {std::pair{objects.scaling, "rope_scaling"}, {objects.parameters, "rope_parameters"}}) {
    const Json* other = object == nullptr ? nullptr : object->find(member);
    if (other == nullptr || equal_members(*other, value)) continue;
    throw std::invalid_argument(
        std::string(kModelConfigFile) + " has " + name + "." + member + " = " + shown_value(*other) + " and " +
        (found == nullptr ? "no " + where + ", which then is " : where + " = ") + shown_value(value) +
        " for a version of transformers; write the one with which the model was trained into "
        "both");
  }
  set_row(values, table, number.row, value, std::string(kModelConfigFile) + "'s " + where);
}

void refuse_two_ropes(const RopeObjects& objects) {
  throw std::invalid_argument(std::string(kModelConfigFile) + " has rope_scaling = " + shown_value(*objects.scaling) +
                              " and rope_parameters = " + shown_value(*objects.parameters) +
                              ", which differ; transformers passes the latter over; remove the one that is wrong");
}

}  // namespace worker
