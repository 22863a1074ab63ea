// Token trees of lattices: of closed ones, by any number of models.
#pragma once

#include "best_prefixes.h"
#include "lazy_composition.h"

namespace rescore {

// Prefixes of the sausage under q(w | prefix) = softmax over the slot's candidates of -(cost + alpha * LM).
class LatticeTreeSearch {
 public:
  int run(const Models& models, const Sausage& sausage, const States& start, TreeOutput out);

 private:
  using Nodes = std::array<uint32_t, kMaxModels>;
  struct Opened {
    Fixed cost;
    int depth;
    Nodes nodes;
  };
  void open(uint32_t prefix, const Child& child);
  void weigh(const Opened& prefix, std::array<Fixed, kMaxCandidates>& weight);
  bool next(uint32_t prefix, Child& child);

  const Models* models_;
  const Sausage* sausage_;
  size_t width_;
  BestPrefixes best_;
  std::vector<Opened> opened_;  // by prefix
  // [prefixes, width]: of each child its cost beyond the prefix's, and its rank behind that; kTaken where there is none any more.
  std::vector<int64_t> keys_;
  Slots slots_;
  std::array<LazyComposition, kMaxModels> compositions_;
};

}  // namespace rescore
