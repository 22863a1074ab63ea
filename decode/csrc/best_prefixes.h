// Token trees: the n most probable prefixes, by best-first search.
//
// A prefix is never more probable than its parent, so the first n prefixes in the order (probability, depth, ranks)
// form a tree, and the tree of n nodes is the beginning of the tree of n + 1.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "prefix_queue.h"
#include "prefix_tree.h"
#include "room.h"

namespace rescore {

constexpr int kMaxNodes = 4096;  // per tree

struct TreeOutput {
  int32_t* tokens;   // [nodes], padding -1
  int32_t* parents;  // [nodes], -1: a child of the root token; padding -1
  int32_t* depths;   // [nodes], from 1; padding 0
  float* logq;       // [nodes], padding -inf
  int nodes;
};

inline void clear(TreeOutput out) {
  std::fill(out.tokens, out.tokens + out.nodes, -1);
  std::fill(out.parents, out.parents + out.nodes, -1);
  std::fill(out.depths, out.depths + out.nodes, 0);
  std::fill(out.logq, out.logq + out.nodes, -std::numeric_limits<float>::infinity());
}

// A prefix whose children are to be computed. Openings are numbered in order; the empty prefix has number 0.
struct Opening {
  uint32_t number;
  uint32_t parent;  // its number
  Offer offer;      // the prefix, as its parent offers it
  int depth;
};

// Repeatedly takes the cheapest of all offers. Prefix 0 is empty; prefix i + 1 is node i.
class BestPrefixes {
 public:
  // Works in steps, so that searches can wait for each other: begin; then, while `advance` returns true, give the
  // children of `opening`: `offer` in order, then `end_prefix`. length: most tokens of a prefix.
  void begin(int length, TreeOutput out) {
    rescore::clear(out);
    length_ = length;
    out_ = out;
    found_ = 0;
    tree_.clear();
    numbers_.clear();
    queue_.clear();
    offers_.clear();
    lists_.clear();
    opened_ = 0;
    add(kNone, 0, 0, 0);
  }

  void offer(Fixed cost, uint32_t rank, uint32_t place) { offers_.emplace_back(cost, rank, place); }
  void end_prefix() { lists_.emplace_back(lists_.empty() ? 0 : lists_.back().end, offers_.size()); }

  // Takes prefixes until another has to be opened; false when the tree is complete. token(depth, offer): the token of a
  // child of a prefix of `depth`.
  template <typename Token>
  bool advance(Token token) {
    if (length_ == 0) return false;
    if (!opened_) {
      opened_ = 1;
      opening_ = {0, kNone, {}, 0};
      return true;
    }
    if (!found_ && !queue_.size() && next(0, tree_.offers[0])) queue_.push(tree_.offers[0].cost, 0);
    while (found_ < out_.nodes && queue_.size()) {
      const uint32_t parent = queue_.top();
      const Offer taken = tree_.offers[parent];
      const int depth = tree_.prefixes[parent].depth + 1;
      if (found_ + 1 < out_.nodes && depth < length_ && numbers_[parent].offer == kNone) {
        numbers_[parent].offer = opened_++;
        opening_ = {numbers_[parent].offer, numbers_[parent].own, taken, depth};
        return true;
      }
      out_.tokens[found_] = token(depth - 1, taken);
      out_.parents[found_] = static_cast<int32_t>(parent) - 1;
      out_.depths[found_] = depth;
      out_.logq[found_] = -to_cost(taken.cost);
      ++found_;
      const uint32_t number = numbers_[parent].offer;
      const uint32_t prefix = add(parent, taken.rank, depth, number);
      numbers_[parent].offer = kNone;
      if (next(numbers_[parent].own, tree_.offers[parent]))
        queue_.replace(tree_.offers[parent].cost);
      else
        queue_.pop();
      if (number != kNone && next(number, tree_.offers[prefix])) queue_.push(tree_.offers[prefix].cost, prefix);
    }
    return false;
  }

  // The prefix to open.
  const Opening& opening() const { return opening_; }
  // Number of nodes of the tree.
  int found() const { return found_; }

 private:
  struct Numbers {  // kNone: not opened
    uint32_t own, offer;
  };
  struct List {
    size_t next, end;  // not yet offered
  };
  struct Before {
    const PrefixTree* tree;
    bool operator()(uint32_t a, uint32_t b) const {
      const int depth = tree->prefixes[a].depth, other = tree->prefixes[b].depth;
      return depth != other ? depth < other : tree->ranks_before(a, b);
    }
  };

  uint32_t add(uint32_t parent, uint32_t rank, int depth, uint32_t number) {
    numbers_.emplace_back(number, kNone);
    return tree_.add(parent, rank, depth);
  }

  // Sets `offer` to the next best child of a prefix, by its number; false if there is none.
  bool next(uint32_t number, Offer& offer) {
    List& list = lists_[number];
    if (list.next == list.end) return false;
    offer = offers_[list.next++];
    return true;
  }

  int length_, found_;
  TreeOutput out_;
  PrefixTree tree_;
  Room<Numbers> numbers_;  // parallel to the prefixes: a prefix's own number and its offer's
  Room<Offer> offers_;     // the children, prefix after prefix
  Room<List> lists_;       // by number
  Opening opening_;
  uint32_t opened_;
  PrefixQueue<Before> queue_{Before{&tree_}};
};

}  // namespace rescore
