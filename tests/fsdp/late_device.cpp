#include "tests/fsdp/late_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fsdp/late_queues.h"

namespace late {
namespace {

Queues& queues() {
  static auto* const all = new Queues;  // autograd's threads outlive main()
  return *all;
}

/// See [Note: late memory].
struct Memory : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, kDevice};
    auto* block = new Block(queues().allocate(bytes));
    return {block->start, block, &release, kDevice};
  }
  static void release(void* held) {
    const std::unique_ptr<Block> block(static_cast<Block*>(held));
    queues().free(*block);
  }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_CHECK(false, "late device: no copy_data"); }
};

Memory& memory() {
  static auto* const one = new Memory;
  return *one;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(queues().new_stream()); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(queues().new_stream()); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(std::exchange(current_stream, next.id()));
  }
  bool queryStream(const c10::Stream& of) const override { return queues().is_idle(of.id()); }
  void synchronizeStream(const c10::Stream& of) const override { queues().wait_for_stream(of.id()); }
  void synchronizeDevice(c10::DeviceIndex) const override { queues().wait_for_all(); }

  void record(void** event, const c10::Stream& of, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new std::shared_ptr<Mark>;
    mark_of(*event) = std::make_shared<Mark>();
    queues().record(of.id(), mark_of(*event));
  }
  void block(void* event, const c10::Stream& of) const override { queues().block(of.id(), mark_of(event)); }
  bool queryEvent(void* event) const override { return queues().is_reached(*mark_of(event)); }
  void synchronizeEvent(void* event) const override { queues().wait_for(*mark_of(event)); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<std::shared_ptr<Mark>*>(event);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return static_cast<double>(mark_of(second)->when - mark_of(first)->when) / 1000;
  }

 private:
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
  static std::shared_ptr<Mark>& mark_of(void* event) { return *static_cast<std::shared_ptr<Mark>*>(event); }
};

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
};

bool is_late(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device() == kDevice;
}

/// A tensor of the CPU on the same memory, for a kernel that runs later. It does not keep the memory.
at::Tensor as_kernel_sees(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) return tensor;
  if (!is_late(tensor)) {
    if (tensor.dim() > 0) return tensor;
    at::Tensor scalar = tensor.clone();  // a GPU gets a number when its kernel is started
    scalar.unsafeGetTensorImpl()->set_wrapped_number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    return scalar;
  }
  const at::Tensor plain = tensor.detach();
  auto* start = static_cast<char*>(const_cast<void*>(plain.storage().data()));
  TORCH_CHECK(start != nullptr || plain.numel() == 0, "late device: ", what, " of a tensor whose memory is freed, ",
              plain.sizes());
  if (start != nullptr) queues().use(start);
  if (start != nullptr) start += plain.storage_offset() * plain.element_size();
  return at::for_blob(start, plain.sizes()).strides(plain.strides()).options(plain.scalar_type()).make_tensor();
}

/// A tensor of the CPU with the same sizes, from which LibTorch's kernel tells the sizes of its results.
at::Tensor zeros_like_it(const at::Tensor& tensor, const char*) {
  if (!tensor.defined() || (!is_late(tensor) && tensor.dim() == 0)) return as_kernel_sees(tensor, "");
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type()).zero_();
}

using Change = at::Tensor (*)(const at::Tensor&, const char*);

c10::IValue changed(const c10::IValue& value, Change change, const char* what) {
  if (value.isTensor()) return change(value.toTensor(), what);
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(change(tensor, what));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      out.push_back(tensor ? std::optional(change(*tensor, what)) : std::nullopt);
    return out;
  }
  return value;
}

torch::jit::Stack changed(const torch::jit::Stack& arguments, Change change, const char* what) {
  torch::jit::Stack out;
  for (const c10::IValue& argument : arguments) out.push_back(changed(argument, change, what));
  return out;
}

/// The argument that a return of the schema is; nothing: it is a new tensor.
std::optional<std::size_t> returned_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (result.alias_info() == nullptr) return std::nullopt;
  TORCH_CHECK(result.alias_info()->isWrite(), "late device: no view by ", schema.name());
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) return i;
  }
  TORCH_CHECK(false, "late device: no argument that ", schema.name(), " returns");
}

/// True if an argument is written and has no elements, so that the operation may give it some.
bool is_empty_result(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments, std::size_t i) {
  const auto* alias = schema.arguments()[i].alias_info();
  return alias != nullptr && alias->isWrite() && arguments[i].isTensor() && is_late(arguments[i].toTensor()) &&
         arguments[i].toTensor().numel() == 0;
}

bool gives_empty(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (is_empty_result(schema, arguments, i)) return true;
  return false;
}

void enlarge(const at::Tensor& tensor, const at::Tensor& like) {
  const std::size_t bytes = like.storage().nbytes();
  tensor.storage().set_data_ptr_noswap(memory().allocate(bytes));
  tensor.storage().set_nbytes(bytes);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
}

/// Any operation of LibTorch: its kernel for the CPU, later.
void start_operation(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const char* what = schema.name().c_str();
  const torch::jit::Stack arguments = torch::jit::pop(*stack, schema.arguments().size());
  const auto& results = schema.returns();
  const bool tells_host = std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.type()->kind() != c10::TypeKind::TensorType && result.type()->kind() != c10::TypeKind::ListType;
  });
  if (tells_host) {
    queues().wait_for_stream(current_stream);
    torch::jit::Stack now = changed(arguments, as_kernel_sees, what);
    op.callBoxed(&now);
    for (const c10::IValue& result : now) stack->push_back(result);
    return;
  }
  torch::jit::Stack returned;
  bool makes = false;
  for (const c10::Argument& result : results) {
    const auto argument = returned_argument(schema, result);
    makes = makes || !argument;
    returned.push_back(argument ? arguments[*argument] : c10::IValue());
  }
  std::vector<at::Tensor> made;  // as the kernel sees them
  if (makes || gives_empty(schema, arguments)) {
    const torch::jit::Stack tried = changed(arguments, zeros_like_it, what);
    torch::jit::Stack sizes = tried;
    {
      const at::NoGradGuard no_grad;
      const at::AutoDispatchBelowADInplaceOrView below;
      op.callBoxed(&sizes);
    }
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (is_empty_result(schema, arguments, i)) enlarge(arguments[i].toTensor(), tried[i].toTensor());
    for (std::size_t i = 0; i < results.size(); ++i) {
      made.emplace_back();
      if (!returned[i].isNone()) continue;
      const at::Tensor like = sizes[i].toTensor();
      at::Tensor out;
      if (like.defined())
        out = at::empty_strided(like.sizes(), like.strides(), at::TensorOptions(like.scalar_type()).device(kDevice));
      made.back() = as_kernel_sees(out, what);
      returned[i] = out;
    }
  }
  torch::jit::Stack later = changed(arguments, as_kernel_sees, what);
  queues().start(what, [op, later = std::move(later), made = std::move(made)] {
    torch::jit::Stack values = later;
    op.callBoxed(&values);
    for (std::size_t i = 0; i < made.size(); ++i)
      if (made[i].defined()) made[i].copy_(values[i].toTensor());
  });
  for (c10::IValue& value : returned) stack->push_back(std::move(value));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  queues().start("a copy", [from = as_kernel_sees(from, "a copy"),
                            to = is_late(to) ? as_kernel_sees(to, "a copy") : to] { to.copy_(from); });
  if (!non_blocking && !(is_late(from) && is_late(to))) queues().wait_for_stream(current_stream);
  return to;
}

at::Scalar number_of(const at::Tensor& tensor) {
  queues().wait_for_stream(current_stream);
  return as_kernel_sees(tensor, "item()").item();
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor make(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory(), kKeys,
                                   dtype.value_or(c10::get_default_dtype_as_scalartype()), format);
}

at::Tensor make_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory(),
                                           kKeys, dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           offset ? std::optional<std::int64_t>(offset->expect_int()) : std::nullopt);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &make);
  m.impl("empty_strided", &make_strided);
  m.impl("view", &view);
  m.impl("as_strided", &as_strided);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("_copy_from", &copy_from);
  m.impl("_local_scalar_dense", &number_of);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&start_operation>());
}

class Graph final : public fsdp::DeviceGraph {
 public:
  ~Graph() override {
    if (begun_) queues().end_recording();
  }
  void begin() override {
    queues().begin_recording();
    begun_ = true;
  }
  void end() override {
    begun_ = false;
    graph_ = queues().end_recording();
    graph_->check_joined(current_stream);
  }
  void replay() override { queues().replay(*graph_); }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(graph_->memory()->bytes); }

 private:
  bool begun_ = false;
  std::unique_ptr<Recording> graph_;
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

const bool registered = [] {
  c10::register_privateuse1_backend("late");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kDevice.type(), &memory());
  return true;
}();

}  // namespace

void begin(std::uint64_t seed) {
  queues().begin(seed);
}

void finish() {
  queues().wait_for_all();
}

Counts counts() {
  return queues().counts();
}

std::unique_ptr<fsdp::DeviceGraph> make_graph() {
  return std::make_unique<Graph>();
}

}  // namespace late
