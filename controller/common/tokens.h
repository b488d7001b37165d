#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace common {

/// 32 random bytes, base64url. Throws std::runtime_error when the system has none.
std::string new_token();

/// People's token: the contents of `path`, a new_token() that is made at the first start with mode 0600.
/// Throws std::runtime_error with the remedy when the file is readable by others, empty, or cannot be made.
std::string load_or_create_token(const std::filesystem::path& path);

/// Takes as long for a wrong token as for a right one.
bool same_secret(std::string_view a, std::string_view b);

/// The token of one attempt's ranks: HMAC-SHA256 of the store's secret over "job.attempt", in hex.
std::string rank_token(std::string_view secret, std::int64_t job, std::uint32_t attempt);

/// Eight hex digits that tell this store's jobs from those of others; says nothing of the secret.
std::string store_name(std::string_view secret);

}  // namespace common
