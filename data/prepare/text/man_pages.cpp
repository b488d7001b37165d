#include "data/prepare/text/man_pages.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/checksum.h"
#include "data/prepare/text/files.h"
#include "data/prepare/text/inflate.h"
#include "data/prepare/text/roff.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostManPageBytes = 4 << 20;
constexpr std::size_t kMostManPages = 1'000'000;
constexpr std::int64_t kManPagesAPart = 512;
constexpr std::int64_t kEnoughManBytes = 512 << 10;  // packed; about 1.5 MB of text

std::string man_page_text(const ManPage& page) {
  return roff_to_text(man_page_source(page.path));
}

/// Leaves out the pages after `most_bytes` of text. Returns how much of the last page is kept.
std::size_t keep_bytes_of(std::vector<ManPage>& pages, std::int64_t most_bytes) {
  auto left = static_cast<std::size_t>(most_bytes);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto bytes = man_page_text(pages[i]).size();
    if (bytes < left) {
      left -= bytes;
      continue;
    }
    pages.resize(i + 1);
    return left;
  }
  return kMostManPageBytes;
}

}  // namespace

std::vector<ManPage> list_man_pages(const fs::path& folder) {
  std::vector<ManPage> pages;
  for (char section = '1'; section <= '8'; ++section) {
    std::error_code error;
    fs::directory_iterator in(folder / (std::string("man") + section), error);
    for (const fs::directory_iterator end; !error && in != end && pages.size() < kMostManPages; in.increment(error)) {
      ManPage page{base::checksum_of(in->path().filename().native()), in->path()};
      if (::lstat(page.path.c_str(), &page.status) == 0 && S_ISREG(page.status.st_mode)) pages.push_back(page);
    }
  }
  std::sort(pages.begin(), pages.end(),
            [](const ManPage& a, const ManPage& b) { return std::tie(a.order, a.path) < std::tie(b.order, b.path); });
  return pages;
}

std::string man_page_source(const fs::path& path) {
  try {
    const auto bytes = InputFile(path).read_all(kMostManPageBytes);
    return path.extension() == ".gz" ? gunzip(bytes, kMostManPageBytes) : bytes;
  } catch (const std::runtime_error&) {
    return {};  // one damaged page of thousands
  }
}

std::string fingerprint_of(const std::vector<ManPage>& pages, const fs::path& folder) {
  base::Checksum sum;
  for (const auto& page : pages) {
    sum.add(page.path.lexically_relative(folder).native() + ":" + std::to_string(page.status.st_size) + ":" +
            std::to_string(page.status.st_mtim.tv_sec) + "\n");
  }
  return sum.hex();
}

TextSource open_man_text(const ManTextOptions& options) {
  check_range("max bytes", options.most_bytes, 0, std::int64_t{1} << 50);
  auto pages = list_man_pages(options.folder);
  if (pages.empty()) {
    throw std::runtime_error(options.folder.native() +
                             ": there are no manual pages; install some (apt-get install man-db manpages), or name a "
                             "folder with man1 to man8 in it");
  }
  const auto of_last = options.most_bytes > 0 ? keep_bytes_of(pages, options.most_bytes) : kMostManPageBytes;
  const auto count = std::ssize(pages);
  std::string description = "man " + options.folder.native() + " max_bytes=" + std::to_string(options.most_bytes) +
                            " pages=" + std::to_string(count) + " " + fingerprint_of(pages, options.folder);
  return {RecordKind::kText,
          std::move(description),
          options.folder == ManTextOptions().folder ? "the manual pages of this machine"
                                                    : "the manual pages below " + options.folder.native(),
          {},
          parts_of(count, kManPagesAPart),
          [count, of_last, kept = std::make_shared<const std::vector<ManPage>>(std::move(pages))](
              std::int64_t part, const RecordSink& sink) {
            const auto [first, last] = items_of_part(part, count, kManPagesAPart);
            for (auto i = first; i < last; ++i) {
              const auto text = man_page_text((*kept)[static_cast<std::size_t>(i)]);
              const auto used = i + 1 == count ? cut_text(text, of_last) : std::string_view(text);
              if (!used.empty()) sink({used});
            }
          }};
}

bool has_man_text(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& page : list_man_pages(folder)) bytes += page.status.st_size;
  return bytes >= kEnoughManBytes;
}

}  // namespace data::prepare
