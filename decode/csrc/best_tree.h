// Token trees of closed lattices, under any number of models.
#pragma once

#include "best_prefixes.h"
#include "lazy_composition.h"
#include "log_sum.h"
#include "models.h"

namespace rescore {

// Searches prefixes of the sausage under q(w | prefix) = softmax over the slot's candidates, those that the acceptor
// allows, of -(cost + alpha * LM).
class LatticeTreeSearch {
 public:
  void begin(const Models& models, const Sausage& sausage, const Starts& starts, TreeOutput out);

  // Steps of a search, interleaved over several trees to hide memory latency: each step is run for all trees before the
  // next one. `choose` returns false when the tree is complete.
  bool choose();
  void find_lists();
  void match_lists();
  void weigh();

  // Number of nodes of the tree.
  int found() const { return best_.found(); }

 private:
  struct Opened {
    Fixed cost;
    int depth;
    std::array<uint32_t, kMaxModels> nodes;
    uint32_t place;  // in the acceptor
  };
  // A slot's candidates in ascending order of token: their head costs, padded with +inf, and their ranks.
  struct Row {
    CostRow head;
    std::array<int64_t, kMaxCandidates> rank;
  };
  void read_rows();
  void weigh(uint32_t number);
  bool next(uint32_t number, Offer& offer);

  Models models_;
  Sausage sausage_;
  int width_;  // of rows
  BestPrefixes best_;
  std::vector<Opened> opened_;
  // [opened, width]: each child's cost beyond the prefix's, with its rank in the low bits; kTaken once taken or if
  // there is no child.
  std::vector<int64_t> keys_;
  Slots slots_;
  std::array<Row, kMaxSlots> rows_;
  std::array<LazyComposition, kMaxModels> compositions_;
};

constexpr int kTurns = 4;  // trees interleaved per thread

// Completes up to kTurns trees that were begun, interleaved.
void grow_trees(LatticeTreeSearch* searches, int count);

}  // namespace rescore
