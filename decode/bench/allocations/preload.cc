// Counts every allocation through glibc, including operator new, in all threads together.
//
//   g++ -O2 -shared -fPIC preload.cc -o preload.so;  LD_PRELOAD=./preload.so python ...
//
// The wrappers call the allocator by the names that glibc exports for this purpose, so no symbol lookup is needed while
// the process starts. `rescore_allocations` reads and resets the count.
#include <errno.h>
#include <stddef.h>

#include <atomic>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {
std::atomic<long> count{0};
}

extern "C" {

// Allocations since the last call of this function.
long rescore_allocations() { return count.exchange(0); }

void* malloc(size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}

void* calloc(size_t items, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(items, bytes);
}

void* realloc(void* old, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
}
