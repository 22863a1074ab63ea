// A conditional distribution q(w | prefix) over the drafts of a lattice, to be sampled from and asked.
//
// Global: q(w_1..w_T) is proportional to exp(-cost / temperature), cost being the rescored cost of the string. The
// composition's weights are pushed towards its start in the log semiring (Mohri, "Weighted automata algorithms", 2009,
// section 5.3): a transition's weight becomes -ln q(w | prefix), and of the prefix only its node matters.
// Local: q(w | prefix) is the softmax over the slot's candidates of -(cost of w after the prefix) / temperature, as in
// best_tree.h. A node is expanded when a path comes to it.
#pragma once

#include <array>
#include <vector>

#include "layers.h"

namespace rescore {

// The composition with its weights pushed.
struct PushedLattice {
  double log_mass = 0;  // ln of the sum of exp(-cost / temperature) over all drafts; -inf: no draft is possible
  uint32_t nodes = 0;
  // Node 0 is the start. Node n's transition on rank k is at n * width + k; there is none where logq is -inf.
  std::vector<double> logq;
  std::vector<uint32_t> target;  // unused for the last slot
};

// The two passes of pushing, with room that is kept from one lattice to the next.
class Pushing {
 public:
  // std::length_error beyond `most` transitions.
  PushedLattice run(const Models& models, const Sausage& sausage, const States& start, double temperature, size_t most);

 private:
  void forward(const Models& models, const Sausage& sausage, const States& start, double temperature, size_t most);
  void expand_node(uint32_t node, int t, const Models& models, const Sausage& sausage, double temperature);
  double backward();

  int length_ = 0;
  int width_ = 0;
  Slots slots_;
  Caches caches_;
  Layers layers_;
  Expansion expansion_;
  std::vector<double> logq_;  // scores, until the backward pass
  std::vector<uint32_t> target_;
  std::vector<double> mass_;
};

// A path through a pushed lattice.
class PushedWalk {
 public:
  PushedWalk(const PushedLattice& lattice, const Sausage& sausage) : lattice_(lattice), width_(sausage.width) {}

  // ln q of the candidates of slot t, [width], after the tokens taken so far.
  const double* row(int) const { return &lattice_.logq[static_cast<size_t>(node_) * width_]; }
  // Goes on with a candidate whose ln q is not -inf.
  void take(int, int rank) { node_ = lattice_.target[static_cast<size_t>(node_) * width_ + rank]; }

 private:
  const PushedLattice& lattice_;
  const int width_;
  uint32_t node_ = 0;
};

// What the paths of a lattice that is normalised locally share.
struct LocalLattice {
  LocalLattice(const Models& models, const Sausage& sausage, const States& start, double temperature, Caches& caches);

  const Models& models;
  const Sausage& sausage;
  const States start;
  const double temperature;
  Caches& caches;
  Slots slots;
};

// A path through it; as PushedWalk.
class LocalWalk {
 public:
  explicit LocalWalk(LocalLattice& lattice) : lattice_(lattice), states_(lattice.start) {}

  const double* row(int t);
  void take(int t, int rank);

 private:
  LocalLattice& lattice_;
  States states_;
  Expansion expansion_;
  std::array<double, kMaxCandidates> logq_;
};

}  // namespace rescore
