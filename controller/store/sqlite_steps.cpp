#include "controller/store/sqlite_steps.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "controller/store/store.h"

namespace store {
namespace {

template <typename Number, typename Combine>
void combine_known(std::optional<Number>& into, const std::optional<Number>& other, Combine with) {
  if (other) into = into ? with(*into, *other) : *other;
}

void append_number(std::string& bytes, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}

void append_double(std::string& bytes, double value) {
  auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 0; i < 8; ++i, bits >>= 8) bytes += static_cast<char>(bits & 0xFF);
}

/// Reads what the functions above have appended.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}
  bool at_end() const { return left_.empty(); }
  std::uint64_t number() {
    std::uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = next();
      number |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return number;
    }
    throw damaged();
  }
  double value() {
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= std::uint64_t{next()} << (8 * i);
    return std::bit_cast<double>(bits);
  }

 private:
  static Error damaged() { return {Error::Kind::kCorrupt, "the values of a step are cut off"}; }
  unsigned char next() {
    if (left_.empty()) throw damaged();
    const auto byte = static_cast<unsigned char>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }
  std::string_view left_;
};

void write_step(Connection& connection, const StepKey& key, const StepTotal& total) {
  Query row = connection.query("INSERT OR REPLACE INTO step_rows (job_id, attempt, step, " MUSTER_STEP_COLUMNS
                               ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                               key.job, key.attempt, key.step, total.ranks, total.is_told, total.at_ms, total.step_ms,
                               total.memory_bytes, total.memory_peak_bytes, total.bytes_communicated);
  if (total.values.empty()) {
    row.bind(std::optional<double>());
  } else {
    row.bind_bytes(encode_values(total.values));
  }
  row.run();
}

}  // namespace

void StepTotal::add(const MetricRow& row) {
  StepTotal one{.ranks = 1, .is_told = row.rank == 0, .at_ms = row.at_ms};
  // A time that is no number says nothing of the slowest rank.
  if (row.step_ms && !std::isnan(*row.step_ms)) one.step_ms = row.step_ms;
  one.memory_bytes = row.memory_bytes;
  one.memory_peak_bytes = row.memory_peak_bytes;
  one.bytes_communicated = row.bytes_communicated;
  add(one);
}

void StepTotal::add(const StepTotal& others) {
  const auto most = [](auto a, auto b) { return std::max(a, b); };
  if (others.is_told || (ranks == 0 && others.ranks > 0)) at_ms = others.at_ms;
  ranks += others.ranks;
  is_told = is_told || others.is_told;
  combine_known(step_ms, others.step_ms, most);
  combine_known(memory_bytes, others.memory_bytes, most);
  combine_known(memory_peak_bytes, others.memory_peak_bytes, most);
  combine_known(bytes_communicated, others.bytes_communicated, [](auto a, auto b) { return a + b; });
  for (const auto& [series, more] : others.values) values[series].add(more);
}

std::string encode_values(const std::map<std::int64_t, RankValues>& values) {
  std::string bytes;
  for (const auto& [series, of] : values) {
    append_number(bytes, static_cast<std::uint64_t>(series));
    append_number(bytes, std::uint64_t{of.count} * 2 + (of.of_rank_0 ? 1 : 0));
    append_double(bytes, of.sum);
    if (of.count == 1) continue;
    append_double(bytes, of.most);
    if (of.of_rank_0) append_double(bytes, *of.of_rank_0);
  }
  return bytes;
}

std::map<std::int64_t, RankValues> decode_values(std::string_view bytes) {
  std::map<std::int64_t, RankValues> values;
  for (ByteReader reader(bytes); !reader.at_end();) {
    const auto series = static_cast<std::int64_t>(reader.number());
    const auto counted = reader.number();
    RankValues of{static_cast<std::uint32_t>(counted / 2), reader.value()};
    of.most = of.count == 1 ? of.sum : reader.value();
    if (counted % 2 == 1) of.of_rank_0 = of.count == 1 ? of.sum : reader.value();
    values.emplace_hint(values.end(), series, of);
  }
  return values;
}

StepTotal read_step_total(const Query& row, int column) {
  StepTotal total;
  row.get_to(column, total.ranks, total.is_told, total.at_ms, total.step_ms, total.memory_bytes,
             total.memory_peak_bytes, total.bytes_communicated);
  constexpr int kSeriesColumn = 7;
  total.values = decode_values(row.bytes(column + kSeriesColumn));
  return total;
}

void add_to_step(Connection& connection, const StepKey& key, const StepTotal& more) {
  StepTotal total;
  {
    Query row =
        connection.query("SELECT " MUSTER_STEP_COLUMNS " FROM step_rows WHERE job_id = ? AND attempt = ? AND step = ?",
                         key.job, key.attempt, key.step);
    if (row.next()) total = read_step_total(row, 0);
  }
  total.add(more);
  write_step(connection, key, total);
}

}  // namespace store
