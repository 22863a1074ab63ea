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

}  // namespace rescore
