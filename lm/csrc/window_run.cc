#include "window_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace rescore {

RunBytes::File::~File() { close(descriptor); }

RunBytes::RunBytes(const std::string& path, uint64_t begin, uint64_t end)
    : path_(path), next_(begin), stop_(end), buffer_(kReadBytes) {
  if (begin > end)
    throw std::invalid_argument(path + ": expected a slice with begin <= end, got " + std::to_string(begin) + " to " +
                                std::to_string(end));
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), path);
  file_.reset(new File{descriptor});
  at_ = end_ = buffer_.data();
}

size_t RunBytes::refill(size_t wanted) {
  if (!file_ || next_ == stop_) return end_ - at_;
  const size_t kept = end_ - at_;
  std::memmove(buffer_.data(), at_, kept);
  at_ = buffer_.data();
  size_t have = kept;
  while (have < wanted && next_ < stop_) {
    const size_t room = std::min<uint64_t>(buffer_.size() - have, stop_ - next_);
    const ssize_t got = pread(file_->descriptor, buffer_.data() + have, room, next_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), path_);
    if (got == 0)
      throw std::invalid_argument(path_ + ": expected " + std::to_string(stop_ - next_) +
                                  " more bytes; the file is truncated");
    next_ += got;
    have += got;
  }
  end_ = at_ + have;
  return have;
}

}  // namespace rescore
