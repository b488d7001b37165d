#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// Characters of a UTF-8 text (combining ones and wide ones count as one each).
std::size_t width_of(std::string_view text);
/// The text as a terminal may show it: without escape sequences, with spaces for other control characters and for those
/// that turn the direction of writing, and with "?" for bytes that are no UTF-8.
std::string harmless(std::string_view text);
/// At most `width` characters, "..." at the end if it was cut. Control characters become spaces.
std::string cut(std::string_view text, std::size_t width);
/// The text in lines of at most `width` characters, broken at spaces where there are some.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// "1.5 GiB", "812 MiB", "0 B".
std::string bytes_text(std::int64_t bytes);
/// Two units at most: "3m12s", "2d4h", "850ms".
std::string duration_text(std::int64_t milliseconds);
/// RFC 3339 in UTC as milliseconds since 1970; -1 if it is none.
std::int64_t time_ms(const std::string& rfc3339);
/// "2026-11-20 19:48:55" (UTC) of an RFC 3339 time; "-" if empty.
std::string time_text(const std::string& rfc3339);
/// The same and " UTC", as times stand in sentences and lists.
std::string utc_text(const std::string& rfc3339);
/// From one RFC 3339 time to another, or to now if `to` is empty: "3m12s"; "-" if `from` is empty.
std::string span_text(const std::string& from, const std::string& to);
/// Four to five digits that matter: "2.871", "21034", "1.2e+08".
std::string number_text(double value, int digits = 4);

}  // namespace cli
