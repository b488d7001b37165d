// Goal: package lists in every form that Debian keeps them give descriptions with their sections.
#include "data/prepare/text/packages.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <map>

#include "data/prepare/text/text_source.h"
#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string package(const std::string& name, const std::string& section, const std::string& description) {
  return "Package: " + name + "\nStatus: install ok installed\nSection: " + section + "\nDescription: " + description +
         "\n\n";
}

std::string gzipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// All records, as description -> name of its label.
std::map<std::string, std::string> records(const TextSource& source) {
  std::map<std::string, std::string> out;
  for (std::int64_t part = 0; part < source.parts; ++part) {
    source.read(part, [&](const TextRecord& record) {
      out[std::string(record.text)] = source.labels.at(static_cast<std::size_t>(record.label));
    });
  }
  return out;
}

std::string refusal(const PackagesOptions& options) {
  try {
    open_packages(options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "opened";
}

class Packages : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    test::write_file(folder_ / name, text);
    return folder_ / name;
  }
  test::TemporaryFolder folder_;
};

TEST_F(Packages, TheLongDescriptionIsTheTextAndTheSectionTheLabel) {
  const auto file = write("status", package("adduser", "admin", "adds users\n to the system.\n .\n Quickly.") +
                                        package("zlib", "contrib/libs", "packs bytes") +
                                        package("none", "", "nothing") + package("mute", "libs", ""));
  const auto source = open_packages({.files = {file}});
  EXPECT_EQ(source.kind, RecordKind::kLabelled);
  EXPECT_THAT(source.labels, ElementsAre("admin", "libs"));
  EXPECT_EQ(records(source), (std::map<std::string, std::string>{{"adds users\nto the system.\n\nQuickly.", "admin"},
                                                                 {"packs bytes", "libs"}}));
}

TEST_F(Packages, EqualDescriptionsAreKeptOnceAndSmallSectionsDropped) {
  const auto file =
      write("status", package("a", "net", "one") + package("b", "net", "one") + package("c", "net", "two") +
                          package("d", "web", "three") + package("e", "web", "four") + package("f", "misc", "five"));
  EXPECT_THAT(open_packages({.files = {file}, .sections = 2}).labels, ElementsAre("net", "web"));
  EXPECT_EQ(records(open_packages({.files = {file}, .sections = 2})).size(), 4U);
  EXPECT_EQ(records(open_packages({.files = {file}, .sections = 0})).size(), 5U);
  EXPECT_THAT(open_packages({.files = {file}, .sections = 0}).description, HasSubstr("packages=5 "));
}

TEST_F(Packages, PackedListsAreTheSamePackages) {
  const auto text = package("a", "net", "one") + package("b", "web", "two");
  std::string lz4("\x04\x22\x4d\x18\x40\x40\xc0", 7);
  const auto size = static_cast<std::uint32_t>(text.size());
  for (const int shift : {0, 8, 16, 24}) lz4 += static_cast<char>((size | 0x8000'0000U) >> shift);
  lz4 += text + std::string(4, '\0');
  const auto want = records(open_packages({.files = {write("plain", text)}}));
  EXPECT_EQ(want.size(), 2U);
  EXPECT_EQ(records(open_packages({.files = {write("a.gz", gzipped(text))}})), want);
  EXPECT_EQ(records(open_packages({.files = {write("a.lz4", lz4)}})), want);
  const auto cut = write("cut.lz4", lz4.substr(0, 40));
  EXPECT_THAT(refusal({.files = {cut}}),
              StartsWith(cut.native() + ": the LZ4 frame is truncated; fetch the list again"));
}

TEST_F(Packages, AnotherListGivesAnotherDescriptionButNotAnotherPlace) {
  const auto one = package("a", "net", "one") + package("b", "web", "two");
  const auto before = open_packages({.files = {write("x", one)}}).description;
  EXPECT_EQ(open_packages({.files = {write("y", one)}}).description, before);
  EXPECT_NE(open_packages({.files = {write("x", one + package("c", "net", "three"))}}).description, before);
}

TEST_F(Packages, WhatIsNoListIsNamed) {
  const auto file = write("notes.txt", "dear diary\n");
  EXPECT_THAT(refusal({.files = {file}}), StartsWith(file.native() + ": holds no packages; want Debian control"));
  EXPECT_THAT(refusal({.files = {folder_ / "none"}}), HasSubstr("none: cannot be opened: No such file"));
  EXPECT_THAT(refusal({.files = {write("bare", "Package: a\n\n")}}), HasSubstr("both a section and a description"));
  EXPECT_THAT(refusal({.sections = -1}), HasSubstr("sections = -1: want 0 to 65536"));
}

TEST_F(Packages, TheListsOfAMachineAreFound) {
  write("var/lib/dpkg/status", "");
  for (const std::string name : {"b_Packages", "a_Packages.lz4", "c_Packages.gz", "a_InRelease", "d_Packages.diff"}) {
    write("var/lib/apt/lists/" + name, "");
  }
  const auto lists = folder_ / "var/lib/apt/lists";
  EXPECT_THAT(package_files(folder_.path()), ElementsAre(folder_ / "var/lib/dpkg/status", lists / "a_Packages.lz4",
                                                         lists / "b_Packages", lists / "c_Packages.gz"));
  EXPECT_THAT(package_files(folder_ / "none"), ElementsAre());
}

TEST_F(Packages, AMachineWithFewPackagesGivesTheBuiltInOnes) {
  std::string status;
  for (int i = 0; i < 199; ++i) status += package("p" + std::to_string(i), "net", "text " + std::to_string(i));
  write("var/lib/dpkg/status", status);
  const auto built_in = open_packages({.root = folder_.path()});
  EXPECT_EQ(built_in.name, "the built-in packages, because this machine has 199 packages in its lists");
  EXPECT_EQ(records(built_in).size(), 60U);
  write("var/lib/dpkg/status", status + package("last", "net", "one more"));
  const auto own = open_packages({.root = folder_.path()});
  EXPECT_EQ(own.name, "the package lists of this machine");
  EXPECT_EQ(records(own).size(), 200U);
}

TEST_F(Packages, TheBuiltInPackagesHaveTenOfEachSection) {
  const auto all =
      records(open_packages({.files = {write("built-in", std::string(fixture_texts("packages.txt").front()))}}));
  EXPECT_EQ(all.size(), 60U);
  std::map<std::string, int> counts;
  for (const auto& [text, section] : all) ++counts[section];
  EXPECT_EQ(counts, (std::map<std::string, int>{
                        {"admin", 10}, {"games", 10}, {"graphics", 10}, {"net", 10}, {"science", 10}, {"sound", 10}}));
}

}  // namespace
}  // namespace data::prepare
