#include "data/prepare/text/packages.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/checksum.h"

namespace data::prepare {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Takes the next line from the front, without its end.
std::string_view next_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return line;
}

}  // namespace

std::string_view Deb822Paragraph::operator[](std::string_view name) const {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return equal_names(field.name, name); });
  return found == fields.end() ? std::string_view{} : found->value;
}

void for_paragraphs(std::string_view text, const std::function<void(const Deb822Paragraph&)>& take) {
  Deb822Paragraph paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.fields.empty()) take(paragraph);
    paragraph.fields.clear();
  };
  while (!text.empty()) {
    const auto line = next_line(text);
    if (trim(line).empty()) {
      end_paragraph();
    } else if (line[0] == '#') {
      continue;
    } else if (line[0] == ' ' || line[0] == '\t') {
      if (paragraph.fields.empty()) continue;
      // All lines of a field lie one after another in `text`, but for comments between them.
      auto& value = paragraph.fields.back().value;
      value = {value.data(), static_cast<std::size_t>(line.data() + line.size() - value.data())};
    } else if (const auto colon = line.find(':'); colon != std::string_view::npos && colon > 0) {
      auto value = line.substr(colon + 1);
      value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
      paragraph.fields.push_back({line.substr(0, colon), value});
    }
  }
  end_paragraph();
}

std::string folded_text(std::string_view value) {
  std::string out;
  bool first = true;
  while (!value.empty()) {
    auto line = next_line(value);
    if (!first && line.starts_with('#')) continue;
    if (!first) out += '\n';
    if (!first && !line.empty()) line.remove_prefix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (first || trim(line) != ".") out += line;
    first = false;
  }
  return out;
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = std::int64_t{512} << 20;  // of all files, unpacked
constexpr std::size_t kMostPackages = 1'000'000;
constexpr std::size_t kEnoughPackages = 200;
constexpr std::int64_t kPackagesAPart = 4'096;
constexpr std::int64_t kMostSections = 65'536;

struct Package {
  std::uint64_t order;  // a hash of its name
  std::string section, text;
  std::int32_t label = -1;
};

/// The packages that are read from package lists.
class Collected {
 public:
  /// Adds the packages of one file's text. Returns how many it has, kept or not.
  std::size_t add(std::string_view text) {
    std::size_t count = 0;
    for_paragraphs(text, [&](const Deb822Paragraph& paragraph) {
      const auto name = paragraph["Package"];
      count += name.empty() ? 0 : 1;
      auto section = paragraph["Section"];
      section.remove_prefix(section.rfind('/') + 1);  // npos + 1 is 0
      auto description = folded_text(paragraph["Description"]);
      if (name.empty() || section.empty() || description.empty() || packages_.size() >= kMostPackages) return;
      if (!seen_.insert(base::checksum_of(description)).second) return;
      packages_.push_back({base::checksum_of(name), std::string(section), std::move(description)});
    });
    return count;
  }

  /// The packages of the largest sections, in their order. Fills `labels`.
  std::vector<Package> take(std::int64_t sections, std::vector<std::string>& labels) {
    std::map<std::string, std::int64_t> counts;
    for (const auto& package : packages_) ++counts[package.section];
    std::vector<std::pair<std::int64_t, std::string>> largest;
    for (const auto& [section, count] : counts) largest.emplace_back(-count, section);
    std::sort(largest.begin(), largest.end());
    if (sections > 0 && std::ssize(largest) > sections) largest.resize(static_cast<std::size_t>(sections));
    for (const auto& [count, section] : largest) labels.push_back(section);
    std::sort(labels.begin(), labels.end());
    std::vector<Package> kept;
    for (auto& package : packages_) {
      const auto at = std::lower_bound(labels.begin(), labels.end(), package.section);
      if (at == labels.end() || *at != package.section) continue;
      package.label = static_cast<std::int32_t>(at - labels.begin());
      kept.push_back(std::move(package));
    }
    std::sort(kept.begin(), kept.end(),
              [](const Package& a, const Package& b) { return std::tie(a.order, a.text) < std::tie(b.order, b.text); });
    packages_.clear();
    return kept;
  }

  std::size_t size() const { return packages_.size(); }

 private:
  std::vector<Package> packages_;
  std::set<std::uint64_t> seen_;  // hashes of descriptions
};

/// The file's text, unpacked.
std::string unpacked(const fs::path& path, std::int64_t most) {
  auto bytes = InputFile(path).read_all(most);
  try {
    if (is_lz4(bytes)) return unlz4(bytes, static_cast<std::size_t>(most));
    if (bytes.starts_with("\x1f\x8b")) return gunzip(bytes, static_cast<std::size_t>(most));
  } catch (const std::runtime_error& damage) {
    throw std::runtime_error(path.native() + ": " + damage.what() + "; fetch the list again (apt-get update)");
  }
  return bytes;
}

TextSource source_of(Collected& collected, const PackagesOptions& options, const std::string& kind, std::string name) {
  std::vector<std::string> labels;
  const auto packages = std::make_shared<const std::vector<Package>>(collected.take(options.sections, labels));
  base::Checksum sum;
  for (const auto& package : *packages) sum.add(package.section + "\n" + package.text + "\n");
  const auto count = std::ssize(*packages);
  std::string description =
      kind + " sections=" + std::to_string(options.sections) + " packages=" + std::to_string(count) + " " + sum.hex();
  return in_parts({RecordKind::kLabelled, std::move(description), std::move(name), std::move(labels)}, count,
                  kPackagesAPart, [packages](std::int64_t number, const RecordSink& sink) {
                    const auto& package = (*packages)[static_cast<std::size_t>(number)];
                    sink({package.text, {}, package.label});
                  });
}

}  // namespace

std::vector<fs::path> package_files(const fs::path& root) {
  std::vector<fs::path> lists;
  std::error_code error;
  fs::directory_iterator in(root / "var/lib/apt/lists", error);
  for (const fs::directory_iterator end; !error && in != end; in.increment(error)) {
    const auto name = in->path().filename().native();
    const auto stem =
        in->path().extension() == ".lz4" || in->path().extension() == ".gz" ? in->path().stem().native() : name;
    if (stem.ends_with("_Packages")) lists.push_back(in->path());
  }
  std::sort(lists.begin(), lists.end());
  lists.insert(lists.begin(), root / "var/lib/dpkg/status");
  std::erase_if(lists, [](const fs::path& file) { return ::access(file.c_str(), R_OK) != 0; });
  return lists;
}

TextSource open_packages(const PackagesOptions& options) {
  check_range("sections", options.sections, 0, kMostSections);
  Collected collected;
  const auto files = options.files.empty() ? package_files(options.root) : options.files;
  std::int64_t left = kMostBytes;
  for (const auto& file : files) {
    const auto text = unpacked(file, left);
    left -= std::ssize(text);
    if (collected.add(text) == 0 && !options.files.empty()) {
      throw std::runtime_error(file.native() +
                               ": holds no packages; want Debian control paragraphs, as /var/lib/dpkg/status has them");
    }
  }
  if (!options.files.empty()) {
    if (collected.size() == 0) {
      throw std::runtime_error(files.front().native() +
                               ": no package has both a section and a description; name another list");
    }
    return source_of(collected, options, "packages", std::to_string(files.size()) + " package lists");
  }
  if (collected.size() >= kEnoughPackages) {
    return source_of(collected, options, "packages", "the package lists of this machine");
  }
  Collected built_in;
  built_in.add(fixture_texts("packages.txt").front());
  return source_of(
      built_in, options, "built-in packages",
      "the built-in packages, because this machine has " + std::to_string(collected.size()) + " packages in its lists");
}

}  // namespace data::prepare
