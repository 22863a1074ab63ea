// The long lists of arcs of single-token contexts as bits: whether a token is in the list, and where, is one read away
// where a search would take a dozen. Made when a list is first looked at, and kept: at most 8 bytes for each of its arcs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "bits.h"
#include "token_set.h"

namespace rescore {

// A set of tokens below some size: a bit for each, and how many there are before every 64.
class DenseList {
 public:
  // list(i) for i < size: ascending tokens below `vocab_size`.
  template <typename List>
  DenseList(uint32_t vocab_size, uint64_t size, List list) : words_(new Word[vocab_size / 64 + 1]()) {
    for (uint64_t i = 0; i < size; ++i) {
      const uint32_t token = list(i);
      words_[token / 64].bits |= uint64_t{1} << token % 64;
    }
    for (uint32_t i = 1; i <= vocab_size / 64; ++i) words_[i].before = words_[i - 1].before + count_ones(words_[i - 1].bits);
  }

  void prefetch(uint32_t token) const { __builtin_prefetch(&words_[token / 64]); }
  // As the functions of list_match.h; the list begins at `begin`.
  template <typename Sink>
  void match(const TokenSet& tokens, uint64_t begin, Sink sink) const {
    for (int i = 0; i < tokens.size(); ++i) {
      const Word& word = words_[tokens[i] / 64];
      const uint64_t below = tokens[i] % 64;
      sink(word.bits >> below & 1, i, begin + word.before + count_ones(word.bits & ((uint64_t{1} << below) - 1)));
    }
  }

 private:
  struct Word {
    uint64_t bits, before;
  };
  std::unique_ptr<Word[]> words_;
};

// Those of some contexts; threads may ask for the same one at the same time.
class DenseLists {
 public:
  explicit DenseLists(uint32_t contexts) : lists_(new std::atomic<const DenseList*>[contexts]()), contexts_(contexts) {}
  ~DenseLists() {
    for (uint32_t i = 0; i < contexts_; ++i) delete lists_[i].load();
  }
  DenseLists(const DenseLists&) = delete;
  DenseLists& operator=(const DenseLists&) = delete;

  static bool dense(uint64_t size, uint32_t vocab_size) { return size >= vocab_size / 32 + 64; }

  // That of a context, of make() when it is asked for first.
  template <typename Make>
  const DenseList& at(uint32_t context, Make make) {
    const DenseList* known = lists_[context].load(std::memory_order_acquire);
    if (known) return *known;
    auto made = std::make_unique<DenseList>(make());
    if (lists_[context].compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) known = made.release();
    return *known;
  }

 private:
  std::unique_ptr<std::atomic<const DenseList*>[]> lists_;
  const uint32_t contexts_;
};

}  // namespace rescore
