#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace fsdp {

/// Tensors that wait for backward in the host's memory. What recompute() keeps of a part goes there when the part has
/// been called, and comes back before backward calls the part again. As activation offloading in torchtune and TRL.
///
/// [Note: activations on the host] Copies have a stream of their own. A copy to the host begins where its values are
/// made, and runs beside the next part's computation. The tensor is held until the next put() or get(), where the
/// computation waits for the copy's end. So its memory is never given away while the copy reads it, and record_stream
/// is not needed. A copy to the device goes into memory that the computation allocates, after what was queued there
/// before. get() also starts the copies of what was put before, which backward needs next.
///
/// On a device without streams everything happens at once. In a dry run (fsdp/engine/dry_run.h) the host's memory is
/// counted and not taken.
///
/// Used by one rank's forward and backward, which never run at the same time.
class HostActivations {
  struct Bytes;

 public:
  /// Tensors of fewer bytes stay on the device: their copies would cost more than their memory is worth.
  static constexpr std::int64_t kLeastBytes = 64 << 10;

  /// For tensors of `device`.
  explicit HostActivations(c10::Device device, std::int64_t least_bytes = kLeastBytes);
  /// Lets the computation wait for the copies under way.
  ~HostActivations();
  HostActivations(const HostActivations&) = delete;
  HostActivations& operator=(const HostActivations&) = delete;

  /// Tensors that were put together. Frees the host's memory with its end.
  class Waiting {
   public:
    Waiting() = default;
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    friend class HostActivations;
    struct Place {
      at::Tensor stays;            // on its device
      at::Tensor on_host, coming;  // or moved, and on its way back
    };
    std::vector<Place> places_;
    std::optional<c10::Event> come_;  // when all that is coming has arrived
    bool is_coming_ = false;
    std::int64_t host_bytes_ = 0;
    std::shared_ptr<Bytes> bytes_;
  };

  /// Starts to copy tensors to the host. Undefined ones, tensors of other devices, small ones and those whose elements
  /// are not side by side in memory stay where they are.
  std::shared_ptr<Waiting> put(std::vector<at::Tensor> tensors);
  /// The tensors on their device, equal bit by bit. May be called again.
  std::vector<at::Tensor> get(const std::shared_ptr<Waiting>& waiting);

  /// Bytes on the host: now, and the most so far.
  std::int64_t bytes() const;
  std::int64_t peak_bytes() const;

 private:
  bool moves(const at::Tensor& tensor) const;
  at::Tensor to_host(const at::Tensor& tensor) const;
  void bring(Waiting& waiting) const;
  void release();

  const c10::Device device_;
  const std::int64_t least_bytes_;
  std::shared_ptr<Bytes> bytes_;
  std::optional<c10::Stream> copies_;            // only on devices with streams
  std::vector<at::Tensor> leaving_;              // the copies to the host may still read them
  std::optional<c10::Event> left_;               // when they no longer do
  std::vector<std::weak_ptr<Waiting>> waiting_;  // in the order of put()
};

}  // namespace fsdp
