#include "agent/rank/own_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace agent::rank {
namespace {

/// The file of this process in memory, for as long as it lives.
class OwnFile {
 public:
  OwnFile() {
    const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      auto* const at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) bytes_ = static_cast<const char*>(at);
    }
    if (fd >= 0) ::close(fd);
  }
  ~OwnFile() {
    if (bytes_ != nullptr) ::munmap(const_cast<char*>(bytes_), size_);
  }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  /// `count` entries from this offset on; null: the file is shorter.
  template <typename Entry>
  const Entry* at(std::uint64_t offset, std::uint64_t count = 1) const {
    if (bytes_ == nullptr || offset > size_ || count > (size_ - offset) / sizeof(Entry)) return nullptr;
    return reinterpret_cast<const Entry*>(bytes_ + offset);
  }
  std::string_view text_at(std::uint64_t offset) const {
    if (bytes_ == nullptr || offset >= size_) return {};
    return {bytes_ + offset, ::strnlen(bytes_ + offset, size_ - offset)};
  }

 private:
  const char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

/// Where the program lies in memory, beside the addresses of its file.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

}  // namespace

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? std::string(text.get()) : std::string(name);
}

OwnSymbols::OwnSymbols() {
  const OwnFile file;
  const auto* header = file.at<ElfW(Ehdr)>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return;
  const auto base = load_address();
  for (std::size_t i = 0; i < header->e_shnum; ++i) {
    const auto& table = sections[i];
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
    const auto count = table.sh_size / sizeof(ElfW(Sym));
    const auto* symbols = file.at<ElfW(Sym)>(table.sh_offset, count);
    for (std::size_t k = 0; symbols != nullptr && k < count; ++k) {
      const auto& symbol = symbols[k];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0 || symbol.st_size == 0) continue;
      functions_.push_back({base + symbol.st_value, base + symbol.st_value + symbol.st_size,
                            std::string(file.text_at(sections[table.sh_link].sh_offset + symbol.st_name))});
    }
  }
  std::ranges::sort(functions_, {}, &Function::begin);
}

std::string OwnSymbols::name_of(std::uintptr_t address) const {
  auto place = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
  if (place == functions_.begin()) return "";
  --place;
  return address < place->end ? demangled(place->name.c_str()) : std::string();
}

}  // namespace agent::rank
