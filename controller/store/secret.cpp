#include "store/secret.h"

#include <sys/random.h>

#include <array>

#include "store/store.h"

namespace store {

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    throw Error(Error::Kind::kOther, "the kernel gives no random bytes for the secret: check that getrandom(2) works");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace store
