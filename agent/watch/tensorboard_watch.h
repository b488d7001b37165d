#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/watch/report.h"

namespace agent::watch {

/// The scalars of one event of TensorBoard.
struct ScalarEvent {
  std::int64_t step = 0;
  std::int64_t at_ms = 0;                              // since 1970; 0: not told
  std::vector<std::pair<std::string, double>> values;  // by tag
  bool operator==(const ScalarEvent&) const = default;
};

/// The contents of the bytes of an event file.
struct EventBytes {
  std::vector<ScalarEvent> events;  // those with scalars
  std::size_t taken = 0;            // bytes of whole records. What follows may come yet
  std::uint64_t skip = 0;           // further bytes to leave out: a record that is too long for a scalar
  std::string problem;              // why nothing can be read from here on; empty: nothing is wrong
  std::size_t bad_records = 0;      // whose checksum is wrong
};

/// Reads records from the beginning of `bytes`: as TFRecord has it, length (8 bytes, little endian), its masked
/// CRC-32C, the data, their masked CRC-32C. A record that is not whole yet is left for the next time.
EventBytes read_events(std::string_view bytes);

/// Reads tensorflow.Event in the wire format of protobuf: simple values and tensors of one number. nullopt: no such
/// message, or no scalar in it.
std::optional<ScalarEvent> parse_event(std::string_view message);

/// The longest record that is read. Images and graphs are longer, and are left out.
inline constexpr std::uint64_t kLongestRecord = 256 << 10;

/// Reports the scalars of TensorBoard's event files in a folder and the folders below it.
///
/// Events that are there at the first look are another attempt's, and only events that are added later are read. A tag
/// is the name of a series; characters that a series' name does not have become "_". Files in a folder named after data
/// that is not trained on ("validation", "eval", "test") get that name before their tags, and so do values whose tag
/// comes from another folder already.
class TensorboardWatch : public ReportSource {
 public:
  explicit TensorboardWatch(std::string folder) : folder_(std::move(folder)) {}

  Found look(const Moment& moment) override;

  static constexpr std::size_t kMostAtOnce = 1 << 20;
  static constexpr std::size_t kMostEntries = 5'000;  // of folders, in one look
  static constexpr std::size_t kMostFiles = 256;      // that are followed, the newest
  static constexpr int kDeepest = 6;
  static constexpr int kPauses = 20;  // as in CheckpointWatch
  /// Looks at bytes that make no sense. Its disk may show bytes later than its size.
  static constexpr int kMostBadLooks = 10;

 private:
  struct File {
    std::uint64_t offset = 0;
    int bad_looks = 0;
    bool is_followed = true;
  };
  void search();
  /// True: there is more in the file than the budget allows.
  bool read(const std::string& path, File& file, std::size_t& budget, std::vector<Report>& out);
  Report report_of(const ScalarEvent& event, const std::string& folder);
  std::string series_of(const std::string& tag, const std::string& folder);

  const std::string folder_;
  bool is_first_look_ = true;
  std::map<std::string, File> files_;
  std::string next_file_;                           // where a look that could not read all goes on
  std::map<std::string, std::string> tag_folders_;  // the folder that a tag was first seen in
  std::chrono::steady_clock::time_point next_search_{};
};

/// The name of a series for this tag; empty: there is none.
std::string series_of_tag(std::string_view tag);

}  // namespace agent::watch
