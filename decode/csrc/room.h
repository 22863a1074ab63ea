// A vector whose new elements are uninitialised, for data that are overwritten at once. emplace_back(..) makes an
// element of its members where it stands; push_back({..}) puts it together on the stack, number by number, and copies
// it as a vector, which waits for these stores.
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
