#include "tests/slurm/submitit/python_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace slurm {
namespace {

/// Python's repr() of a float: the shortest digits that read back as the same number, with an exponent below 1e-4 and
/// from 1e16 on.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer.data(), error == std::errc() ? end : buffer.data());
  if (!exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

struct Str {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return float_text(value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const SubmititList&) const { return {}; }
  std::string operator()(const SubmititDict&) const { return {}; }
};

struct Truth {
  bool operator()(std::monostate) const { return false; }
  bool operator()(bool value) const { return value; }
  bool operator()(std::int64_t value) const { return value != 0; }
  bool operator()(double value) const { return value != 0; }
  bool operator()(const std::string& value) const { return !value.empty(); }
  bool operator()(const SubmititList& value) const { return !value.empty(); }
  bool operator()(const SubmititDict& value) const { return !value.empty(); }
};

using Base = std::variant<std::monostate, bool, std::int64_t, double, std::string, SubmititList, SubmititDict>;

}  // namespace

std::string python_str(const SubmititValue& value) {
  return std::visit(Str{}, static_cast<const Base&>(value));
}
bool python_truth(const SubmititValue& value) {
  return std::visit(Truth{}, static_cast<const Base&>(value));
}

std::optional<double> python_number(const SubmititValue& value) {
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? 1 : 0;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

}  // namespace slurm
