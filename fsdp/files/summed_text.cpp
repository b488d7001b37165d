#include "fsdp/files/summed_text.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdio>

#include "base/crc32c.h"
#include "fsdp/files/checkpoint_folder.h"

namespace fsdp {
namespace {

constexpr std::string_view kBefore = R"({"crc32c": ")", kAfter = R"(",)";
constexpr std::size_t kDigits = 8;
constexpr std::size_t kHead = kBefore.size() + kDigits + kAfter.size();

std::string digits_of(std::string_view summed) {
  std::array<char, kDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", base::crc32c(summed));
  return digits.data();
}

}  // namespace

std::string summed_text(const Json& value) {
  TORCH_CHECK(value.size() > 0 && !value.contains(kOwnSum),
              "a text with a checksum of its own wants an object without ", kOwnSum);
  const std::string rest = value.dump(1).substr(1) + "\n";
  return std::string(kBefore) + digits_of(rest) + std::string(kAfter) + rest;
}

bool has_own_sum(std::string_view text, const std::string& name) {
  if (text.size() < kHead || !text.starts_with(kBefore) || text.substr(kHead - kAfter.size(), kAfter.size()) != kAfter)
    return false;
  if (text.substr(kBefore.size(), kDigits) != digits_of(text.substr(kHead)))
    fail(name + " is corrupt: its checksum is not that of its text");
  return true;
}

}  // namespace fsdp
