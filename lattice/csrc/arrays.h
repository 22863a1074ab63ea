// Arrays that bindings take from Python and return: fixed dtypes, contiguous, on the CPU.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace rescore {

namespace nb = nanobind;

template <typename T, int Dims>
using In = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T>;

template <typename T>
struct Owned {
  T* data;
  Out<T> array;
};

template <typename T>
Owned<T> make(std::initializer_list<size_t> shape) {
  size_t size = 1;
  for (const size_t extent : shape) size *= extent;
  T* data = new T[std::max<size_t>(size, 1)];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {data, Out<T>(data, shape, owner)};
}

inline void expect_size(const char* name, size_t got, size_t expected) {
  if (got != expected)
    throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(expected) + " entries, got " +
                                std::to_string(got));
}

inline void expect_tokens(const char* name, In<int32_t, 1> tokens, int32_t least = 0) {
  for (size_t i = 0; i < tokens.shape(0); ++i)
    if (tokens.data()[i] < least)
      throw std::invalid_argument(std::string(name) + "[" + std::to_string(i) + "]: expected a token id, got " +
                                  std::to_string(tokens.data()[i]));
}

inline void expect_range(const char* name, int64_t got, int64_t low, int64_t high) {
  if (got < low || got > high)
    throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(low) + " to " +
                                std::to_string(high) + ", got " + std::to_string(got));
}

// An array that owns the vector.
template <typename T>
Out<T> keep(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T>(kept->data(), {kept->size()}, owner);
}

}  // namespace rescore
