#include "service/requests.h"

#include <algorithm>

#include "schema/utf8.h"

namespace service {
namespace {

constexpr std::size_t kMostUser = 64;

}  // namespace

std::string user_or_unknown(const std::string& user) {
  // The cut may leave half a character, which protobuf does not send.
  return user.empty() ? "unknown" : schema::valid_utf8(user.substr(0, kMostUser));
}

std::vector<core::JobId> jobs_of(store::Store& store, const std::string& sweep) {
  store::ListFilter filter;
  filter.sweep = sweep;
  filter.limit = kListMost;
  std::vector<core::JobId> ids;
  for (bool more = true; more;) {
    const auto rows = store.list(filter);
    for (const auto& row : rows) ids.push_back(row.id);
    more = rows.size() == kListMost;
    if (more) filter.before = rows.back().id;
  }
  std::ranges::sort(ids);
  return ids;
}

}  // namespace service
