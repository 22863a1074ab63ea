#include "label_rows.h"

#include <algorithm>
#include <array>

namespace rescore {

void LabelRows::clear(const Automaton& lm, double alpha) {
  lm_ = &lm;
  alpha_ = alpha * kFixedOne;
  greatest_arc_ = greatest_failure_ = 0;
  weight_.clear();
  next_.clear();
}

void LabelRows::begin(const int32_t* labels, size_t count, uint32_t* place) {
  order_.assign(labels, labels + count);
  std::sort(order_.begin(), order_.end());
  order_.erase(std::unique(order_.begin(), order_.end()), order_.end());
  if (!order_.empty() && order_[0] < 0) order_.erase(order_.begin());
  for (size_t i = 0; i < count; ++i)
    place[i] = labels[i] < 0 ? 0 : 1 + (std::lower_bound(order_.begin(), order_.end(), labels[i]) - order_.begin());
  sets_.resize((order_.size() + kMaxCandidates - 1) / kMaxCandidates);
  std::array<uint8_t, kMaxCandidates> same;
  for (size_t s = 0; s < sets_.size(); ++s)
    sets_[s].assign(&order_[s * kMaxCandidates],
                    static_cast<int>(std::min<size_t>(order_.size() - s * kMaxCandidates, kMaxCandidates)),
                    same.data());
  first_ = static_cast<uint32_t>(next_.size());
  width_ = static_cast<uint32_t>(order_.size() + 1);
  own_.clear();
  rows_.clear();
  matches_.clear();
  count_ = 0;
  if (++begun_ == 0) table_.assign(table_.size(), {0, 0, 0}), begun_ = 1;
}

void LabelRows::prefetch(uint32_t state) const {
  if (state == kRoot || sets_.empty()) return;
  const uint32_t l = lm_->length(state);
  lm_->prefetch_list(l, lm_->list(l, static_cast<uint32_t>(state - lm_->level(l).first_state)), sets_[0]);
}

uint32_t LabelRows::row(uint32_t state) {
  if (!table_.empty())
    if (const Known& known = table_[probe(state)]; known.begun == begun_) return known.row;
  uint32_t row;
  if (state == kRoot) {
    fill_root(row = add(state));
  } else {
    const Automaton::Context context = lm_->context(state);
    const uint32_t shorter = this->row(context.backoff);
    row = add(state);
    match(row, shorter, context.length, static_cast<uint32_t>(state - lm_->level(context.length).first_state));
    rows_.push_back({row, shorter, context.length, context.backoff_cost, matches_.size()});
  }
  note(state, row);
  return row;
}

uint32_t LabelRows::add(uint32_t state) {
  const auto row = static_cast<uint32_t>(next_.size());
  weight_.resize(row + width_);
  next_.resize(row + width_);
  own_.resize(own_.size() + sets_.size());
  weight_[row] = 0;
  next_[row] = state;
  return row;
}

void LabelRows::fill_root(uint32_t row) {
  for (uint32_t i = 1; i < width_; ++i) {
    const auto token = static_cast<uint32_t>(order_[i - 1]);
    weight_[row + i] = weighed(lm_->cost(0, token), greatest_arc_);
    next_[row + i] = lm_->longer(0, token, token);
  }
  for (size_t s = 0; s < sets_.size(); ++s) own(row)[s] = sets_[s].all();
}

// Finds the arcs of a state. It has some only for tokens that have arcs in the next shorter context.
void LabelRows::match(uint32_t row, uint32_t shorter, uint32_t length, uint32_t index) {
  std::array<uint32_t, kMaxCandidates + kMatchStep> arc, at;
  for (size_t s = 0; s < sets_.size(); ++s) {
    const uint64_t wanted = own(shorter)[s];
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
    for (uint32_t i = 1; i < width_; ++i) {
      weight_[one.row + i] = std::min(weight_[one.shorter + i] + failure, kImpossible);
      next_[one.row + i] = next_[one.shorter + i];
    }
    for (; match != matches_.data() + one.matches; ++match) {
      weight_[one.row + match->place] = weighed(lm_->level(one.length).records.cost(match->arc), greatest_arc_);
      const uint32_t longer = lm_->longer(one.length, match->arc, static_cast<uint32_t>(order_[match->place - 1]));
      if (longer != kRoot) next_[one.row + match->place] = longer;
    }
  }
}

Fixed LabelRows::weighed(double cost, double& greatest) const {
  const Fixed weight = round_weight(alpha_ * cost);
  if (possible(weight)) greatest = std::max(greatest, std::fabs(static_cast<double>(weight)));
  return weight;
}

void LabelRows::note(uint32_t state, uint32_t row) {
  if (2 * ++count_ > table_.size()) {
    std::vector<Known> before(std::max<size_t>(64, 2 * table_.size()), Known{0, 0, 0});
    before.swap(table_);
    for (const Known& one : before)
      if (one.begun == begun_) table_[probe(one.state)] = one;
  }
  table_[probe(state)] = {state, row, begun_};
}

size_t LabelRows::probe(uint32_t state) const {
  const size_t mask = table_.size() - 1;
  size_t at = (state * uint64_t{0x9E3779B97F4A7C15} >> 32) & mask;
  while (table_[at].begun == begun_ && table_[at].state != state) at = (at + 1) & mask;
  return at;
}

}  // namespace rescore
