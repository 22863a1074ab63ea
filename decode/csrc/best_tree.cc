#include "best_tree.h"

#include <algorithm>

#include "log_sum.h"

namespace rescore {
namespace {

constexpr int64_t kTaken = INT64_MAX;
constexpr int kRankBits = 6;  // of a key; its cost is at most 2 kMaxWeight and ln 64, some 52 bits

}  // namespace

// What each candidate costs after a prefix, by rank.
void LatticeTreeSearch::weigh(const Opened& prefix, std::array<Fixed, kMaxCandidates>& weight) {
  const int t = prefix.depth;
  const Slot& slot = slots_[t];
  std::array<double, kMaxCandidates> nats;
  const float* head = sausage_->slot_cost(t);
  for (int i = 0; i < slot.count; ++i) nats[i] = head[slot.rank[i]];
  for (int j = 0; j < models_->size(); ++j) {
    const double alpha = models_->weight(j, t);
    const double* cost = compositions_[j].costs(prefix.nodes[j]);
    for (int i = 0; i < slot.count; ++i) nats[i] += alpha * cost[i];
  }
  for (int i = 0; i < slot.count; ++i) weight[slot.rank[i]] = to_fixed(nats[i]);
}

void LatticeTreeSearch::open(uint32_t prefix, const Child& child) {
  opened_.resize(prefix + 1);
  keys_.resize((prefix + 1) * width_);
  Opened& own = opened_[prefix];
  if (prefix) {
    own.cost = child.cost;
    own.depth = child.depth;
    const int place = slots_[child.depth - 1].place(child.rank);
    for (int j = 0; j < models_->size(); ++j) own.nodes[j] = compositions_[j].next(opened_[child.parent].nodes[j], place);
  }
  std::array<Fixed, kMaxCandidates> weight;
  weigh(own, weight);
  int64_t* keys = &keys_[prefix * width_];
  std::fill_n(keys, width_, kTaken);
  // The softmax over the slot's candidates, in nats.
  const int count = slots_[own.depth].count;
  std::array<double, kMaxCandidates> nats;
  nats.fill(INFINITY);
  for (int rank = 0; rank < count; ++rank)
    if (weight[rank] < kImpossible) nats[rank] = weight[rank] / kFixedOne;
  const double sum = log_sum(nats.data(), width_);
  if (std::isinf(sum)) return;
  const Fixed all = std::llrint(sum * kFixedOne);  // ln 64 below the least weight at most
  for (int rank = 0; rank < count; ++rank)
    if (weight[rank] < kImpossible) keys[rank] = (weight[rank] - all) << kRankBits | rank;
}

// Few of a prefix's children are ever taken, so they are not sorted.
bool LatticeTreeSearch::next(uint32_t prefix, Child& child) {
  int64_t* keys = &keys_[prefix * width_];
  int64_t best = kTaken;
  for (size_t i = 0; i < width_; ++i) best = std::min(best, keys[i]);
  if (best == kTaken) return false;
  const uint32_t rank = best & ((1 << kRankBits) - 1);
  keys[rank] = kTaken;
  const Opened& own = opened_[prefix];
  child = {own.cost + (best >> kRankBits), prefix, 0, rank, own.depth + 1};
  return true;
}

int LatticeTreeSearch::run(const Models& models, const Sausage& sausage, const States& start, TreeOutput out) {
  clear(out);
  const int length = sausage.length();
  if (length == 0) return 0;
  models_ = &models;
  sausage_ = &sausage;
  width_ = sausage.width;
  read_slots(sausage, slots_);
  opened_.assign(1, {});
  for (int j = 0; j < models.size(); ++j) opened_[0].nodes[j] = compositions_[j].start(*models.lm[j], slots_, width_, start[j]);
  return best_.run(
      length, out, [&](uint32_t prefix, const Child& child) { open(prefix, child); },
      [&](uint32_t prefix, Child& child) { return next(prefix, child); },
      [&](const Child& child) { return sausage.slot_ids(child.depth - 1)[child.rank]; });
}

}  // namespace rescore
