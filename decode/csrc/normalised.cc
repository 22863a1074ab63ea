#include "normalised.h"

#include <algorithm>
#include <limits>

namespace rescore {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();  // ln 0

// ln of a weight: -cost / temperature.
double score(double cost, double temperature) { return std::fabs(cost) <= kMaxWeight ? -cost / temperature : kNever; }

// Takes the ln of the scores' sum of exponentials from each of them, and returns it. All scores -inf stay as they are.
double normalise(double* scores, int count) {
  const double most = *std::max_element(scores, scores + count);
  if (most == kNever) return kNever;
  double total = 0;
  for (int k = 0; k < count; ++k) total += std::exp(scores[k] - most);
  const double log_total = std::log(total);
  for (int k = 0; k < count; ++k) scores[k] = scores[k] - most - log_total;
  return most + log_total;
}

}  // namespace

PushedLattice Pushing::run(const Models& models, const Sausage& sausage, const States& start, double temperature, size_t most) {
  read_slots(sausage, slots_);
  length_ = sausage.length();
  width_ = sausage.width;
  PushedLattice out;
  if (!length_) return out;
  forward(models, sausage, start, temperature, most);
  out.log_mass = backward();
  out.nodes = layers_.size();
  out.logq.assign(logq_.begin(), logq_.begin() + static_cast<size_t>(out.nodes) * width_);
  out.target.assign(target_.begin(), target_.begin() + static_cast<size_t>(out.nodes) * width_);
  return out;
}

// Every node is expanded once; what stands in logq_ are scores yet. After the last slot there are no nodes: the model's
// states do not matter any more.
void Pushing::forward(const Models& models, const Sausage& sausage, const States& start, double temperature, size_t most) {
  for (int j = 0; j < models.size(); ++j) caches_[j].clear();
  layers_.clear(models.size());
  layers_.begin();
  layers_.add(start);
  for (int t = 0; t < length_; ++t) {
    const uint32_t first = layers_.first(t), last = layers_.size();
    const size_t transitions = static_cast<size_t>(last) * width_;
    expect_transitions(transitions, most, t);
    if (logq_.size() < transitions) {
      logq_.resize(transitions);
      target_.resize(transitions);
    }
    if (t + 1 < length_) layers_.begin();
    for (uint32_t node = first; node < last; ++node) expand_node(node, t, models, sausage, temperature);
  }
}

void Pushing::expand_node(uint32_t node, int t, const Models& models, const Sausage& sausage, double temperature) {
  const size_t row = static_cast<size_t>(node) * width_;
  expand(models, sausage, slots_[t], t, layers_.states(node), caches_, expansion_);
  for (int rank = 0; rank < slots_[t].count; ++rank) logq_[row + rank] = score(expansion_.cost[rank], temperature);
  std::fill(logq_.begin() + row + slots_[t].count, logq_.begin() + row + width_, kNever);
  if (t + 1 == length_) return;
  for (int rank = 0; rank < slots_[t].count; ++rank)
    if (logq_[row + rank] != kNever)
      target_[row + rank] = layers_.target(models, expansion_.arcs(rank, models.size()), sausage.slot_ids(t)[rank]);
}

// Layer by layer from the last: the ln of the mass of all completions of every node, which is what its row is divided by.
double Pushing::backward() {
  mass_.resize(layers_.size());
  for (int t = length_ - 1; t >= 0; --t) {
    for (uint32_t node = layers_.first(t); node < layers_.first(t + 1); ++node) {
      const size_t row = static_cast<size_t>(node) * width_;
      if (t + 1 < length_)
        for (int rank = 0; rank < slots_[t].count; ++rank)
          if (logq_[row + rank] != kNever) logq_[row + rank] += mass_[target_[row + rank]];
      mass_[node] = normalise(&logq_[row], slots_[t].count);
    }
  }
  return mass_[0];
}

LocalLattice::LocalLattice(const Models& models, const Sausage& sausage, const States& start, double temperature, Caches& caches)
    : models(models), sausage(sausage), start(start), temperature(temperature), caches(caches) {
  read_slots(sausage, slots);
  for (int j = 0; j < models.size(); ++j) caches[j].clear();
}

const double* LocalWalk::row(int t) {
  const Slot& slot = lattice_.slots[t];
  expand(lattice_.models, lattice_.sausage, slot, t, states_, lattice_.caches, expansion_);
  for (int rank = 0; rank < slot.count; ++rank) logq_[rank] = score(expansion_.cost[rank], lattice_.temperature);
  normalise(logq_.data(), slot.count);
  return logq_.data();
}

void LocalWalk::take(int t, int rank) {
  const Models& models = lattice_.models;
  states_ = models.next(expansion_.arcs(rank, models.size()), lattice_.sausage.slot_ids(t)[rank]);
}

}  // namespace rescore
