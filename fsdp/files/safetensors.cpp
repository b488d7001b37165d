#include "fsdp/files/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"
#include "fsdp/text/json.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {
namespace {

/// Copied and summed at a time: stays in the processor's cache between the two.
constexpr std::size_t kPieceBytes = 64 << 10;

constexpr std::int64_t kLengthBytes = 8;  // of the header's length, a little-endian number

constexpr std::pair<const char*, at::ScalarType> kTypes[] = {
    {"F32", at::kFloat},  {"BF16", at::kBFloat16}, {"F16", at::kHalf}, {"F64", at::kDouble}, {"I64", at::kLong},
    {"I32", at::kInt},    {"I16", at::kShort},     {"I8", at::kChar},  {"U8", at::kByte},    {"U16", at::kUInt16},
    {"U32", at::kUInt32}, {"U64", at::kUInt64},    {"BOOL", at::kBool}};

std::string system_error() {
  return std::strerror(errno);
}

/// The bytes of a tensor of this shape, or -1 when the number does not fit.
std::int64_t checked_bytes(const std::vector<std::int64_t>& shape, std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  for (const std::int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  return bytes;
}

at::ScalarType parse_dtype(const std::string& name) {
  for (const auto& [text, type] : kTypes)
    if (name == text) return type;
  TORCH_CHECK(false, "unknown dtype \"", name, "\"; convert the file to float32, bfloat16 or float16");
}

const char* dtype_name(at::ScalarType type) {
  for (const auto& [text, known] : kTypes)
    if (type == known) return text;
  TORCH_CHECK(false, "safetensors cannot hold dtype ", type);
}

TensorEntry parse_entry(const Json& json, std::int64_t data_bytes) {
  TORCH_CHECK(json.size() == 3, "want exactly dtype, shape and data_offsets");
  TensorEntry entry;
  entry.dtype = parse_dtype(json.at("dtype").as_string());
  for (const Json& dim : json.at("shape").as_array()) entry.shape.push_back(dim.as_int());
  const Json::Array& offsets = json.at("data_offsets").as_array();
  TORCH_CHECK(offsets.size() == 2, "want two data_offsets");
  entry.begin = offsets[0].as_int();
  entry.end = offsets[1].as_int();
  TORCH_CHECK(0 <= entry.begin && entry.begin <= entry.end && entry.end <= data_bytes, "data_offsets ", entry.begin,
              " to ", entry.end, " leave the file's ", data_bytes, " bytes of data");
  const std::int64_t bytes = checked_bytes(entry.shape, static_cast<std::int64_t>(c10::elementSize(entry.dtype)));
  TORCH_CHECK(bytes == entry.end - entry.begin, "shape ", at::IntArrayRef(entry.shape), " of ", entry.dtype,
              " does not fill its ", entry.end - entry.begin, " bytes");
  return entry;
}

/// Throws unless every byte of the data part belongs to exactly one tensor.
void check_cover(const std::map<std::string, TensorEntry, std::less<>>& entries, std::int64_t data_bytes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const auto& [name, entry] : entries) ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  std::int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    TORCH_CHECK(begin == covered, begin < covered ? "tensors overlap at data byte " : "a hole before data byte ",
                begin);
    covered = end;
  }
  TORCH_CHECK(covered == data_bytes, data_bytes - covered, " bytes behind the last tensor");
}

std::string make_header(const std::vector<TensorPlan>& tensors, const std::map<std::string, std::string>& metadata) {
  Json header = Json::Object();
  if (!metadata.empty()) header["__metadata__"] = Json::Object(metadata.begin(), metadata.end());
  std::int64_t end = 0;
  for (const TensorPlan& tensor : tensors) {
    TORCH_CHECK(!header.contains(tensor.name) && tensor.name != "__metadata__", "safetensors: tensor name \"",
                tensor.name, "\" is taken already");
    const std::int64_t begin = end;
    end += checked_bytes(tensor.shape, static_cast<std::int64_t>(c10::elementSize(tensor.dtype)));
    Json& entry = header[tensor.name];
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = Json::Array(tensor.shape.begin(), tensor.shape.end());
    entry["data_offsets"] = Json::Array{begin, end};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  TORCH_CHECK(static_cast<std::int64_t>(text.size()) <= SafetensorsReader::kMaxHeaderBytes, "safetensors header of ",
              text.size(), " bytes: at most ", SafetensorsReader::kMaxHeaderBytes);
  return text;
}

}  // namespace

BlockWriter::BlockWriter(std::filesystem::path path, std::int64_t block_bytes)
    : path_(std::move(path)), block_bytes_(block_bytes) {
  TORCH_CHECK(block_bytes >= 1, "checksums of blocks of ", block_bytes, " bytes: want 1 or more");
  written_.block_bytes = block_bytes;
  fd_ = base::Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  TORCH_CHECK(fd_, "cannot create ", path_.string(), ": ", std::strerror(errno));
}

BlockWriter::~BlockWriter() {
  if (writing_.valid()) writing_.wait();
  if (fd_) ::unlink(path_.c_str());
}

void BlockWriter::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    auto& buffer = buffers_[filling_];
    if (!buffer) {
      buffer.reset(static_cast<char*>(std::aligned_alloc(kAlignment, kBufferBytes)));
      TORCH_CHECK(buffer, "no memory for a buffer of ", kBufferBytes, " bytes to write ", path_.string());
    }
    const std::size_t piece = std::min({bytes, kBufferBytes - filled_, kPieceBytes});
    std::memcpy(buffer.get() + filled_, from, piece);
    sum(buffer.get() + filled_, piece);
    filled_ += piece;
    from += piece;
    bytes -= piece;
    if (filled_ < kBufferBytes) continue;
    await_write();
    if (put_ == 0) go_direct();
    writing_ = std::async(std::launch::async, [this, full = buffer.get()] { put(full, kBufferBytes); });
    filling_ = 1 - filling_;
    filled_ = 0;
  }
}

WrittenFile BlockWriter::keep() {
  await_write();
  const char* rest = buffers_[filling_].get();
  const std::size_t aligned = direct_ ? filled_ / kAlignment * kAlignment : 0;
  put(rest, aligned);
  go_plain();
  put(rest + aligned, filled_ - aligned);
  TORCH_CHECK(::fsync(fd_.get()) == 0, "cannot flush ", path_.string(), " to disk: ", std::strerror(errno));
  TORCH_CHECK(::close(fd_.release()) == 0, "cannot close ", path_.string(), ": ", std::strerror(errno));
  return std::move(written_);
}

/// Adds bytes to the checksums of their blocks.
void BlockWriter::sum(const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const std::int64_t into_block = written_.bytes % block_bytes_;
    if (into_block == 0) written_.blocks.push_back(0);
    const std::size_t piece = std::min(bytes, static_cast<std::size_t>(block_bytes_ - into_block));
    written_.blocks.back() = base::crc32c({data, piece}, written_.blocks.back());
    written_.bytes += static_cast<std::int64_t>(piece);
    data += piece;
    bytes -= piece;
  }
}

void BlockWriter::await_write() {
  if (writing_.valid()) writing_.get();
}

/// Runs on the thread of the write under way, or on the caller's when there is none.
void BlockWriter::put(const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ::ssize_t wrote = ::write(fd_.get(), data, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && direct_) {
      go_plain();
      continue;
    }
    TORCH_CHECK(wrote > 0, "cannot write ", path_.string(), " beyond ", put_, " bytes: ", std::strerror(errno));
    put_ += wrote;
    data += wrote;
    bytes -= static_cast<std::size_t>(wrote);
    // A disk that is almost full takes a part, and a direct write cannot begin in the middle of a sector.
    if (static_cast<std::size_t>(wrote) % kAlignment != 0) go_plain();
  }
}

void BlockWriter::go_direct() {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  direct_ = flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags | O_DIRECT) == 0;
}

void BlockWriter::go_plain() {
  if (!direct_) return;
  direct_ = false;
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  TORCH_CHECK(flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) == 0, "cannot write ", path_.string(),
              " plainly: ", std::strerror(errno));
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  TORCH_CHECK(fd_, "cannot open ", path.string(), ": ", system_error());
  struct stat status {};
  const bool known = ::fstat(fd_.get(), &status) == 0 && S_ISREG(status.st_mode);
  bytes_ = known ? static_cast<std::int64_t>(status.st_size) : -1;
  TORCH_CHECK(bytes_ > kLengthBytes, path.string(), " is no safetensors file: too short or no regular file");
  const std::string problem = failure_of([this] { parse_header(); });
  TORCH_CHECK(problem.empty(), path.string(), " is no valid safetensors file: ", problem);
}

SafetensorsReader::~SafetensorsReader() {
  if (mapped_ != nullptr) ::munmap(const_cast<char*>(mapped_), static_cast<std::size_t>(bytes_));
}

void SafetensorsReader::read_bytes(void* into, std::int64_t bytes, std::int64_t offset) const {
  char* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ::ssize_t got = ::pread(fd_.get(), at, static_cast<std::size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    TORCH_CHECK(got >= 0, "cannot read ", path_.string(), " at byte ", offset, ": ", system_error());
    TORCH_CHECK(got > 0, path_.string(), " has become shorter: it ends at byte ", offset);
    at += got;
    bytes -= got;
    offset += got;
  }
}

const char* SafetensorsReader::mapped() const {
  if (mapped_ == nullptr) {
    void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_PRIVATE, fd_.get(), 0);
    TORCH_CHECK(memory != MAP_FAILED, "cannot map ", path_.string(), ": ", system_error());
    mapped_ = static_cast<const char*>(memory);
  }
  return mapped_;
}

void SafetensorsReader::parse_header() {
  std::array<unsigned char, kLengthBytes> bytes;
  read_bytes(bytes.data(), kLengthBytes, 0);
  std::uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | bytes[i];
  TORCH_CHECK(length <= static_cast<std::uint64_t>(kMaxHeaderBytes), "header of ", length, " bytes: at most ",
              kMaxHeaderBytes);
  TORCH_CHECK(static_cast<std::int64_t>(length) <= bytes_ - kLengthBytes, "header of ", length, " bytes in a file of ",
              bytes_);
  data_offset_ = kLengthBytes + static_cast<std::int64_t>(length);
  const std::int64_t data_bytes = bytes_ - data_offset_;
  std::string text(length, '\0');
  read_bytes(text.data(), static_cast<std::int64_t>(length), kLengthBytes);
  TORCH_CHECK(length > 0 && text.front() == '{', "header does not start with '{'");
  const Json header = Json::parse(text, /*max_depth=*/4);
  for (const auto& [name, member] : header.as_object()) {
    try {
      if (name == "__metadata__") {
        for (const auto& [key, value] : member.as_object()) metadata_[key] = value.as_string();
      } else {
        entries_[name] = parse_entry(member, data_bytes);
      }
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, "\"", name, "\": ", error.what_without_backtrace());
    } catch (const JsonError& error) {
      TORCH_CHECK(false, "\"", name, "\": ", error.what());
    }
  }
  check_cover(entries_, data_bytes);
}

const TensorEntry& SafetensorsReader::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  TORCH_CHECK(found != entries_.end(), path_.string(), ": no tensor \"", std::string(name), "\"");
  return found->second;
}

std::int64_t SafetensorsReader::numel(std::string_view name) const {
  const TensorEntry& found = entry(name);
  return (found.end - found.begin) / static_cast<std::int64_t>(c10::elementSize(found.dtype));
}

at::Tensor SafetensorsReader::tensor(std::string_view name) const {
  const TensorEntry& found = entry(name);
  const char* bytes = mapped() + data_offset_ + found.begin;
  if (reinterpret_cast<std::uintptr_t>(bytes) % c10::elementSize(found.dtype) == 0)
    return at::from_blob(const_cast<char*>(bytes), found.shape, at::TensorOptions().dtype(found.dtype));
  at::Tensor copy = at::empty(found.shape, at::TensorOptions().dtype(found.dtype));
  if (copy.numel() > 0) std::memcpy(copy.mutable_data_ptr(), bytes, static_cast<std::size_t>(found.end - found.begin));
  return copy;
}

void SafetensorsReader::read(std::string_view name, std::int64_t begin, const at::Tensor& values) const {
  const TensorEntry& found = entry(name);
  const auto size = static_cast<std::int64_t>(c10::elementSize(found.dtype));
  const std::int64_t count = values.numel(), all = (found.end - found.begin) / size;
  TORCH_CHECK(begin >= 0 && begin + count <= all, path_.string(), ": elements ", begin, " to ", begin + count, " of ",
              std::string(name), ", which has ", all);
  TORCH_CHECK(values.is_contiguous() && values.is_cpu(), path_.string(),
              ": a tensor is read into a contiguous one on the CPU");
  const std::int64_t offset = data_offset_ + found.begin + begin * size;
  if (values.scalar_type() == found.dtype) return read_bytes(values.mutable_data_ptr(), count * size, offset);
  const at::NoGradGuard no_grad;
  const std::int64_t most = kReadBytes / size;
  const at::Tensor buffer = at::empty({std::min(count, most)}, at::TensorOptions().dtype(found.dtype));
  for (std::int64_t done = 0; done < count; done += most) {
    const at::Tensor part = buffer.narrow(0, 0, std::min(most, count - done));
    read_bytes(part.mutable_data_ptr(), part.numel() * size, offset + done * size);
    values.view({-1}).narrow(0, done, part.numel()).copy_(part);
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorPlan>& tensors,
                                     const std::map<std::string, std::string>& metadata, std::int64_t block_bytes)
    : plan_(tensors) {
  const std::string header = make_header(plan_, metadata);
  std::string length(kLengthBytes, '\0');
  for (int i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  header_bytes_ = static_cast<std::int64_t>(length.size() + header.size());
  header_checksum_ = base::crc32c(header, base::crc32c(length));
  file_ = std::make_unique<BlockWriter>(path, block_bytes);
  file_->write(length.data(), length.size());
  file_->write(header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(const at::Tensor& tensor) {
  TORCH_CHECK(next_ < plan_.size() && tensor.scalar_type() == plan_[next_].dtype &&
                  tensor.sizes() == at::IntArrayRef(plan_[next_].shape),
              "safetensors: a tensor ", tensor.sizes(), " of ", tensor.scalar_type(), " is not the next one planned");
  ++next_;
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  file_->write(host.const_data_ptr(), host.nbytes());
}

WrittenFile SafetensorsWriter::finish() {
  TORCH_CHECK(next_ == plan_.size(), "safetensors: ", plan_.size() - next_, " planned tensors are missing");
  WrittenFile written = file_->keep();
  written.header_bytes = header_bytes_;
  written.header_checksum = header_checksum_;
  return written;
}

WrittenFile write_safetensors(const std::filesystem::path& path,
                              const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                              const std::map<std::string, std::string>& metadata, std::int64_t block_bytes) {
  std::vector<TensorPlan> plan;
  for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, plan, metadata, block_bytes);
  for (const auto& [name, tensor] : tensors) writer.append(tensor);
  return writer.finish();
}

}  // namespace fsdp
