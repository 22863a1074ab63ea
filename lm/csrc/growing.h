// A growable array of plain values, whose capacity grows by a quarter.
//
// std::vector would copy and take up to twice the memory; realloc moves large arrays by remapping pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace rescore {

template <typename T>
class Growing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Growing() = default;
  ~Growing() { std::free(data_); }
  Growing(Growing&& other) noexcept { *this = std::move(other); }
  Growing& operator=(Growing&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  size_t size() const { return size_; }
  size_t bytes() const { return capacity_ * sizeof(T); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

  // Appends `count` uninitialised elements; returns the index of the first.
  size_t extend(size_t count) {
    const size_t at = size_;
    if (at + count > capacity_) reserve(std::max(at + count, capacity_ + capacity_ / 4 + 16));
    size_ += count;
    return at;
  }
  void push_back(T value) {
    const size_t at = extend(1);
    data_[at] = value;
  }

 private:
  void reserve(size_t capacity) {
    void* moved = std::realloc(static_cast<void*>(data_), capacity * sizeof(T));
    if (!moved) throw std::bad_alloc();
    data_ = static_cast<T*>(moved);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace rescore
