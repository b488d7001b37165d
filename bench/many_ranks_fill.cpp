// Writes metrics of a job of many ranks into a database of metrics, or measures what rows of each kind take on disk.
//
// Usage: many_ranks_fill fill DATABASE JOB RANKS STEPS RANK_STEPS
//        many_ranks_fill sizes FOLDER RANKS STEPS
// fill: DATABASE is muster.db, which no musterd may have open. Of the last RANK_STEPS steps each rank's rows are
// written through the store; of the steps before, whose rows of ranks would have aged out, one row a step. Prints
// {"rows": written, "seconds": taken}. sizes: fills a new store in FOLDER, lets it age, and prints {"rank_row_bytes",
// "step_row_bytes", "bucket_bytes_a_step", "rows_aged_a_second"}. Each rank reports its loss, which is averaged, and
// its measures; rank 0 reports three series more.
#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "controller/store/sqlite_metrics.h"
#include "controller/store/sqlite_pair.h"
#include "controller/store/sqlite_store.h"

namespace {

namespace fs = std::filesystem;

constexpr core::Time kBegin{std::chrono::hours(490'000)};
constexpr std::int64_t kHour = 490'000;

store::MetricRow row_of(core::JobId job, core::Step step, core::RankNumber rank) {
  const double noise = std::sin(static_cast<double>((step * 31 + rank) % 104'729));
  store::MetricRow row{.job = job,
                       .attempt = 1,
                       .rank = rank,
                       .step = step,
                       .step_ms = 100 + 5 * noise,
                       .memory_bytes = 1 << 30,
                       .memory_peak_bytes = (1LL << 30) + step,
                       .bytes_communicated = 1 << 20,
                       .at_ms = 1'767'225'600'000 + step * 1000,
                       .values = {{"loss", 2 + 0.2 * noise}}};
  if (rank != 0) return row;
  for (const char* name : {"tokens_per_s", "learning_rate", "grad_norm"}) row.values.push_back({name, 1 + noise});
  return row;
}

std::vector<store::DeclaredSeries> declared_of(core::JobId job) {
  std::vector<store::DeclaredSeries> declared{{job, spec::undeclared_series("loss")}};
  for (const char* name : {"tokens_per_s", "learning_rate", "grad_norm"}) {
    declared.push_back({job, spec::undeclared_series(name)});
    declared.back().series.over_ranks = spec::OverRanks::kRank0;
  }
  return declared;
}

/// Writes the rows of all ranks, one step in a transaction. Returns how many.
std::int64_t write_ranks(store::Store& store, core::JobId job, std::uint32_t ranks, core::Step from, core::Step end) {
  std::int64_t written = 0;
  for (auto step = from; step < end; ++step) {
    std::vector<store::MetricRow> rows;
    for (core::RankNumber rank = 0; rank < ranks; ++rank) rows.push_back(row_of(job, step, rank));
    store.add_metrics(rows);
    written += static_cast<std::int64_t>(rows.size());
  }
  return written;
}

/// Writes one row a step, as it is left when the rows of ranks have aged out, with its buckets.
void write_steps(const fs::path& database, core::JobId job, std::uint32_t ranks, core::Step end) {
  constexpr core::Step kStepsAtOnce = 2000;
  store::Connection connection(store::metrics_file_of(database).string());
  store::MetricBuckets buckets;
  for (core::Step from = 0; from < end; from += kStepsAtOnce) {
    SQLite::Transaction transaction(connection.database(), SQLite::TransactionBehavior::IMMEDIATE);
    for (auto step = from; step < std::min(end, from + kStepsAtOnce); ++step) {
      store::StepTotal total;
      const auto row = row_of(job, step, 0);
      total.add(row);
      total.ranks = ranks;
      for (core::RankNumber rank = 0; rank < ranks; ++rank)
        total.values[1].add(rank, row.values[0].value + rank * 1e-6);
      for (std::int64_t series = 2; series <= 4; ++series) total.values[series].add(0, row.values[1].value);
      store::add_to_step(connection, {job, 1, step}, total);
      buckets.touch(connection, {job, 1, step}, kHour);
    }
    buckets.settle(connection);
    transaction.commit();
  }
}

int fill(const fs::path& database, core::JobId job, std::uint32_t ranks, core::Step steps, core::Step rank_steps) {
  const auto begun = std::chrono::steady_clock::now();
  store::open_sqlite_store(database)->add_metrics({}, declared_of(job));
  write_steps(database, job, ranks, steps - rank_steps);
  const auto written = write_ranks(*store::open_sqlite_store(database), job, ranks, steps - rank_steps, steps);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::cout << "{\"rows\": " << written << ", \"seconds\": " << took.count() << "}\n";
  return 0;
}

/// Bytes of the pages that are in use.
double used_bytes(const fs::path& database) {
  SQLite::Database metrics(store::metrics_file_of(database).string(), SQLite::OPEN_READONLY);
  const auto number = [&](const char* pragma) { return static_cast<double>(metrics.execAndGet(pragma).getInt64()); };
  return (number("PRAGMA page_count") - number("PRAGMA freelist_count")) * number("PRAGMA page_size");
}

int sizes(const fs::path& folder, std::uint32_t ranks, core::Step steps) {
  using namespace std::chrono_literals;
  core::Time now = kBegin;
  const fs::path database = folder / "muster.db";
  const auto store = store::open_sqlite_store(database, {.now = [&] { return now; }});
  store->add_metrics({}, declared_of(1));
  const auto empty = used_bytes(database);
  const auto rows = static_cast<double>(write_ranks(*store, 1, ranks, 0, steps));
  const auto age = [&](core::Millis by) {
    now += by;
    while (store->age_metrics({}, 5000)) continue;
    return used_bytes(database);
  };
  const auto full = used_bytes(database);
  const auto begun = std::chrono::steady_clock::now();
  const auto summed = age(26h);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  const auto bucketed = age(31 * 24h);
  const auto left = static_cast<double>(steps) - static_cast<double>(store->metrics(1, 0, 0, -1, 1000).size());
  std::cout << "{\"rank_row_bytes\": " << (full - summed) / rows
            << ", \"step_row_bytes\": " << (summed - bucketed) / left
            << ", \"bucket_bytes_a_step\": " << (bucketed - empty) / static_cast<double>(steps)
            << ", \"rows_aged_a_second\": " << rows / took.count() << "}\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto number = [&](std::size_t at) { return std::stoll(words[at]); };
  if (words.size() == 6 && words[0] == "fill") {
    return fill(words[1], number(2), static_cast<std::uint32_t>(number(3)), number(4), number(5));
  }
  if (words.size() == 4 && words[0] == "sizes")
    return sizes(words[1], static_cast<std::uint32_t>(number(2)), number(3));
  std::cerr << "usage: many_ranks_fill fill DATABASE JOB RANKS STEPS RANK_STEPS\n"
               "       many_ranks_fill sizes FOLDER RANKS STEPS\n";
  return 2;
}
