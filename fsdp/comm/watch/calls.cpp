#include "fsdp/comm/watch/calls.h"

#include <algorithm>

#include "base/words.h"
#include "fsdp/text/fnv1a.h"

namespace fsdp::watch {
namespace {

std::uint64_t digest_of(std::string_view kind, std::string_view whose, std::int64_t bytes) {
  return Fnv1a().add(kind).add(std::uint64_t{0}).add(whose).add(static_cast<std::uint64_t>(bytes)).value();
}

/// The first `most` bytes of a UTF-8 text, or less, so that no character is cut.
std::string_view first_bytes(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; };
  while (most > 0 && continues(text[most])) --most;
  return text.substr(0, most);
}

}  // namespace

std::string Call::text() const {
  return kind + (whose.empty() ? "" : " of ") + whose + " (" + std::to_string(bytes) + " bytes a rank)";
}

std::uint64_t Calls::start(const char* kind, std::string_view whose, std::int64_t bytes) {
  const std::uint64_t number = made();
  Kept kept{kind, bytes, digest_of(kind, whose, bytes), {}};
  const std::string_view shown = first_bytes(whose, kNameBytes);
  std::copy_n(shown.data(), shown.size(), kept.whose.data());
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_[number % kKept] = kept;
  made_.store(number + 1, std::memory_order_relaxed);
  return number;
}

void Calls::enter(std::uint64_t number) {
  number_.store(number, std::memory_order_relaxed);
  stay_.store(stay_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Calls::leave() {
  stay_.store(stay_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

Calls::Place Calls::place() const {
  Place place;
  place.stay = stay_.load(std::memory_order_acquire);
  place.number = number_.load(std::memory_order_relaxed);
  return place;
}

std::vector<Call> Calls::last() const {
  std::vector<Call> calls;
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t made = this->made();
  for (std::uint64_t number = made - std::min<std::uint64_t>(made, kKept); number < made; ++number) {
    const Kept& kept = kept_[number % kKept];
    const auto end = std::find(kept.whose.begin(), kept.whose.end(), '\0');
    calls.push_back({number, kept.kind, base::valid_utf8({kept.whose.begin(), end}), kept.bytes, kept.digest});
  }
  return calls;
}

}  // namespace fsdp::watch
