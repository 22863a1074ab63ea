// A shared mutex that a thread may lock shared several times; std::shared_mutex does not allow that.
#pragma once

#include <atomic>
#include <thread>

namespace rescore {

class ManyReaders {
 public:
  void lock_shared() {
    for (int readers = readers_.load();; std::this_thread::yield(), readers = readers_.load())
      if (readers >= 0 && readers_.compare_exchange_weak(readers, readers + 1)) return;
  }
  void unlock_shared() { --readers_; }

  void lock() {
    for (int none = 0; !readers_.compare_exchange_weak(none, kWriting); none = 0) std::this_thread::yield();
  }
  void unlock() { readers_ = 0; }

 private:
  static constexpr int kWriting = -1;
  std::atomic<int> readers_{0};
};

}  // namespace rescore
