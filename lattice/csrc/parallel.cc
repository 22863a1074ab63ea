#include "parallel.h"

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <thread>
#include <vector>

namespace rescore {

void Loop::work() {
  try {
    for (int64_t i = next_++; i < count_; i = next_++) call_(body_, i);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
    next_ = count_;
  }
}

namespace {

// Threads that wait for a loop to help with. They help one loop at a time; others run on their calling thread alone.
class Pool {
 public:
  void share(Loop& loop, int64_t helpers) {
    const std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
    if (owner) lend(loop, helpers);
    loop.work();
    if (owner) wait();
  }

 private:
  void lend(Loop& loop, int64_t helpers) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      while (static_cast<int64_t>(threads_) < helpers) {
        std::thread([this] { serve(); }).detach();
        ++threads_;
      }
      loop_ = &loop;
      wanted_ = helpers;
    }
    called_.notify_all();
  }

  // Keeps further helpers from starting and waits for those that have.
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    wanted_ = 0;
    done_.wait(lock, [this] { return busy_ == 0; });
    loop_ = nullptr;
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      called_.wait(lock, [this] { return wanted_ > 0; });
      --wanted_;
      ++busy_;
      Loop* loop = loop_;
      lock.unlock();
      loop->work();
      lock.lock();
      if (--busy_ == 0) done_.notify_all();
    }
  }

  std::mutex owner_;  // held by the loop that the threads help
  std::mutex mutex_;  // guards all members below
  std::condition_variable called_, done_;
  Loop* loop_ = nullptr;
  int64_t wanted_ = 0, busy_ = 0;
  size_t threads_ = 0;
};

// The pool of this process. Never destroyed, as its threads never end.
std::atomic<Pool*> current{nullptr};

Pool& pool() {
  // Threads do not survive a fork.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { current = nullptr; });
  (void)registered;
  Pool* known = current;
  if (known) return *known;
  auto made = std::make_unique<Pool>();
  return current.compare_exchange_strong(known, made.get()) ? *made.release() : *known;
}

}  // namespace

void share(Loop& loop, int64_t helpers) { pool().share(loop, helpers); }

}  // namespace rescore
