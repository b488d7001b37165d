#include "fsdp/tracing/trace.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "base/words.h"
#include "fsdp/text/json.h"

namespace fsdp {

struct TracedSpan {
  Tracer::Row row = Tracer::Row::kHost;
  std::string kind, what;
  std::int64_t bytes = -1;
  Tracer::Clock::time_point begin, end;
  std::shared_ptr<c10::Event> device_begin, device_end;
};

namespace {

constexpr int kHostRow = 1, kDeviceRow = 2, kBackwardRows = 10, kCollectiveRows = 100;

double microseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

Json event_of(const TracedSpan& span, int rank, int row, double begin_us, double us) {
  const std::string name = span.kind + (span.what.empty() ? "" : " ") + base::valid_utf8(span.what);
  Json event = Json::Object{{"ph", "X"},  {"cat", span.kind}, {"name", name}, {"pid", rank},
                            {"tid", row}, {"ts", begin_us},   {"dur", us}};
  if (span.bytes >= 0) event["args"]["bytes"] = span.bytes;
  return event;
}

Json name_of_row(const char* what, int rank, int row, const std::string& name) {
  return Json::Object{{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", row}, {"args", Json::Object{{"name", name}}}};
}

/// Gives each span the first of the rows in which it overlaps no other. `spans` are sorted by their begin.
class Rows {
 public:
  int place(const TracedSpan& span) {
    auto free = std::ranges::find_if(ends_, [&](auto end) { return end <= span.begin; });
    if (free == ends_.end()) free = ends_.insert(ends_.end(), span.begin);
    *free = span.end;
    return static_cast<int>(free - ends_.begin());
  }
  int count() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<Tracer::Clock::time_point> ends_;
};

}  // namespace

struct Tracer::Recording {
  std::mutex mutex;
  std::vector<TracedSpan> spans;
  std::map<std::pair<std::string, std::string>, Clock::time_point> opened;
  Clock::time_point begin;
  std::chrono::nanoseconds unix_begin{};
  c10::Device device = c10::kCPU;
  std::shared_ptr<c10::Event> device_begin;

  /// Where the device's current stream is; null on the CPU.
  std::shared_ptr<c10::Event> mark() const {
    if (device.is_cpu()) return nullptr;
    auto event = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    return event;
  }
  void keep(TracedSpan span) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (spans.size() < kMostSpans) spans.push_back(std::move(span));
  }
  double host_us(Clock::time_point time) const { return microseconds(unix_begin + (time - begin)); }
};

Tracer::Tracer() : recording_(std::make_unique<Recording>()) {}
Tracer::~Tracer() = default;

void Tracer::begin(c10::Device device) {
  Recording& now = *recording_;
  const std::lock_guard<std::mutex> lock(now.mutex);
  now.spans.clear();
  now.opened.clear();
  now.device = device;
  now.device_begin = now.mark();
  if (now.device_begin) now.device_begin->synchronize();
  now.begin = Clock::now();
  now.unix_begin = std::chrono::system_clock::now().time_since_epoch();
  on_.store(true, std::memory_order_relaxed);
}

void Tracer::add(Row row, const char* kind, std::string_view what, std::int64_t bytes, Clock::time_point begin,
                 Clock::time_point end) {
  if (is_on()) recording_->keep({row, kind, std::string(what), bytes, begin, end, nullptr, nullptr});
}

void Tracer::open(const char* kind, const std::string& what) {
  if (!is_on()) return;
  const std::lock_guard<std::mutex> lock(recording_->mutex);
  recording_->opened[{kind, what}] = Clock::now();
}

void Tracer::close(const char* kind, const std::string& what) {
  if (!is_on()) return;
  Clock::time_point begin;
  {
    const std::lock_guard<std::mutex> lock(recording_->mutex);
    const auto opened = recording_->opened.extract({kind, what});
    if (opened.empty()) return;
    begin = opened.mapped();
  }
  add(Row::kBackward, kind, what, -1, begin, Clock::now());
}

void Tracer::Scope::start(Tracer* tracer, const char* kind, std::string_view what, std::int64_t bytes) {
  tracer_ = tracer;
  kind_ = kind;
  what_ = what;
  bytes_ = bytes;
  device_ = tracer->recording_->mark();
  begin_ = Clock::now();
}

void Tracer::Scope::stop() {
  const auto end = Clock::now();
  if (!tracer_->is_on()) return;
  Recording& now = *tracer_->recording_;
  now.keep({Row::kHost, kind_, std::string(what_), bytes_, begin_, end, std::static_pointer_cast<c10::Event>(device_),
            device_ ? now.mark() : nullptr});
}

std::string Tracer::end(int rank) {
  on_.store(false, std::memory_order_relaxed);
  Recording& now = *recording_;
  if (const auto last = now.mark()) last->synchronize();
  const std::lock_guard<std::mutex> lock(now.mutex);
  std::ranges::stable_sort(now.spans, {}, &TracedSpan::begin);
  Json::Array events{name_of_row("process_name", rank, 0, "rank " + std::to_string(rank)),
                     name_of_row("thread_name", rank, kHostRow, "training thread")};
  if (now.device_begin) events.push_back(name_of_row("thread_name", rank, kDeviceRow, "device"));
  Rows backwards, collectives;
  for (const TracedSpan& span : now.spans) {
    const int row = span.row == Row::kHost       ? kHostRow
                    : span.row == Row::kBackward ? kBackwardRows + backwards.place(span)
                                                 : kCollectiveRows + collectives.place(span);
    events.push_back(event_of(span, rank, row, now.host_us(span.begin), microseconds(span.end - span.begin)));
    if (!span.device_begin || !span.device_end || !now.device_begin) continue;
    const double begin_ms = now.device_begin->elapsedTime(*span.device_begin);
    events.push_back(event_of(span, rank, kDeviceRow, now.host_us(now.begin) + begin_ms * 1e3,
                              span.device_begin->elapsedTime(*span.device_end) * 1e3));
  }
  for (int i = 0; i < backwards.count(); ++i)
    events.push_back(name_of_row("thread_name", rank, kBackwardRows + i, "backward"));
  for (int i = 0; i < collectives.count(); ++i)
    events.push_back(name_of_row("thread_name", rank, kCollectiveRows + i, "collectives under way"));
  now.spans.clear();
  now.opened.clear();
  Json trace;
  trace["traceEvents"] = std::move(events);
  trace["displayTimeUnit"] = "ms";
  return trace.dump();
}

}  // namespace fsdp
