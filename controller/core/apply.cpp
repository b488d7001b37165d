#include "core/apply.h"

#include <utility>

#include "core/transitions.h"

namespace core {

Applied apply(Job now, const Event& event) {
  Applied out{std::move(now), {}, ""};
  ++out.job.version;
  std::visit([&](const auto& body) { on(out, body, event.at); }, event.body);
  return out;
}

}  // namespace core
