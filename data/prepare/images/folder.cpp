#include "data/prepare/images/image_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/checksum.h"
#include "data/prepare/images/decode_image.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 20'000'000;
constexpr std::size_t kMostLevels = 32;

[[noreturn]] void refuse(const fs::path& path, const std::string& finding) {
  throw std::runtime_error(path.native() + ": " + finding);
}

/// The numbers that tell one folder from another, however a folder is reached.
struct FolderId {
  dev_t device;
  ino_t inode;
  bool operator==(const FolderId&) const = default;
};

struct Found {
  fs::path path;
  struct stat status {};  // of what a link leads to
};

struct stat status_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return status;
  if (errno == ENOENT) refuse(path, "is a link that leads nowhere; remove it, or restore what it leads to");
  if (errno == ELOOP) refuse(path, "is a link that leads back to itself; remove it");
  refuse(path, std::string("cannot be read: ") + std::strerror(errno) + "; make it readable, or remove it");
}

using OnDamaged = std::function<void(const std::string& error)>;

/// The entries of a folder but hidden ones, sorted by name. `on_damaged`: as in ImageFolderOptions.
std::vector<Found> entries_of(const fs::path& folder, const OnDamaged& on_damaged) {
  std::error_code error;
  std::vector<Found> found;
  fs::directory_iterator in(folder, error);
  for (const fs::directory_iterator end; !error && in != end; in.increment(error)) {
    if (in->path().filename().native().starts_with('.')) continue;
    found.push_back({in->path()});
  }
  if (error) refuse(folder, "cannot be read: " + error.message() + "; make the folder readable");
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.path.native() < b.path.native(); });
  std::vector<Found> whole;
  for (auto& entry : found) {
    try {
      entry.status = status_of(entry.path);
    } catch (const std::runtime_error& damage) {
      if (!on_damaged) throw;
      on_damaged(damage.what());
      continue;
    }
    whole.push_back(std::move(entry));
  }
  return whole;
}

/// Lists the files below a folder, and knows the folders above the one that it lists.
class Lister {
 public:
  Lister(ImageFolder& out, const fs::path& root, const OnDamaged& on_damaged)
      : out_(out), root_(root), on_damaged_(on_damaged) {
    const auto status = status_of(root);
    above_.push_back({{status.st_dev, status.st_ino}, root});
  }

  void other(const fs::path& file) {
    if (++out_.other_files == 1) out_.other_example = file;
  }

  void file(const Found& entry, std::int32_t label) {
    if (!has_picture_name(entry.path)) return other(entry.path);
    if (!S_ISREG(entry.status.st_mode)) {
      if (!on_damaged_) refuse(entry.path, "is not a regular file; remove it");
      return on_damaged_(entry.path.native() + ": is not a regular file");
    }
    if (out_.entries.size() >= kMostFiles) {
      refuse(root_, "holds more than " + std::to_string(kMostFiles) + " images; prepare it in several folders");
    }
    sum_.add(entry.path.lexically_relative(root_).native());
    sum_.add(":" + std::to_string(entry.status.st_size) + ":" + std::to_string(entry.status.st_mtim.tv_sec) + "." +
             std::to_string(entry.status.st_mtim.tv_nsec) + "\n");
    out_.entries.push_back({entry.path, label});
  }

  void folder(const Found& folder, std::int32_t label) {
    const FolderId id{folder.status.st_dev, folder.status.st_ino};
    for (const auto& [above, path] : above_) {
      if (above == id) refuse(folder.path, "is a link that leads back to " + path.native() + "; remove it");
    }
    if (above_.size() > kMostLevels) {
      refuse(folder.path, "lies more than " + std::to_string(kMostLevels) + " folders deep; move it up");
    }
    above_.emplace_back(id, folder.path);
    for (const auto& entry : entries_of(folder.path, on_damaged_)) {
      if (S_ISDIR(entry.status.st_mode)) {
        this->folder(entry, label);
      } else {
        file(entry, label);
      }
    }
    above_.pop_back();
  }

  std::string fingerprint() const { return sum_.hex(); }

 private:
  ImageFolder& out_;
  const fs::path& root_;
  const OnDamaged& on_damaged_;
  std::vector<std::pair<FolderId, fs::path>> above_;
  base::Checksum sum_;
};

}  // namespace

ImageFolder list_image_folder(const fs::path& folder, const OnDamaged& on_damaged) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) refuse(folder, "is not a folder; want a folder of images");
  ImageFolder out;
  Lister lister(out, folder, on_damaged);
  const auto top = entries_of(folder, on_damaged);
  const bool has_classes =
      std::any_of(top.begin(), top.end(), [](const Found& entry) { return S_ISDIR(entry.status.st_mode); });
  for (const auto& entry : top) {
    if (!has_classes) {
      lister.file(entry, -1);
    } else if (!S_ISDIR(entry.status.st_mode)) {
      lister.other(entry.path);
    } else {
      const auto before = out.entries.size();
      lister.folder(entry, static_cast<std::int32_t>(out.labels.size()));
      out.labels.push_back(entry.path.filename().native());
      if (out.entries.size() == before) {
        refuse(entry.path,
               "holds no images (.jpg, .jpeg, .png, .ppm, .pgm, .pnm), and a folder in a folder of images is a class; "
               "name a folder of images, or take this one out of it");
      }
    }
  }
  if (out.entries.empty()) refuse(folder, "holds no images (.jpg, .jpeg, .png, .ppm, .pgm, .pnm)");
  out.fingerprint = lister.fingerprint();
  return out;
}

ImageSource open_image_folder(const ImageFolderOptions& options) {
  if (options.shorter_side < 1 || options.shorter_side > kMostSide) {
    throw std::runtime_error("size = " + std::to_string(options.shorter_side) + ": want 1 to " +
                             std::to_string(kMostSide) + " pixels");
  }
  const auto listed = std::make_shared<const ImageFolder>(list_image_folder(options.folder, options.on_damaged));
  const auto images = static_cast<std::int64_t>(listed->entries.size());
  std::string description = "images " + fs::absolute(options.folder).lexically_normal().native() +
                            " size=" + std::to_string(options.shorter_side) + " files=" + std::to_string(images) + " " +
                            listed->fingerprint;
  return in_parts(std::move(description), listed->labels, images,
                  [listed, options](std::int64_t number, const ImageSink& sink) {
                    const auto& entry = listed->entries[static_cast<std::size_t>(number)];
                    Picture picture;
                    try {
                      picture = read_picture(entry.file);
                    } catch (const std::system_error&) {
                      throw;  // the next try may succeed
                    } catch (const std::runtime_error& damage) {
                      if (!options.on_damaged) throw;
                      return options.on_damaged(damage.what());
                    }
                    sink(shrink(std::move(picture), options.shorter_side), entry.label);
                  });
}

}  // namespace data::prepare
