#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace data::prepare {

/// How far a command is. Threads add; one thread prints.
struct Counts {
  std::int64_t parts = 0;       // in all
  std::int64_t parts_done = 0;  // kept ones included
  std::int64_t parts_kept = 0;  // that an earlier command had finished
  std::int64_t records = 0;
  std::int64_t elements = 0;
  std::int64_t records_done = 0;  // of the parts that are done
  std::int64_t records_kept = 0;  // of those that were kept
};

/// "12 of 40 parts, 1,234,567 records, 89,012,345 tokens, 1 min 10 s left". The time left is that of the records that
/// are not made, at the speed of those that were made; the parts that are done tell how many a part has. It is left out
/// until a part is made.
std::string progress_text(const Counts& now, std::string_view unit, std::chrono::milliseconds elapsed);

/// "1,234,567"
std::string grouped(std::int64_t number);

/// Prints how far a command is to stderr until the object goes: on a terminal one line that is drawn again, elsewhere a
/// line each 10 s. All functions may be called by several threads.
class Progress {
 public:
  /// `unit`: of elements, such as "tokens". `every`: zero takes the times above.
  Progress(std::string command, std::string unit, std::int64_t parts, std::chrono::milliseconds every = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add_records(std::int64_t records, std::int64_t elements);
  /// `records`: of the part, which add_records() has counted.
  void end_part(bool was_kept, std::int64_t records);
  Counts counts() const;

  /// Prints a line of its own.
  void say(const std::string& line);

 private:
  void print();
  void clear_line();

  const std::string command_, unit_;
  const bool is_terminal_;
  const std::chrono::milliseconds every_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  mutable std::mutex counting_;
  Counts counts_;
  std::mutex mutex_;  // of stderr and of what follows
  std::condition_variable ends_;
  bool is_over_ = false;
  bool is_drawn_ = false;  // a line that is to be overwritten
  std::thread printer_;
};

}  // namespace data::prepare
