#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

/// One parameter's place in its unit.
struct ParameterInfo {
  /// Its name in the whole model, as root->named_parameters() gives it.
  std::string name;
  /// Further names of the same tensor (tied parameters).
  std::vector<std::string> aliases;
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  /// First element in the unit's flat buffer, a multiple of UnitLayout::kAlignment.
  std::int64_t offset = 0;
  /// requires_grad at the time of fully_shard(); frozen parameters are gathered but get no gradient and no update.
  bool trainable = true;
};

/// The part of one parameter that one rank owns: elements [begin, begin + length) of the flattened parameter, at
/// `shard_offset` in the rank's shard. length may be 0.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t shard_offset = 0;
};

/// How a unit's parameters lie in one flat buffer and how the buffer is split. Pure arithmetic.
///
/// Parameters follow each other row-major, each start aligned to kAlignment elements. The buffer is padded at the end
/// to world_size equal chunks, so that a plain all-gather of chunks *is* the parameters, without copies. A chunk border
/// may fall anywhere, inside a row too; small units leave the last ranks with padding only.
class UnitLayout {
 public:
  /// 32 elements are 64 bytes in bf16: every view starts on a cache line in every dtype.
  static constexpr std::int64_t kAlignment = 32;

  UnitLayout() = default;
  /// Fills in the offsets of `parameters`.
  UnitLayout(std::vector<ParameterInfo> parameters, int world_size);

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  int world_size() const { return world_size_; }
  /// Elements of one rank's shard, padding included.
  std::int64_t chunk() const { return chunk_; }
  /// Elements of the gathered buffer: world_size * chunk.
  std::int64_t padded_numel() const { return chunk_ * world_size_; }
  /// Elements without padding.
  std::int64_t numel() const { return numel_; }
  bool trainable() const;

  Slice slice(const ParameterInfo& parameter, int rank) const;

 private:
  std::vector<ParameterInfo> parameters_;
  int world_size_ = 1;
  std::int64_t chunk_ = 0;
  std::int64_t numel_ = 0;
};

}  // namespace fsdp
