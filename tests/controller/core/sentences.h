#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/controller/core/golden.h"
#include "tests/controller/core/story.h"

namespace test {

/// Tests whose sentences are reviewed in a file of tests/golden, one section a test; the tests themselves ask for
/// states and codes. `./dev bless` renews the sections of all tests whose suite has a name that ends with Story.
class ToldStories : public testing::Test {
 protected:
  explicit ToldStories(const std::string& file = "stories.txt") : file_(place_of(file)) { Story::sentences = &told_; }
  ~ToldStories() override { Story::sentences = nullptr; }

  void tell(const std::string& sentence) { told_ += sentence + "\n"; }

  void TearDown() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    const auto name = std::string(test->test_suite_name()) + "." + test->name();
    const auto told = once(told_);
    auto sections = read(file_);
    if (is_blessed()) {
      sections[name] = told;
      std::ofstream out(file_, std::ios::binary);
      for (const auto& [title, lines] : sections) out << "== " << title << "\n" << lines;
      return;
    }
    EXPECT_EQ(sections[name], told) << file_ << ": if the change is meant, run ./dev bless and review its diff";
  }

 public:
  /// The names of the tests that have a section.
  static std::set<std::string> sections(const std::string& file) {
    std::set<std::string> names;
    for (const auto& [title, lines] : read(place_of(file))) names.insert(title);
    return names;
  }

 private:
  static std::filesystem::path place_of(const std::string& file) {
    return std::filesystem::path(source_folder()) / "tests/golden" / file;
  }

  /// Each event with its sentences once: what a story says again is known.
  static std::string once(const std::string& text) {
    std::set<std::string> known;
    std::string events, event;
    const auto flush = [&] {
      if (known.insert(event).second) events += event;
      event.clear();
    };
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("  ")) flush();
      event += line + "\n";
    }
    flush();
    return events;
  }

  static std::map<std::string, std::string> read(const std::filesystem::path& file) {
    std::map<std::string, std::string> sections;
    std::ifstream in(file, std::ios::binary);
    std::string title;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("== ")) {
        sections[title = line.substr(3)];
      } else {
        sections[title] += line + "\n";
      }
    }
    return sections;
  }

  const std::filesystem::path file_;
  std::string told_;
};

/// Expects that each section of a golden file belongs to a test of this program.
inline void expect_sections_of_tests(const std::string& file) {
  std::set<std::string> tests;
  const auto& unit = *testing::UnitTest::GetInstance();
  for (int i = 0; i < unit.total_test_suite_count(); ++i) {
    const auto& suite = *unit.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      tests.insert(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
    }
  }
  for (const auto& section : ToldStories::sections(file)) EXPECT_TRUE(tests.contains(section)) << section;
}

}  // namespace test
