// An n-gram model of one running text, counted while it grows.
//
// A trie: the node of w_1..w_n, n <= order, counts how often these tokens came in a row; its children are what
// followed. A state is a context of at most order - 1 tokens that came at least once; its link leads to the next
// shorter one.
//
// p(w | c) is interpolated over all contexts that are suffixes of c, in the manner of Witten and Bell:
// p_o(w) = (n_o(w) + m_o p_{o-1}(w)) / (N_o + m_o), m_o being strength_o times the number of distinct tokens that
// followed the context of o tokens, and p_{-1} another model's distribution.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rescore {

class ContextModel {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kEmpty = 0;  // the state of no context
  static constexpr uint32_t kMaxOrder = 8;

  explicit ContextModel(uint32_t order);

  uint32_t order() const { return order_; }
  uint64_t size() const { return tokens_; }  // of the text
  uint64_t bytes() const;
  uint32_t greatest_token() const { return greatest_; }

  void extend(uint32_t token);

  // Of the text so far.
  uint32_t state() const { return active_[longest_]; }
  // After one token more, which is not counted.
  uint32_t step(uint32_t state, uint32_t token) const;

  // How often a token followed the state's context.
  uint32_t count(uint32_t state, uint32_t token) const {
    const uint32_t node = child(state, token);
    return node == kNone ? 0 : nodes_[node].count;
  }

  // What counts are worth in a state: p(w) = sum over contexts of count_o(w) * worth_o + rest * p_other(w).
  struct Mixture {
    struct Part {
      uint32_t state;
      double worth;
    };
    std::array<Part, kMaxOrder> parts;  // the longest context first; what nothing followed is left out
    int size = 0;
    double rest = 1;
  };
  Mixture mixture(uint32_t state, const double* strength) const;

  // Calls see(token, count) for all that followed the state's context.
  template <typename See>
  void followers(uint32_t state, See see) const {
    for (uint32_t node = nodes_[state].first_child; node != kNone; node = nodes_[node].sibling)
      see(nodes_[node].token, nodes_[node].count);
  }

  // Held while threads search: a text must not grow under a search.
  class Reading {
   public:
    explicit Reading(const std::vector<const ContextModel*>& texts) : texts_(texts) {
      for (const ContextModel* text : texts_) ++text->readers_;
    }
    ~Reading() {
      for (const ContextModel* text : texts_) --text->readers_;
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    const std::vector<const ContextModel*>& texts_;
  };
  bool is_read() const { return readers_ > 0; }

  // Distinct tokens of the text, the most frequent first.
  const std::vector<uint32_t>& by_count() const { return by_count_; }

 private:
  struct Node {
    uint32_t parent, token;
    uint32_t link;  // the node of all its tokens but the first
    uint32_t count = 0, followed = 0, types = 0;
    uint32_t first_child = kNone, sibling = kNone;
    uint32_t depth;
  };

  static size_t hash(uint32_t parent, uint32_t token) {
    return ((static_cast<uint64_t>(parent) << 32 | token) * 0x9E3779B97F4A7C15ull) >> 20;
  }
  uint32_t child(uint32_t parent, uint32_t token) const;
  uint32_t child_or_new(uint32_t parent, uint32_t token);
  void grow();
  void rank(uint32_t node, uint32_t count);

  uint32_t order_, longest_ = 0, greatest_ = 0;
  uint64_t tokens_ = 0;
  mutable std::atomic<int> readers_{0};
  std::array<uint32_t, kMaxOrder> active_{};  // the nodes of the last 0, 1, .. tokens
  std::vector<Node> nodes_;
  std::vector<uint32_t> table_;  // open addressing over nodes_ by (parent, token)
  std::vector<uint32_t> by_count_;
  std::vector<uint32_t> place_;     // in by_count_, by the token's node below the root
  std::vector<uint32_t> first_of_;  // [c]: the first place of a token that came at most c times
};

}  // namespace rescore
