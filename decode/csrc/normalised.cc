#include "normalised.h"

#include <algorithm>
#include <limits>

#include "log_sum.h"

namespace rescore {
namespace {

constexpr double kImpossibleCost = std::numeric_limits<double>::infinity();

// A weight of the composition in nats, divided by the temperature.
double scaled(Fixed weight, double temperature) {
  return possible(weight) ? weight / kFixedOne / temperature : kImpossibleCost;
}

// ln q of a candidate, from its cost and its row's log_sum.
double logq(double row, double cost) { return std::isinf(row) ? -kImpossibleCost : row - cost; }

}  // namespace

void PushedLattice::row(uint32_t node, int count, const double* shorter, double* row) const {
  const FailureLattice::Node& own = lattice.nodes[node];
  const double* arc = &of_arc[own.first_arc];
  std::fill(row + count, row + row_size(width), kImpossibleCost);
  if (own.backoff == kNone) {
    std::copy_n(arc, count, row);
    return;
  }
  const double failure = scaled(own.backoff_weight, temperature);
  for (int i = 0; i < count; ++i) row[i] = shorter[i] + failure;
  for (uint64_t tokens = own.tokens; tokens; tokens &= tokens - 1) row[__builtin_ctzll(tokens)] = *arc++;
}

PushedLattice Pushing::run(const Models& models, const Sausage& sausage, const Starts& starts, double temperature,
                           size_t most) {
  PushedLattice out;
  const int length = sausage.length();
  if (!length) return out;
  read_slots(sausage, slots_);
  product_.run(models, sausage, slots_, starts, most, lattice_);
  out.temperature = temperature;
  out.width = sausage.width;
  out.lattice = lattice_;
  out.of_arc.resize(lattice_.arcs.size());
  out.of_node.resize(lattice_.nodes.size());  // nodes after the last slot have cost 0
  out.place.resize(static_cast<size_t>(length) * out.width);
  for (int t = length - 1; t >= 0; --t) layer(t, out);
  return out;
}

void Pushing::layer(int t, PushedLattice& out) {
  const Slot& slot = slots_[t];
  for (int rank = 0; rank < slot.count; ++rank) out.place[t * out.width + rank] = slot.place(rank);
  const auto arcs = [&](uint32_t first, uint32_t end) {
    for (uint32_t arc = first; arc < end; ++arc) {
      const FailureLattice::Arc& one = lattice_.arcs[arc];
      out.of_arc[arc] =
          possible(one.weight) ? scaled(one.weight, out.temperature) + out.of_node[one.target] : kImpossibleCost;
    }
  };
  layer_rows(lattice_, t, out.width, rows_, arcs, [&](uint32_t node, const double* shorter, double* row) {
    out.row(node, slot.count, shorter, row);
    out.of_node[node] = log_sum(row, out.width);
  });
}

const double* PushedWalk::row(int t) {
  const int count = sausage_.candidates(t);
  std::array<double, kMaxCandidates> cost;
  lattice_.lattice.suffixes(node_, [&](uint32_t node) { lattice_.row(node, count, cost.data(), cost.data()); });
  const double all = lattice_.of_node[node_];
  const uint8_t* place = &lattice_.place[static_cast<size_t>(t) * lattice_.width];
  for (int rank = 0; rank < count; ++rank) logq_[rank] = logq(all, cost[place[rank]]);
  return logq_.data();
}

void PushedWalk::take(int t, int rank) {
  const int place = lattice_.place[static_cast<size_t>(t) * lattice_.width + rank];
  lattice_.lattice.find(node_, place, [this](const FailureLattice::Arc& arc, Fixed) { node_ = arc.target; });
}

LocalLattice::LocalLattice(const Models& models, const Sausage& sausage, const Starts& starts, double temperature,
                           Compositions& compositions)
    : models(models), sausage(sausage), temperature(temperature), compositions(compositions) {
  read_slots(sausage, slots);
  for (int j = 0; j < models.size(); ++j)
    start[j] = compositions[j].start(*models.lm[j], slots, row_size(sausage.width), starts[j]);
  if (models.acceptor) start[models.size()] = models.acceptor->start;
}

const double* LocalWalk::row(int t) {
  const Models& models = lattice_.models;
  const Slot& slot = lattice_.slots[t];
  std::array<double, kMaxCandidates> nats, cost;
  for (int i = 0; i < slot.count; ++i) nats[i] = lattice_.sausage.slot_cost(t)[slot.rank[i]];
  for (int j = 0; j < models.size(); ++j) {
    LazyComposition& composition = lattice_.compositions[j];
    composition.find_lists();
    composition.match_lists();
    composition.read_costs();
    const double* of_model = composition.costs(at_[j]);
    for (int i = 0; i < slot.count; ++i) nats[i] += models.weight(j, t) * of_model[i];
  }
  cost.fill(kImpossibleCost);
  for (int i = 0; i < slot.count; ++i)
    if (!models.acceptor || models.acceptor->next(at_[models.size()], slot.tokens[i]) != Acceptor::kNowhere)
      cost[slot.rank[i]] = scaled(to_fixed(nats[i]), lattice_.temperature);
  const double all = log_sum(cost.data(), slot.count);
  for (int rank = 0; rank < slot.count; ++rank) logq_[rank] = logq(all, cost[rank]);
  return logq_.data();
}

void LocalWalk::take(int t, int rank) {
  const Models& models = lattice_.models;
  for (int j = 0; j < models.size(); ++j) at_[j] = lattice_.compositions[j].next(at_[j], lattice_.slots[t].place(rank));
  if (models.acceptor)
    at_[models.size()] = models.acceptor->next(at_[models.size()], lattice_.sausage.slot_ids(t)[rank]);
}

}  // namespace rescore
