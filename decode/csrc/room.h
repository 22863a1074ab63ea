// A vector whose new elements are uninitialised, for data that are overwritten at once.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace rescore {

template <typename T>
struct LeaveAsIs : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = LeaveAsIs<U>;
  };
  template <typename U>
  void construct(U*) noexcept {}
  template <typename U, typename... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U{std::forward<Args>(args)...};
  }
};

template <typename T>
using Room = std::vector<T, LeaveAsIs<T>>;

}  // namespace rescore
