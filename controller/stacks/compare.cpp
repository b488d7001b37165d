#include "controller/stacks/compare.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <ranges>
#include <utility>

#include "agent/protocol/files.h"

namespace stacks {
namespace {

struct Section {
  std::string_view pid;
  std::string_view by;
  std::vector<std::string_view> lines;
};

std::vector<Section> sections_of(std::string_view text) {
  std::vector<Section> sections;
  for (const auto part : std::views::split(text, '\n')) {
    const std::string_view line(part.begin(), part.end());
    if (line.starts_with(agent::protocol::kSectionMark)) {
      // The command may hold the mark, too.
      const auto by = line.rfind(agent::protocol::kSectionBy);
      if (by == std::string_view::npos || by < agent::protocol::kSectionMark.size()) continue;
      const auto pid = line.substr(agent::protocol::kSectionMark.size());
      sections.push_back({pid.substr(0, pid.find(' ')), line.substr(by + agent::protocol::kSectionBy.size()), {}});
    } else if (!sections.empty()) {
      sections.back().lines.push_back(line);
    }
  }
  return sections;
}

std::string_view trimmed(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

using Thread = std::vector<std::string>;  // the innermost frame first

/// `  File "/a/train.py", line 41 in train_step`, as faulthandler writes it.
std::optional<std::string> frame_of_faulthandler(std::string_view line) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = " in ";
  line = trimmed(line);
  if (!line.starts_with(kFile)) return std::nullopt;
  const auto at = line.rfind(kLine), in = line.rfind(kIn);
  if (at == std::string_view::npos || in == std::string_view::npos || in < at) return std::nullopt;
  const auto number = line.substr(at + kLine.size(), in - at - kLine.size());
  return std::string(line.substr(in + kIn.size())) + " (" +
         std::string(base_name(line.substr(kFile.size(), at - kFile.size()))) + ":" + std::string(number) + ")";
}

/// The main thread comes last.
Thread main_of_faulthandler(const Section& section) {
  std::vector<Thread> threads;
  for (const auto line : section.lines) {
    if (line.starts_with("Current thread ") || line.starts_with("Thread ")) threads.emplace_back();
    auto frame = frame_of_faulthandler(line);
    if (frame && !threads.empty()) threads.back().push_back(std::move(*frame));
  }
  return threads.empty() ? Thread() : threads.back();
}

/// `    train_step (train.py:41)`, as py-spy writes it, below `Thread 41 (idle): "MainThread"`.
Thread main_of_py_spy(const Section& section) {
  constexpr std::string_view kThread = "Thread ";
  std::vector<Thread> threads;
  std::optional<std::size_t> main;
  for (const auto line : section.lines) {
    if (line.starts_with(kThread)) {
      // Not every version and program tells names.
      const auto number = line.substr(kThread.size(), line.find(' ', kThread.size()) - kThread.size());
      if (!main && (line.ends_with("\"MainThread\"") || number == section.pid)) main = threads.size();
      threads.emplace_back();
    } else if (!threads.empty() && line.starts_with("    ") && line.ends_with(')')) {
      threads.back().emplace_back(trimmed(line));
    }
  }
  return threads.empty() ? Thread() : threads[main.value_or(0)];
}

/// `  fsdp::Unit::wait() in muster-worker`, below `thread 41 muster-worker`; the main thread comes first.
Thread main_of_worker(const Section& section) {
  Thread frames;
  bool begun = false;
  for (const auto line : section.lines) {
    if (line.starts_with("thread ")) {
      if (std::exchange(begun, true)) break;
    } else if (begun && line.starts_with("  ")) {
      // Without its place in the function, which differs between ranks that spin in one loop.
      frames.emplace_back(trimmed(line));
    }
  }
  return frames;
}

/// "thread 41 python3: sleeps, in futex, wait channel futex_wait_queue, 1.20 s of CPU"
Thread main_of_kernel(const Section& section) {
  if (section.lines.empty()) return {};
  auto line = section.lines.front();
  const auto begin = line.find(": ");
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin + 2);
  // Times and descriptors differ between ranks that do the same.
  line = line.substr(0, line.rfind(", "));
  const auto of = line.find(" of ");
  const auto next = of == std::string_view::npos ? of : line.find(", ", of);
  std::string text(line.substr(0, of));
  if (next != std::string_view::npos) text += line.substr(next);
  return {text};
}

Place place_of(const Section& section) {
  Place out;
  if (section.by == agent::protocol::kByFaulthandler) out = {Kind::kPython, main_of_faulthandler(section)};
  if (section.by == agent::protocol::kByPySpy) out = {Kind::kPython, main_of_py_spy(section)};
  if (section.by == agent::protocol::kByWorker) out = {Kind::kNative, main_of_worker(section)};
  if (section.by == agent::protocol::kByKernel) out = {Kind::kKernel, main_of_kernel(section)};
  std::ranges::reverse(out.frames);
  return out;
}

/// Ranks and groups beyond these are counted in a sentence.
constexpr std::size_t kMostNamedRanks = 8, kMostNamedGroups = 4;

/// The frame that the ranks have at one depth; empty: the stack has ended above it.
std::string at_depth(const Place& place, std::size_t depth) {
  return depth < place.frames.size() ? place.frames[depth] : std::string();
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  if (ranks.size() > kMostNamedRanks) return std::to_string(ranks.size()) + " ranks";
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += std::to_string(ranks[i]);
  }
  return out;
}

std::string stands(const Group& group) {
  std::string at = group.parts_at;
  if (group.innermost != group.parts_at) at += ", in " + group.innermost;
  return (group.ranks.size() == 1 ? " stands at " : " stand at ") + at;
}

}  // namespace

Place place_of(std::string_view text) {
  Place first;
  for (const auto& section : sections_of(text)) {
    auto place = place_of(section);
    if (place.kind != Kind::kKernel && !place.frames.empty()) return place;
    if (first.frames.empty()) first = std::move(place);
  }
  return first;
}

std::vector<Group> compare(const std::map<std::uint32_t, Place>& all) {
  std::map<std::uint32_t, const Place*> ranks;
  for (const auto& [rank, place] : all) {
    if (!place.frames.empty()) ranks.emplace(rank, &place);
  }
  if (ranks.empty()) return {};
  std::size_t deepest = 0;
  for (const auto& [rank, place] : ranks) deepest = std::max(deepest, place->frames.size());
  std::map<std::pair<Kind, std::string>, Group> groups;
  for (std::size_t depth = 0; depth < deepest && groups.size() < 2; ++depth) {
    groups.clear();
    for (const auto& [rank, place] : ranks) {
      auto& group = groups[{place->kind, at_depth(*place, depth)}];
      if (group.ranks.empty()) {
        group.innermost = place->frames.back();
        group.parts_at = depth < place->frames.size() ? place->frames[depth] : group.innermost;
      }
      group.ranks.push_back(rank);
    }
  }
  std::vector<Group> out;
  for (auto& [_, group] : groups) out.push_back(std::move(group));
  std::ranges::sort(out, [](const Group& a, const Group& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size() : a.ranks < b.ranks;
  });
  return out;
}

std::string summary_of(const std::vector<Group>& groups) {
  if (groups.empty()) return "";
  if (groups.size() == 1) {
    const auto& all = groups.front();
    return (all.ranks.size() == 1 ? ranks_text(all.ranks) : "all " + std::to_string(all.ranks.size()) + " ranks") +
           stands(all);
  }
  // Those that are fewer first: they are what is looked for.
  std::string out;
  std::size_t named = 0;
  for (std::size_t i = groups.size(); i-- > 1 && named < kMostNamedGroups; ++named) {
    out += (out.empty() ? "" : "; ") + ranks_text(groups[i].ranks) + stands(groups[i]);
  }
  if (groups.size() - 1 > named) out += "; " + std::to_string(groups.size() - 1 - named) + " more places";
  return out + "; " + ranks_text(groups.front().ranks) + stands(groups.front());
}

}  // namespace stacks
