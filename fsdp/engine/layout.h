#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

/// One parameter and its position in its unit.
struct ParameterInfo {
  /// The name in the whole model, as root->named_parameters() gives it.
  std::string name;
  /// Other names of the same tensor (tied parameters).
  std::vector<std::string> aliases;
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  /// Index of the first element in the segment's flat buffer, a multiple of UnitLayout::kAlignment.
  std::int64_t offset = 0;
  /// The parameter's place among all parameters of its unit. It never changes.
  std::size_t index = 0;
};

/// The part of one parameter that one rank owns: elements [begin, begin + length) of the flattened parameter. The part
/// starts at element `shard_offset` of the rank's shard. length may be 0.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t shard_offset = 0;
};

/// How a segment's parameters lie in one flat buffer, and how ranks divide the buffer. Pure arithmetic.
///
/// Parameters follow each other in row-major order. Each parameter starts at a multiple of kAlignment elements. Padding
/// at the end makes the buffer world_size equal chunks, so a plain all-gather of chunks gives the parameters without
/// copies. A chunk border may fall anywhere, even inside a row. In a small unit the last ranks hold only padding.
class UnitLayout {
 public:
  /// 32 elements are 64 bytes in bf16, so every view starts on a cache line in every dtype.
  static constexpr std::int64_t kAlignment = 32;

  UnitLayout() = default;
  /// Fills in the offsets of `parameters`. `rank` is this rank's place among those that share the buffer.
  UnitLayout(std::vector<ParameterInfo> parameters, int world_size, int rank);

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  int world_size() const { return world_size_; }
  /// Elements of one rank's shard, padding included.
  std::int64_t chunk() const { return chunk_; }
  /// Elements of the gathered buffer: world_size * chunk.
  std::int64_t padded_numel() const { return chunk_ * world_size_; }
  /// Elements without padding.
  std::int64_t numel() const { return numel_; }

  /// The part that this rank owns.
  Slice own(const ParameterInfo& parameter) const { return slice(parameter, rank_); }
  Slice slice(const ParameterInfo& parameter, int rank) const;

 private:
  std::vector<ParameterInfo> parameters_;
  int world_size_ = 1;
  int rank_ = 0;
  std::int64_t chunk_ = 0;
  std::int64_t numel_ = 0;
};

}  // namespace fsdp
