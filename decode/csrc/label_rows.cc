#include "label_rows.h"

#include <algorithm>
#include <array>

namespace rescore {

void LabelRows::use(const Automaton& lm, double alpha) {
  lm_ = &lm;
  alpha_ = alpha * kFixedOne;
  greatest_arc_ = greatest_failure_ = 0;
}

void LabelRows::begin(const int32_t* labels, size_t count) {
  order_.assign(labels, labels + count);
  std::sort(order_.begin(), order_.end());
  order_.erase(std::unique(order_.begin(), order_.end()), order_.end());
  if (!order_.empty() && order_[0] < 0) order_.erase(order_.begin());
  place_.resize(count);
  for (size_t i = 0; i < count; ++i)
    place_[i] = labels[i] < 0 ? 0 : 1 + (std::lower_bound(order_.begin(), order_.end(), labels[i]) - order_.begin());
  sets_.resize((order_.size() + kMaxCandidates - 1) / kMaxCandidates);
  std::array<uint8_t, kMaxCandidates> same;
  for (size_t s = 0; s < sets_.size(); ++s)
    sets_[s].assign(&order_[s * kMaxCandidates],
                    static_cast<int>(std::min<size_t>(order_.size() - s * kMaxCandidates, kMaxCandidates)),
                    same.data());
  width_ = static_cast<uint32_t>(order_.size() + 1);
  states_.clear(1);
  states_.begin();
  rows_.clear();
  matches_.clear();
}

uint32_t LabelRows::row(uint32_t state) {
  const uint32_t known = states_.size(), row = states_.intern({state});
  if (row < known) return row;
  weight_.resize(states_.size() * width_);
  next_.resize(states_.size() * width_);
  own_.resize(states_.size() * sets_.size());
  weight_[row * width_] = 0;
  next_[row * width_] = state;
  if (state == kRoot) {
    fill_root(row);
    return row;
  }
  const Automaton::Context context = lm_->context(state);
  const uint32_t shorter = this->row(context.backoff);
  match(row, shorter, context.length, static_cast<uint32_t>(state - lm_->level(context.length).first_state));
  rows_.push_back({row, shorter, context.length, context.backoff_cost, matches_.size()});
  return row;
}

void LabelRows::fill_root(uint32_t row) {
  for (uint32_t i = 1; i < width_; ++i) {
    const auto token = static_cast<uint32_t>(order_[i - 1]);
    weight_[row * width_ + i] = weighed(lm_->cost(0, token), greatest_arc_);
    next_[row * width_ + i] = lm_->longer(0, token, token);
  }
  for (size_t s = 0; s < sets_.size(); ++s) own(row)[s] = sets_[s].all();
}

// Finds the arcs of a state. It has some only for tokens that have arcs in the next shorter context.
void LabelRows::match(uint32_t row, uint32_t shorter, uint32_t length, uint32_t index) {
  std::array<uint32_t, kMaxCandidates + kMatchStep> arc, at;
  for (size_t s = 0; s < sets_.size(); ++s) {
    const uint64_t wanted = own(shorter)[s];
    own(row)[s] = 0;
    if (!wanted) continue;
    const Automaton::List list = lm_->list(length, index);
    const uint64_t found =
        lm_->match(length, list, sets_[s], wanted, PackedMatches{arc.data(), at.data(), list.begin, 0});
    own(row)[s] = found;
    for (int n = 0, count = count_ones(found); n < count; ++n) {
      lm_->prefetch_arc(length, arc[n]);
      matches_.push_back({1 + static_cast<uint32_t>(s) * kMaxCandidates + at[n], arc[n]});
    }
  }
}

// Rows are begun after those that they back off to.
void LabelRows::fill() {
  const Match* match = matches_.data();
  for (const Begun& one : rows_) {
    const Fixed failure = weighed(one.backoff, greatest_failure_);
    Fixed* weight = &weight_[one.row * width_];
    uint32_t* next = &next_[one.row * width_];
    for (uint32_t i = 1; i < width_; ++i) {
      weight[i] = std::min(weight_[one.shorter * width_ + i] + failure, kImpossible);
      next[i] = next_[one.shorter * width_ + i];
    }
    for (; match != matches_.data() + one.matches; ++match) {
      weight[match->place] = weighed(lm_->level(one.length).records.cost(match->arc), greatest_arc_);
      const uint32_t longer = lm_->longer(one.length, match->arc, static_cast<uint32_t>(order_[match->place - 1]));
      if (longer != kRoot) next[match->place] = longer;
    }
  }
}

Fixed LabelRows::weighed(double cost, double& greatest) const {
  const Fixed weight = round_weight(alpha_ * cost);
  if (possible(weight)) greatest = std::max(greatest, std::fabs(static_cast<double>(weight)));
  return weight;
}

}  // namespace rescore
