#include "best_tree.h"

#include <algorithm>
#include <cmath>

namespace rescore {
namespace {

constexpr int kTogether = 4;  // prefixes opened at once
constexpr int64_t kTaken = INT64_MAX;
constexpr int kRankBits = 6;  // of a key; its cost is at most 2 kMaxWeight and ln 64, some 52 bits

// Adding it to a weight within kMaxWeight and subtracting it again rounds the weight to a multiple of 2^-32, as Fixed
// has, halves to even: doubles of that size are 2^-32 apart.
constexpr double kRounder = 3.0 * kMaxWeight;

}  // namespace

void LatticeTreeSearch::read_rows() {
  for (int t = 0, length = sausage_.length(); t < length; ++t) {
    const Slot& slot = slots_[t];
    Row& row = rows_[t];
    for (int i = 0; i < slot.count; ++i) {
      row.head[i] = sausage_.slot_cost(t)[slot.rank[i]];
      row.rank[i] = slot.rank[i];
    }
    std::fill(row.head.begin() + slot.count, row.head.begin() + width_, INFINITY);
  }
}

void LatticeTreeSearch::begin(const Models& models, const Sausage& sausage, const Starts& starts, TreeOutput out) {
  best_.begin(sausage.length(), out, kTogether);
  if (sausage.length() == 0) return;
  models_ = models;
  sausage_ = sausage;
  width_ = row_size(sausage.width);
  read_slots(sausage, slots_);
  read_rows();
  opened_.resize(1);
  for (int j = 0; j < models.size(); ++j)
    opened_[0].nodes[j] = compositions_[j].start(*models.lm[j], slots_, width_, starts[j]);
  if (models.acceptor) opened_[0].place = models.acceptor->start;
}

bool LatticeTreeSearch::choose() {
  const bool more =
      best_.advance([this](uint32_t number, Offer& offer) { return next(number, offer); },
                    [this](int depth, const Offer& offer) { return sausage_.slot_ids(depth)[offer.rank]; });
  if (!more) return false;
  const size_t size = best_.openings().back().number + size_t{1};
  opened_.resize(size);
  if (const size_t room = size * width_; keys_.size() < room) keys_.resize(2 * room);
  for (const auto& [number, parent, offer, depth] : best_.openings()) {
    Opened& own = opened_[number];
    own.cost = offer.cost;
    own.depth = depth;
    for (int j = 0; depth && j < models_.size(); ++j)
      own.nodes[j] = compositions_[j].next(opened_[parent].nodes[j], slots_[depth - 1].place(offer.rank));
    if (depth && models_.acceptor)
      own.place = models_.acceptor->next(opened_[parent].place, sausage_.slot_ids(depth - 1)[offer.rank]);
  }
  return true;
}

void LatticeTreeSearch::find_lists() {
  for (int j = 0; j < models_.size(); ++j) compositions_[j].find_lists();
}

void LatticeTreeSearch::match_lists() {
  for (int j = 0; j < models_.size(); ++j) compositions_[j].match_lists();
}

void LatticeTreeSearch::weigh() {
  for (int j = 0; j < models_.size(); ++j) compositions_[j].read_costs();
  for (const Opening& one : best_.openings()) weigh(one.number);
}

// Computes the softmax over the slot's candidates after a prefix.
void LatticeTreeSearch::weigh(uint32_t number) {
  const Opened& own = opened_[number];
  const Row& row = rows_[own.depth];
  CostRow nats;
  for (int i = 0; i < width_; i += kWide) {
    Doubles cost = load<Doubles>(&row.head[i]);
    for (int j = 0; j < models_.size(); ++j)
      cost += models_.weight(j, own.depth) * load<Doubles>(compositions_[j].costs(own.nodes[j]) + i);
    const Doubles size = cost < 0 ? -cost : cost;
    store(&nats[i], size <= double{kMaxWeight} ? (cost + kRounder) - kRounder : Doubles{} + INFINITY);
  }
  if (models_.acceptor)
    for (int i = 0; i < slots_[own.depth].count; ++i)
      if (models_.acceptor->next(own.place, slots_[own.depth].tokens[i]) == Acceptor::kNowhere) nats[i] = INFINITY;
  const double all = log_sum(nats.data(), width_) + kRounder - kRounder;
  const bool near = all > 1 - kMaxWeight;  // all differences are below 2^52, or infinite
  for (int i = 0; i < width_; i += kWide) {
    const Doubles cost = load<Doubles>(&nats[i]), fixed = (cost - all) * kFixedOne;
    const Integers weight = near ? whole(fixed) : __builtin_convertvector(fixed, Integers);
    const Integers key = weight << kRankBits | load<Integers>(&row.rank[i]);
    store(&keys_[number * width_ + i], cost < INFINITY ? key : Integers{} + kTaken);
  }
}

// Few of a prefix's children are ever taken, so they are not sorted.
bool LatticeTreeSearch::next(uint32_t number, Offer& offer) {
  int64_t* keys = &keys_[number * width_];
  const int64_t best = least_of(keys, width_);
  if (best == kTaken) return false;
  const Opened& own = opened_[number];
  offer.cost = own.cost + (best >> kRankBits);
  offer.rank = best & ((1 << kRankBits) - 1);
  store_one(keys, slots_[own.depth].place(offer.rank), kTaken);
  return true;
}

void grow_trees(LatticeTreeSearch* searches, int count) {
  std::array<LatticeTreeSearch*, kTurns> turn;
  for (;;) {
    int left = 0;
    for (int i = 0; i < count; ++i)
      if (searches[i].choose()) turn[left++] = &searches[i];
    if (!left) return;
    for (int i = 0; i < left; ++i) turn[i]->find_lists();
    for (int i = 0; i < left; ++i) turn[i]->match_lists();
    for (int i = 0; i < left; ++i) turn[i]->weigh();
  }
}

}  // namespace rescore
