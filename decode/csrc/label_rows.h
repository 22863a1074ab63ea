// What the labels of one state of a graph cost in states of an automaton, and where they lead, under failure semantics.
//
// A state's row is that of its backoff state, failure arc paid, with its own arcs written over it. States of a graph
// that are reached with several histories share the rows of the shorter ones, so each list of arcs is read once.
#pragma once

#include <cstdint>
#include <vector>

#include "automaton.h"
#include "room.h"
#include "weight.h"

namespace rescore {

class LabelRows {
 public:
  // Forgets all rows. alpha: of the model's costs, may be negative.
  void clear(const Automaton& lm, double alpha);

  // Begins the rows of a state of the graph with these labels [count], -1 for what the model does not read. place
  // [count]: where each label is in a row.
  void begin(const int32_t* labels, size_t count, uint32_t* place);

  // Asks for the memory that `row` reads of a state.
  void prefetch(uint32_t state) const;

  // The row of an automaton's state; it stays valid, and can be read after `fill`.
  uint32_t row(uint32_t state);
  void fill();

  Fixed weight(uint32_t row, uint32_t place) const { return weight_[row + place]; }
  uint32_t next(uint32_t row, uint32_t place) const { return next_[row + place]; }
  size_t size() const { return next_.size(); }
  // What no weight of a row exceeds, but impossible ones.
  double greatest() const { return greatest_arc_ + (lm_->order - 1) * greatest_failure_; }

 private:
  struct Known {
    uint32_t state, row, begun;
  };
  // A row that is not filled yet: its state, and the arcs that this has.
  struct Begun {
    uint32_t row, shorter, length;
    float backoff;
    size_t matches;  // end of them
  };
  struct Match {
    uint32_t place, arc;
  };

  uint32_t add(uint32_t state);
  void match(uint32_t row, uint32_t shorter, uint32_t length, uint32_t index);
  void fill_root(uint32_t row);
  Fixed weighed(double cost, double& greatest) const;
  void note(uint32_t state, uint32_t row);
  size_t probe(uint32_t state) const;
  uint64_t* own(uint32_t row) { return &own_[(row - first_) / width_ * sets_.size()]; }

  const Automaton* lm_;
  double alpha_;  // in units of Fixed
  double greatest_arc_, greatest_failure_;
  std::vector<int32_t> order_;  // distinct labels, ascending
  std::vector<TokenSet> sets_;  // the same, 64 at a time
  uint32_t first_, width_;      // of the current rows: place 0, where a label is not read, then the distinct labels
  Room<Fixed> weight_;
  Room<uint32_t> next_;
  std::vector<uint64_t> own_;  // of the current rows: a bit for each label that has an arc
  std::vector<Begun> rows_;
  std::vector<Match> matches_;
  std::vector<Known> table_;  // open addressing over the current rows
  uint32_t begun_ = 0, count_ = 0;
};

}  // namespace rescore
