#include "controller/stacks/stack_keeper.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "agent/protocol/files.h"
#include "base/durable_file.h"
#include "base/numbers.h"

namespace stacks {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string to_text(const StackSet& set) {
  json none = json::object();
  for (const auto& [rank, why] : set.none) none[std::to_string(rank)] = why;
  return json{{"number", set.number}, {"at_ms", set.at_ms}, {"why", set.why},
              {"user", set.user},     {"ranks", set.ranks}, {"none", none}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

/// nullopt: it makes no sense.
std::optional<StackSet> parse_set(const std::string& text) {
  const auto object = json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  try {
    StackSet set;
    set.number = object.at("number");
    set.at_ms = object.at("at_ms");
    set.why = object.at("why");
    set.user = object.at("user");
    set.ranks = object.at("ranks");
    for (const auto& [rank, why] : object.at("none").items()) {
      set.none.emplace(static_cast<core::RankNumber>(std::stoul(rank)), why.get<std::string>());
    }
    return set;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// The rank of "rank-3.txt".
std::optional<core::RankNumber> rank_of(const std::string& name) {
  constexpr std::string_view kLead = "rank-";
  if (!name.starts_with(kLead)) return std::nullopt;
  const auto digits = name.substr(kLead.size(), name.find('.') - kLead.size());
  const auto rank = base::whole_number<core::RankNumber>(digits);
  return rank && name == agent::protocol::stack_file_name(*rank) ? rank : std::nullopt;
}

std::set<core::RankNumber> given_in(const fs::path& folder) {
  std::set<core::RankNumber> ranks;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto rank = rank_of(entry->path().filename().string())) ranks.insert(*rank);
  }
  return ranks;
}

/// The numbers of the sets that are there, oldest first.
std::vector<std::uint64_t> numbers_in(const fs::path& folder) {
  std::vector<std::uint64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto number = base::whole_number<std::uint64_t>(entry->path().filename().native());
    if (number) numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::optional<StackSet> read_set(const fs::path& folder) {
  auto set = parse_set(base::read_small_file(folder / agent::protocol::kStackSetFile, std::size_t{1} << 20));
  if (!set) return std::nullopt;
  set->given = given_in(folder);
  std::erase_if(set->none, [&](const auto& each) { return set->given.contains(each.first); });
  return set;
}

}  // namespace

StackKeeper::StackKeeper(Parts parts, bool threads)
    : parts_(std::move(parts)),
      loop_("stacks", "stacks of ranks could not be kept", threads, [this] { return work(); }) {
  loop_.start();
}

fs::path StackKeeper::folder(const core::AttemptKey& key, std::uint64_t number) const {
  return agent::protocol::stack_folder(parts_.data.attempt(key), number);
}

std::uint64_t StackKeeper::ask(const core::AttemptKey& key, const std::string& why, const std::string& user,
                               std::uint32_t ranks) {
  std::uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    if (const auto known = under_way_.find(key); known != under_way_.end()) return known->second.set.number;
    const auto now = parts_.clock.wall().time_since_epoch();
    // Later ones have higher numbers, after a restart as well: agents answer a number once.
    newest_ = number = std::max(newest_ + 1, static_cast<std::uint64_t>(now.count()));
    StackSet set{.number = number, .at_ms = now.count(), .why = why, .user = user, .ranks = ranks, .over = false};
    under_way_.emplace(key, UnderWay{std::move(set), parts_.clock.monotonic() + kPatience});
  }
  if (!parts_.ask(key, number)) {
    std::lock_guard lock(mutex_);
    under_way_.erase(key);
    return 0;
  }
  loop_.wake();
  return number;
}

void StackKeeper::take(const core::AttemptKey& key, std::uint64_t number, core::RankNumber rank, std::string text) {
  std::lock_guard lock(mutex_);
  if (text.empty() || waiting_bytes_ + text.size() > kMostWaitingBytes) return;
  waiting_bytes_ += text.size();
  texts_.push_back({key, number, rank, std::move(text)});
  loop_.wake();
}

std::optional<std::set<core::RankNumber>> StackKeeper::given(const core::AttemptKey& key) const {
  std::lock_guard lock(mutex_);
  const auto request = under_way_.find(key);
  return request == under_way_.end() ? std::nullopt : std::optional(request->second.set.given);
}

std::optional<core::Millis> StackKeeper::work() {
  std::map<core::AttemptKey, UnderWay> now;
  {
    std::lock_guard lock(mutex_);
    now = under_way_;
  }
  for (auto& [key, request] : now) {
    // The set is known on the disk before texts are taken for it.
    if (!request.is_written) write_set(key, request.set);
  }
  write_texts();
  bool more = false;
  for (auto& [key, request] : now) {
    auto& set = request.set;
    set.given = given_in(folder(key, set.number));
    const bool over = set.given.size() >= set.ranks || parts_.clock.monotonic() >= request.until;
    if (over) {
      for (core::RankNumber rank = 0; rank < set.ranks; ++rank) {
        if (!set.given.contains(rank)) set.none.emplace(rank, parts_.why_none(key, rank));
      }
      write_set(key, set);
      forget_oldest(key);
    }
    {
      std::lock_guard lock(mutex_);
      const auto place = under_way_.find(key);
      if (over) {
        under_way_.erase(key);
      } else if (place != under_way_.end()) {
        place->second.is_written = true;
        place->second.set.given = set.given;
      }
      more = more || !over;
    }
    if (over) parts_.changed(key);
  }
  return more ? std::optional(kLook) : std::nullopt;
}

void StackKeeper::write_texts() {
  while (true) {
    Text next;
    {
      std::lock_guard lock(mutex_);
      if (texts_.empty()) return;
      next = std::move(texts_.front());
      texts_.pop_front();
      waiting_bytes_ -= next.text.size();
    }
    try {
      const auto where = folder(next.key, next.number);
      if (!fs::exists(where / agent::protocol::kStackSetFile)) continue;
      base::write_file_durably(where / agent::protocol::stack_file_name(next.rank), next.text);
    } catch (const std::system_error& error) {
      spdlog::warn("job {} attempt {}: the stack of rank {} is not kept: {}", next.key.job, next.key.number, next.rank,
                   error.what());
    }
  }
}

// A disk that refuses is told once a set, and the rest of the set goes on: an end may wait for it.
void StackKeeper::write_set(const core::AttemptKey& key, const StackSet& set) const {
  try {
    const auto where = folder(key, set.number);
    // The folder of a removed job does not come back.
    if (!fs::exists(parts_.data.attempt(key))) return;
    base::make_folders(where);
    base::write_file_durably(where / agent::protocol::kStackSetFile, to_text(set));
  } catch (const std::system_error& error) {
    spdlog::warn("job {} attempt {}: its stacks are not kept: {}", key.job, key.number, error.what());
  }
}

void StackKeeper::forget_oldest(const core::AttemptKey& key) const {
  try {
    auto kept = sets(key);
    while (kept.size() > kMostKept) {
      auto oldest = std::ranges::find(kept, "asked", &StackSet::why);
      if (oldest == kept.end()) oldest = kept.begin();
      fs::remove_all(folder(key, oldest->number));
      kept.erase(oldest);
    }
  } catch (const std::exception& error) {
    spdlog::warn("job {} attempt {}: old stacks are not removed: {}", key.job, key.number, error.what());
  }
}

std::vector<StackSet> StackKeeper::sets(const core::AttemptKey& key) const {
  std::vector<StackSet> out;
  for (const auto number : numbers_in(parts_.data.attempt(key) / agent::protocol::kStacksFolder)) {
    auto set = read_set(folder(key, number));
    if (set && set->number == number) out.push_back(std::move(*set));
  }
  std::lock_guard lock(mutex_);
  const auto request = under_way_.find(key);
  if (request == under_way_.end()) return out;
  const auto place = std::ranges::find(out, request->second.set.number, &StackSet::number);
  if (place != out.end()) {
    place->over = false;
  } else {
    out.push_back(request->second.set);
  }
  return out;
}

std::string StackKeeper::text(const core::AttemptKey& key, std::uint64_t number, core::RankNumber rank,
                              std::size_t most) const {
  return base::read_small_file(folder(key, number) / agent::protocol::stack_file_name(rank),
                               std::min(most, agent::protocol::kMostStackBytes));
}

}  // namespace stacks
