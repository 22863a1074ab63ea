#include "product_lattice.h"

#include <algorithm>

namespace rescore {

void Product::run(const Models& models, const Sausage& sausage, const Slots& slots, const Starts& starts, size_t most,
                  FailureLattice& out) {
  if (models.size() == 1 && !models.acceptor)
    composer_.run(*models.lm[0], sausage, slots, starts[0], {models.weights(0), true}, most, out);
  else
    multiply(models, sausage, slots, starts, most, out);
}

void Product::multiply(const Models& models, const Sausage& sausage, const Slots& slots, const Starts& starts,
                       size_t most, FailureLattice& out) {
  const int length = sausage.length();
  factors_.resize(models.size());
  States first{};
  for (int j = 0; j < models.size(); ++j) {
    composer_.run(*models.lm[j], sausage, slots, starts[j], {models.weights(j), false}, most, factors_[j]);
    first[j] = factors_[j].start;
  }
  out.nodes.clear();
  out.arcs.clear();
  out.start = 0;
  out.lengths = 1;
  if (models.acceptor) first[models.size()] = models.acceptor->start;
  layers_.clear(models.components());
  layers_.begin();
  layers_.add(first);
  for (int t = 0; t < length; ++t) {
    const uint32_t end = layers_.size();
    out.begin[0][t] = {static_cast<uint32_t>(out.nodes.size()), static_cast<uint32_t>(out.arcs.size())};
    layers_.begin();
    for (uint32_t node = out.begin[0][t].node; node < end; ++node) {
      expand(models, sausage, slots[t], t, layers_.states(node));
      out.nodes.push_back({slots[t].tokens.all(), static_cast<uint32_t>(out.arcs.size()), kNone, kImpossible});
      for (int i = 0; i < slots[t].count; ++i) {
        const bool can = possible(row_.weight[i]);
        out.arcs.push_back({row_.weight[i], can ? layers_.intern(row_.target[i]) : kNone});
      }
    }
    expect_transitions(out.arcs.size(), most, t);
  }
  out.begin[0][length] = {static_cast<uint32_t>(out.nodes.size()), static_cast<uint32_t>(out.arcs.size())};
  out.nodes.push_back({0, static_cast<uint32_t>(out.arcs.size()), kNone, kImpossible});
  out.begin[0][length + 1] = {static_cast<uint32_t>(out.nodes.size()), static_cast<uint32_t>(out.arcs.size())};
}

// Adds the factors' costs.
void Product::expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const uint32_t* states) {
  for (int i = 0; i < slot.count; ++i) {
    Fixed& weight = row_.weight[i];
    weight = to_fixed(sausage.slot_cost(t)[slot.rank[i]]);
    if (models.acceptor) {
      const uint32_t target = models.acceptor->next(states[models.size()], slot.tokens[i]);
      if (target == Acceptor::kNowhere) weight = kImpossible;
      row_.target[i][models.size()] = t + 1 < sausage.length() ? target : 0;  // one node after the last slot
    }
    for (int j = 0; j < models.size(); ++j) {
      Fixed own = kImpossible;
      factors_[j].find(states[j], i, [&](const FailureLattice::Arc& arc, Fixed paid) {
        own = std::min(paid + arc.weight, kImpossible);
        row_.target[i][j] = arc.target;
      });
      weight = std::min(weight + own, kImpossible);
    }
  }
}

}  // namespace rescore
