#include "agent/watch/saves.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>

#include "agent/watch/checkpoint_name.h"
#include "base/save_name.h"

namespace agent::watch {
namespace {

using By = NamedStep::By;

/// How surely what was passed on the way to a file tells the step: a folder of an epoch may hold saves of steps.
enum class Sureness { kNone, kWeak, kStrong };

struct Place {
  Sureness sureness = Sureness::kNone;
  std::size_t end = 0;  // of the path of the folder that tells it
};

bool is_strong(By by) {
  return by == By::kStep || by == By::kCheckpoint;
}

void enter(std::string_view folder, std::size_t end, Place& place) {
  if (place.sureness == Sureness::kStrong) return;
  const auto named = step_in_name(folder);
  if (!named || (named->by == By::kAlone && !step_of_digits(folder))) return;
  if (is_strong(named->by)) {
    place = {Sureness::kStrong, end};
  } else if (place.sureness == Sureness::kNone) {
    place = {Sureness::kWeak, end};
  }
}

/// The folder of a path, with its slash; empty: the top.
std::string_view folder_of(std::string_view path) {
  return path.substr(0, path.rfind('/') + 1);
}

std::string_view name_in(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

Place place_of(std::string_view path) {
  Place place;
  for (std::size_t begin = 0;;) {
    const auto slash = path.find('/', begin);
    if (slash == std::string_view::npos) return place;
    enter(path.substr(begin, slash - begin), slash, place);
    begin = slash + 1;
  }
}

bool is_of_a_rank(std::string_view name) {
  constexpr std::array<std::string_view, 9> kParts{"rank",       "shard",    "rng_state", "random_states", "optimizer",
                                                   "scheduler_", "sampler_", "scaler_",   ".distcp"};
  if (std::ranges::none_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) return false;
  return std::ranges::any_of(kParts, [&](auto part) { return name.find(part) != std::string_view::npos; });
}

std::string label(const NamedStep& named) {
  return (named.by == By::kEpoch ? "epoch " : "step ") + std::to_string(named.step);
}

class Saves {
 public:
  explicit Saves(const std::vector<std::string>& files) {
    for (const auto& path : files) {
      const auto named = step_in_name(name_in(path));
      const bool has_step = named && is_strong(named->by);
      if (!has_step && is_of_a_rank(name_in(path))) of_ranks_.emplace(folder_of(path));
    }
  }

  SaveOfFile of(const std::string& path) const {
    const auto place = place_of(path);
    const auto folder = folder_of(path);
    const auto named = step_in_name(name_in(path));
    if (named && counts(*named, place, folder)) return {std::string(folder) + label(*named), true};
    if (place.sureness != Sureness::kNone) return {path.substr(0, place.end), true};
    if (!folder.empty()) return {path.substr(0, path.find('/') + 1), false};
    const auto of = base::number_of(path);
    const bool is_part = of && of->is_part == base::NumberOf::IsPart::kYes;
    return {is_part ? of->before + "#-of-" + of->count_text + of->after : path, false};
  }

 private:
  bool counts(const NamedStep& named, const Place& place, std::string_view folder) const {
    switch (place.sureness) {
      case Sureness::kStrong:
        return false;
      case Sureness::kWeak:
        return is_strong(named.by);
      case Sureness::kNone:
        break;
    }
    const bool by_word = is_strong(named.by) || named.by == By::kEpoch;
    return by_word || !of_ranks_.contains(folder);
  }

  std::set<std::string, std::less<>> of_ranks_;  // folders that hold files of ranks
};

}  // namespace

std::vector<SaveOfFile> saves_of(const std::vector<std::string>& files) {
  const Saves saves(files);
  std::vector<SaveOfFile> out;
  out.reserve(files.size());
  for (const auto& path : files) out.push_back(saves.of(path));
  return out;
}

}  // namespace agent::watch
