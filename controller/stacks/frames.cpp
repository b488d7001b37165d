#include "controller/stacks/frames.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/protocol/stacks.h"

namespace stacks {
namespace {

struct Section {
  std::string_view pid;
  std::string_view by;
  std::vector<std::string_view> lines;
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<Section> sections_of(std::string_view text) {
  std::vector<Section> sections;
  for (const auto line : lines_of(text)) {
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
  while (text.starts_with(' ')) text.remove_prefix(1);
  return text;
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

}  // namespace stacks
