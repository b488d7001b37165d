#pragma once

#include <string>
#include <string_view>

namespace spec {

/// What stands for a secret wherever a job is shown.
inline constexpr std::string_view kMask = "********";

/// Whether a variable's value is hidden wherever a job is shown. It is where a part of the name, between underscores
/// and in any case, ends with TOKEN, SECRET, SECRETS, PASSWORD, PASSWD, PASSPHRASE, CREDENTIAL, CREDENTIALS, KEY or
/// KEYS, or is PASS or PWD (but for PWD itself, the working folder); where the last part is AUTH; and where the value
/// is an address with a password in it ("postgres://me:word@host"), or one of http or https with any user
/// ("https://token@host"). An empty value is no secret.
bool is_secret(std::string_view name, std::string_view value);

/// `value`, or kMask for it.
std::string shown_value(std::string_view name, const std::string& value);

}  // namespace spec
