// Goal: a trace of a step shows every unit's gathers, waits, forwards and backwards, its spans nest, and its sums are
// those of the accounting.
// Method: the small model on two ranks; the trace is parsed as a viewer would.
#include "fsdp/tracing/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fsdp/text/json.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::IsSupersetOf;

struct Shown {
  std::string name, kind;
  std::int64_t row = 0, bytes = -1;
  double begin = 0, end = 0;
};

std::vector<Shown> spans_of(const std::string& text, int rank) {
  std::vector<Shown> spans;
  const fsdp::Json trace = fsdp::Json::parse(text);
  for (const fsdp::Json& event : trace.at("traceEvents").as_array()) {
    EXPECT_EQ(event.at("pid").as_int(), rank);
    if (event.at("ph").as_string() != "X") continue;
    Shown span{event.at("name").as_string(), event.at("cat").as_string(), event.at("tid").as_int()};
    if (const fsdp::Json* args = event.find("args")) span.bytes = args->at("bytes").as_int();
    span.begin = event.at("ts").as_double();
    span.end = span.begin + event.at("dur").as_double();
    EXPECT_LE(span.begin, span.end) << span.name;
    spans.push_back(span);
  }
  return spans;
}

std::vector<std::string> names_of(const std::vector<Shown>& spans) {
  std::vector<std::string> names;
  for (const Shown& span : spans) names.push_back(span.name);
  return names;
}

/// Times are microseconds of Unix time as doubles, which are exact to a quarter of a microsecond.
constexpr double kRounding = 1;

void expect_rows_to_nest(const std::vector<Shown>& spans) {
  for (const Shown& a : spans) {
    for (const Shown& b : spans) {
      if (&a == &b || a.row != b.row || a.begin > b.begin) continue;
      if (a.begin == b.begin && a.end < b.end) continue;  // rounded: a lies in b
      const bool apart = a.end <= b.begin + kRounding, inside = b.end <= a.end + kRounding;
      EXPECT_TRUE(apart || inside) << a.name << " and " << b.name << " in row " << a.row;
    }
  }
}

TEST(Trace, ShowsEachUnitAndAgreesWithTheAccounting) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    const fsdp::Traffic before = mesh.traffic();
    mesh.tracer()->begin();
    trainer.step(1);
    const std::string text = mesh.tracer()->end(mesh.rank());
    const fsdp::Traffic traffic = mesh.traffic() - before;
    const std::vector<Shown> spans = spans_of(text, mesh.rank());
    std::vector<std::string> wanted{"optimizer step"};
    for (const auto& unit : trainer.sharded.units()) {
      for (const char* kind : {"forward ", "backward ", "all-gather ", "reduce-scatter ", "wait for all-gather ",
                               "wait for reduce-scatter "})
        wanted.push_back(kind + unit->name());
    }
    EXPECT_THAT(names_of(spans), IsSupersetOf(wanted));
    expect_rows_to_nest(spans);
    double waited = 0;
    std::int64_t gathered = 0, scattered = 0, collectives = 0;
    for (const Shown& span : spans) {
      if (span.kind == "wait for") waited += span.end - span.begin;
      if (span.kind == "all-gather") gathered += span.bytes;
      if (span.kind == "reduce-scatter") scattered += span.bytes;
      collectives += span.kind == "wait for" ? 1 : 0;
    }
    // Each of two ranks sends one part.
    EXPECT_EQ(gathered, traffic.gathered_bytes);
    EXPECT_EQ(scattered, traffic.scattered_bytes);
    EXPECT_EQ(collectives, traffic.collectives);
    const double microseconds = static_cast<double>(traffic.waited.count()) / 1e3;
    EXPECT_NEAR(waited, microseconds, 1 + microseconds * 1e-3);
  });
}

TEST(Trace, IsEmptyUnlessAskedFor) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    mesh.tracer()->begin();
    EXPECT_TRUE(spans_of(mesh.tracer()->end(mesh.rank()), mesh.rank()).empty());
    trainer.step(1);
    EXPECT_TRUE(spans_of(mesh.tracer()->end(mesh.rank()), mesh.rank()).empty());
  });
}

TEST(Trace, BeginsWithoutWhatWasRecordedBefore) {
  fsdp::Tracer tracer;
  const auto now = fsdp::Tracer::Clock::now();
  tracer.begin();
  tracer.add(fsdp::Tracer::Row::kHost, "forward", "a", -1, now, now);
  tracer.open("backward", "a");
  tracer.begin();
  tracer.close("backward", "a");
  EXPECT_THAT(names_of(spans_of(tracer.end(0), 0)), ::testing::IsEmpty());
}

// A row of collectives holds spans that are apart, so that viewers draw them.
TEST(Trace, GivesCollectivesThatOverlapRowsOfTheirOwn) {
  fsdp::Tracer tracer;
  tracer.begin();
  const auto now = fsdp::Tracer::Clock::now();
  const auto at = [&](int ms) { return now + std::chrono::milliseconds(ms); };
  using Row = fsdp::Tracer::Row;
  tracer.add(Row::kCollective, "all-gather", "a", 8, at(0), at(10));
  tracer.add(Row::kCollective, "all-gather", "b", 8, at(5), at(15));
  tracer.add(Row::kCollective, "all-gather", "c", 8, at(10), at(20));
  tracer.open("backward", "a");
  tracer.close("backward", "a");
  tracer.close("backward", "never opened");
  std::map<std::string, std::int64_t> rows;
  for (const Shown& span : spans_of(tracer.end(3), 3)) rows[span.name] = span.row;
  EXPECT_EQ(rows, (std::map<std::string, std::int64_t>{
                      {"all-gather a", 100}, {"all-gather b", 101}, {"all-gather c", 100}, {"backward a", 10}}));
}

}  // namespace
