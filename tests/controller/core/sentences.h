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

/// Stories whose sentences are reviewed in tests/golden/stories.txt, one section a test; the tests themselves ask for
/// states and codes. `./dev bless` renews the sections of all tests.
class ToldStories : public testing::Test {
 protected:
  ToldStories() { Story::sentences = &told_; }
  ~ToldStories() override { Story::sentences = nullptr; }

  void TearDown() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    const auto name = std::string(test->test_suite_name()) + "." + test->name();
    const auto told = once(told_);
    auto sections = read(file());
    if (is_blessed()) {
      sections[name] = told;
      std::ofstream out(file(), std::ios::binary);
      for (const auto& [title, lines] : sections) out << "== " << title << "\n" << lines;
      return;
    }
    EXPECT_EQ(sections[name], told) << file() << ": if the change is meant, run ./dev bless and review its diff";
  }

 public:
  /// The names of the tests that have a section.
  static std::set<std::string> sections() {
    std::set<std::string> names;
    for (const auto& [title, lines] : read(file())) names.insert(title);
    return names;
  }

 private:
  static std::filesystem::path file() { return std::filesystem::path(source_folder()) / "tests/golden/stories.txt"; }

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

  std::string told_;
};

}  // namespace test
