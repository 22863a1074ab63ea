// What the labels of one state of a graph cost in states of an automaton, and where they lead, under failure semantics.
//
// A state's row is that of its backoff state, failure arc paid, with its own arcs written over it. States with which
// the graph's is reached share the rows of shorter contexts, so each list of arcs is read once.
#pragma once

#include <cstdint>
#include <vector>

#include "automaton.h"
#include "layers.h"
#include "room.h"
#include "weight.h"

namespace rescore {

class LabelRows {
 public:
  // alpha: weight of the model's costs, may be negative.
  void use(const Automaton& lm, double alpha);

  // Begins the rows of a state of the graph with these labels [count], -1 for what the model does not read.
  void begin(const int32_t* labels, size_t count);

  // The number of a state's row, which can be read after `fill`.
  uint32_t row(uint32_t state) {
    const uint32_t rows = states_.size(), row = states_.intern({state});
    if (row == rows) lm_->prefetch_context(state);
    return row;
  }
  void fill();

  // The row of the longest context that has an arc for a label, and what the failure arcs to it weigh: states that
  // share it differ in that weight alone. Where the model does not read all labels, the row itself.
  uint32_t settled(uint32_t row) const { return rows_[row].settled; }
  Fixed paid(uint32_t row) const { return rows_[row].paid; }
  uint32_t rows() const { return states_.size(); }
  uint32_t state(uint32_t row) const { return states_.states(row)[0]; }

  // Of a label of `begin`, by its place there, in a row that is settled.
  Fixed weight(uint32_t row, size_t label) const { return weight_[row * width_ + place_[label]]; }
  uint32_t next(uint32_t row, size_t label) const { return next_[row * width_ + place_[label]]; }
  // What no weight of a row has exceeded, but impossible ones.
  double greatest() const { return greatest_arc_ + (lm_->order - 1) * greatest_failure_; }

 private:
  struct Row {
    uint32_t shorter, length, index;  // index: among the states of that length
    float backoff;
    uint32_t settled;
    Fixed paid;
    Automaton::List list;
    size_t matches;  // end of its own
  };
  struct Match {
    uint32_t place, arc;
  };

  void read_contexts();
  void match(size_t begin, size_t end);
  void match(uint32_t row);
  void fill_root(uint32_t row);
  void fill(uint32_t row, const Match*& match);
  Fixed weighed(double cost, double& greatest) const;
  uint64_t* own(uint32_t row) { return &own_[row * sets_.size()]; }

  const Automaton* lm_;
  double alpha_;  // in units of Fixed
  double greatest_arc_, greatest_failure_;
  std::vector<int32_t> order_;   // distinct labels, ascending
  std::vector<TokenSet> sets_;   // the same, 64 at a time
  std::vector<uint32_t> place_;  // of every label in a row, whose place 0 is for those that are not read
  uint32_t width_;
  bool reads_all_;
  Layers states_;  // the states that have rows
  Room<Fixed> weight_;
  Room<uint32_t> next_;
  std::vector<uint64_t> own_;  // a bit for each label that has an arc
  Room<Row> rows_;
  std::vector<uint32_t> by_length_;  // rows, each after the one that it backs off to
  Room<Match> matches_;              // in that order
};

}  // namespace rescore
