// parallel_for: a loop over independent items on a pool of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

namespace rescore {

// A loop that threads share: each takes the next item until none is left.
class Loop {
 public:
  using Body = void (*)(const void* body, int64_t item);
  Loop(int64_t count, const void* body, Body call) : count_(count), body_(body), call_(call) {}

  void work();
  // Throws the first exception of an item, if any; it stopped the loop.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const int64_t count_;
  const void* const body_;
  const Body call_;
  std::atomic<int64_t> next_{0};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

// Runs the loop with up to `helpers` other threads, and returns when all of them are done.
void share(Loop& loop, int64_t helpers);

// Calls body(i) for i in [0, count) on up to `threads` threads, including the caller's. The first exception
// stops the loop and is rethrown.
template <typename Body>
void parallel_for(int64_t count, int threads, const Body& body) {
  const int64_t helpers = std::min<int64_t>(threads, count) - 1;
  if (helpers < 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  Loop loop(count, &body, [](const void* of, int64_t item) { (*static_cast<const Body*>(of))(item); });
  share(loop, helpers);
  loop.rethrow();
}

}  // namespace rescore
