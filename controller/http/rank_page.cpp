#include "http/rank_page.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "json/proto_json.h"

namespace http {

using nlohmann::ordered_json;

ordered_json rank_page(const muster::v1::Job& job, const RankRange& range) {
  std::map<std::string, std::uint32_t> states;
  std::uint32_t total = 0, slow = 0;
  ordered_json ranks = ordered_json::array();
  const auto known = static_cast<std::uint32_t>(job.ranks_size());
  for (std::uint32_t number = 0; known > 0 && number < std::max(known, job.ranks_total()); ++number) {
    muster::v1::Rank missing;
    missing.set_rank(number);
    missing.set_state("missing");
    const auto& rank = number < known ? job.ranks(static_cast<int>(number)) : missing;
    ++states[rank.state()];
    slow += rank.has_slowness() ? 1 : 0;
    const bool wanted = range.show.empty() || (range.show == "slow" ? rank.has_slowness() : rank.state() == range.show);
    if (!wanted || total++ < range.from || ranks.size() >= range.limit) continue;
    ranks.push_back(proto::to_json(rank));
  }
  return {{"attempt", job.attempts_size() ? job.attempts().rbegin()->number() : 0},
          {"total", total},
          {"states", states},
          {"slow", slow},
          {"ranks", std::move(ranks)}};
}

}  // namespace http
