#include "slurm/host_list.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/numbers.h"
#include "base/words.h"

namespace slurm {
namespace {

constexpr std::size_t kMaxDigits = 18;  // fits std::uint64_t

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

std::string padded(std::uint64_t number, std::size_t digits) {
  auto text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

/// Reads a host list from left to right.
class Expander {
 public:
  explicit Expander(std::string_view text) : text_(text) {}

  Hosts run() {
    while (at_ < text_.size()) {
      if (!read_name()) return HostListProblem{at_ + 1, what_};
    }
    return std::move(hosts_);
  }

 private:
  bool fail(std::size_t at, std::string what) {
    at_ = at;
    what_ = std::move(what);
    return false;
  }

  bool too_many(std::size_t at) {
    return fail(at, "more than " + std::to_string(kMaxHosts) + " hosts; name fewer at a time");
  }

  /// Reads one name up to its comma, with all its brackets.
  bool read_name() {
    const auto start = at_;
    std::vector<std::string> names = {""};
    for (; at_ < text_.size() && text_[at_] != ','; ++at_) {
      const char c = text_[at_];
      if (c == '[') {
        if (!read_bracket(names)) return false;
      } else if (c == ']') {
        return fail(at_, "']' without its '['");
      } else if (static_cast<unsigned char>(c) <= ' ') {
        return fail(at_, "white space inside a host list");
      } else {
        for (auto& name : names) name += c;
      }
    }
    if (names.front().empty()) return fail(start, "a host without a name");
    if (names.size() > kMaxHosts - hosts_.size()) return too_many(start);
    hosts_.insert(hosts_.end(), names.begin(), names.end());
    if (at_ < text_.size() && ++at_ == text_.size()) return fail(at_ - 1, "nothing follows the last ','");
    return true;
  }

  /// Combines each name with each entry of the bracket at at_. Ends on the bracket's ']'.
  bool read_bracket(std::vector<std::string>& names) {
    const auto open = at_;
    const auto close = text_.find(']', open);
    if (close == std::string_view::npos) return fail(open, "'[' without its ']'");
    std::vector<std::string> endings;
    auto part_at = open + 1;
    for (const auto& part : base::split(text_.substr(open + 1, close - open - 1), ',')) {
      if (!add_endings(part, part_at, endings)) return false;
      part_at += part.size() + 1;
    }
    if (endings.empty()) return fail(open, "nothing between '[' and ']'");
    if (endings.size() > kMaxHosts / names.size()) return too_many(open);
    std::vector<std::string> all;
    all.reserve(names.size() * endings.size());
    for (const auto& name : names) {
      for (const auto& ending : endings) all.push_back(name + ending);
    }
    names = std::move(all);
    at_ = close;
    return true;
  }

  bool add_endings(const std::string& part, std::size_t at, std::vector<std::string>& endings) {
    const auto dash = part.find('-');
    const auto first = part.substr(0, dash);
    const auto last = dash == std::string::npos ? first : part.substr(dash + 1);
    if (!all_digits(first) || !all_digits(last)) return fail(at, "'" + part + "' is neither a number nor a range");
    if (first.size() > kMaxDigits || last.size() > kMaxDigits) return fail(at, "'" + part + "' is too large");
    const auto from = base::whole_number<std::uint64_t>(first).value();
    const auto to = base::whole_number<std::uint64_t>(last).value();
    if (from > to) return fail(at, "'" + part + "' counts down");
    if (to - from >= kMaxHosts - endings.size()) return too_many(at);
    for (auto number = from; number <= to; ++number) endings.push_back(padded(number, first.size()));
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> hosts_;
  std::string what_;
};

/// A name that ends in digits: "node07" is "node", 7, 2 digits.
struct Numbered {
  std::string_view prefix;
  std::uint64_t number = 0;
  std::size_t digits = 0;
};

std::optional<Numbered> numbered(std::string_view name) {
  std::size_t digits = 0;
  while (digits < name.size() && digits < kMaxDigits && all_digits(name.substr(name.size() - digits - 1, 1))) ++digits;
  if (digits == 0) return std::nullopt;
  const auto number = base::whole_number<std::uint64_t>(name.substr(name.size() - digits));
  return Numbered{name.substr(0, name.size() - digits), number.value(), digits};
}

/// True if expanding a range that contains `now` gives `next` right after it.
bool follows(const Numbered& now, const Numbered& next, std::size_t first_digits) {
  return next.prefix == now.prefix && next.number == now.number + 1 &&
         padded(next.number, first_digits).size() == next.digits;
}

}  // namespace

Hosts expand_hosts(std::string_view text) {
  text = base::trimmed(text);
  if (text == "(null)" || text == "None assigned") return std::vector<std::string>{};
  return Expander(text).run();
}

std::string compress_hosts(const std::vector<std::string>& hosts) {
  std::string text;
  for (std::size_t at = 0; at < hosts.size();) {
    if (!text.empty()) text += ",";
    const auto first = numbered(hosts[at]);
    if (!first) {
      text += hosts[at++];
      continue;
    }
    // Ranges with the same prefix share a bracket.
    std::string inside;
    std::size_t count = 0;
    auto next = std::optional<Numbered>(first);
    while (next && next->prefix == first->prefix) {
      auto last = *next;
      std::size_t length = 1;
      while (at + length < hosts.size()) {
        const auto after = numbered(hosts[at + length]);
        if (!after || !follows(last, *after, next->digits)) break;
        last = *after;
        ++length;
      }
      base::append(inside, padded(next->number, next->digits), ",");
      if (length > 1) inside += "-" + padded(last.number, last.digits);
      at += length;
      count += length;
      next = at < hosts.size() ? numbered(hosts[at]) : std::nullopt;
    }
    text += std::string(first->prefix) + (count > 1 ? "[" + inside + "]" : inside);
  }
  return text;
}

}  // namespace slurm
