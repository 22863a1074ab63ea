// Token trees of lattices: of closed ones, by any number of models.
#pragma once

#include "best_prefixes.h"
#include "lazy_composition.h"
#include "log_sum.h"
#include "models.h"

namespace rescore {

// Prefixes of the sausage under q(w | prefix) = softmax over the slot's candidates of -(cost + alpha * LM).
class LatticeTreeSearch {
 public:
  void begin(const Models& models, const Sausage& sausage, const Starts& starts, TreeOutput out);

  // Steps of several trees that take turns: while memory is fetched for one, others work. Each step for all of them
  // before the next. False: the tree is done.
  bool choose();
  void find_lists();
  void match_lists();
  void weigh();

  // How many nodes the tree has.
  int found() const { return best_.found(); }

 private:
  struct Opened {
    Fixed cost;
    int depth;
    std::array<uint32_t, kMaxModels> nodes;
  };
  // A slot's candidates in ascending order of token: what their heads say, +inf behind the last, and their ranks.
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
  // [opened, width]: of each child its cost beyond the prefix's, and its rank behind that; kTaken where there is none
  // any more.
  std::vector<int64_t> keys_;
  Slots slots_;
  std::array<Row, kMaxSlots> rows_;
  std::array<LazyComposition, kMaxModels> compositions_;
};

constexpr int kTurns = 4;  // trees that take turns on a thread

// Up to kTurns trees that were begun take turns until all are done.
void grow_trees(LatticeTreeSearch* searches, int count);

}  // namespace rescore
