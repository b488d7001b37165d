#include "ranks/unsent_reports.h"

#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <cerrno>
#include <system_error>

namespace ranks {

bool read_unsent(const std::filesystem::path& file,
                 const std::function<bool(const muster::v1::HeartbeatRequest&)>& take) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return true;
  const auto fail = [&](int error) { throw std::system_error(error, std::generic_category(), file.string()); };
  if (fd < 0) fail(errno);
  google::protobuf::io::FileInputStream in(fd);
  in.SetCloseOnDelete(true);
  muster::v1::HeartbeatRequest request;
  while (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&request, &in, nullptr)) {
    if (!take(request)) return false;
    request.Clear();
  }
  if (in.GetErrno() != 0) fail(in.GetErrno());
  return true;
}

}  // namespace ranks
