#include "controller/common/tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "base/durable_file.h"

namespace common {
namespace {

std::string base64url(const unsigned char* bytes, std::size_t size) {
  std::string out(4 * ((size + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes, static_cast<int>(size));
  out.resize(static_cast<std::size_t>(length));
  for (char& c : out) c = c == '+' ? '-' : c == '/' ? '_' : c;
  out.erase(out.find_last_not_of('=') + 1);
  return out;
}

}  // namespace

std::string new_token() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw std::runtime_error("the system has no random numbers to make a token from");
  }
  return base64url(bytes.data(), bytes.size());
}

std::string load_or_create_token(const std::filesystem::path& path) {
  try {
    const std::string token = new_token();
    base::create_file_durably(path, token + "\n", 0600);
    return token;
  } catch (const std::system_error& e) {
    if (e.code().value() != EEXIST) throw std::runtime_error(e.what());
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw std::runtime_error("cannot read the token file " + path.string() + ": " + std::strerror(errno));
  }
  if ((info.st_mode & 077) != 0) {
    throw std::runtime_error("the token file " + path.string() +
                             " can be read by others; run `chmod 600` on it, or delete it to have a new one made");
  }
  std::string token = base::read_small_file(path, 4096);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) token.pop_back();
  if (token.size() < 16) {
    throw std::runtime_error("the token file " + path.string() + " holds no token; delete it to have a new one made");
  }
  return token;
}

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string rank_token(std::string_view secret, std::int64_t job, std::uint32_t attempt) {
  const std::string text = std::to_string(job) + "." + std::to_string(attempt);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size) == nullptr) {
    throw std::runtime_error("cannot compute a rank token");
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += kHex[digest[i] >> 4];
    out += kHex[digest[i] & 15];
  }
  return out;
}

std::string store_name(std::string_view secret) {
  return rank_token(secret, 0, 0).substr(0, 8);
}

}  // namespace common
