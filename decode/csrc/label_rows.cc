#include "label_rows.h"

#include <algorithm>
#include <array>
#include <numeric>

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
  reads_all_ = order_.empty() || order_[0] >= 0;
  if (!reads_all_) order_.erase(order_.begin());
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
}

// Contexts, lists of arcs and arcs are each read for all rows at once, so that many loads are under way.
void LabelRows::fill() {
  read_contexts();
  weight_.resize(rows_.size() * width_);
  next_.resize(rows_.size() * width_);
  own_.resize(rows_.size() * sets_.size());
  matches_.clear();
  for (size_t begin = 0, end; begin < by_length_.size(); begin = end) {
    for (end = begin; end < by_length_.size() && rows_[by_length_[end]].length == rows_[by_length_[begin]].length;)
      ++end;
    match(begin, end);
  }
  const Match* match = matches_.data();
  for (const uint32_t row : by_length_) fill(row, match);
}

// Adds the rows that others back off to, and sorts all by the length of their contexts.
void LabelRows::read_contexts() {
  rows_.clear();
  for (uint32_t row = 0; row < states_.size(); ++row) {
    const uint32_t state = states_.states(row)[0];
    if (state == kRoot) {
      rows_.push_back({});
      continue;
    }
    const Automaton::Context context = lm_->context(state);
    const auto index = static_cast<uint32_t>(state - lm_->level(context.length).first_state);
    rows_.emplace_back(this->row(context.backoff), context.length, index, context.backoff_cost);
  }
  std::array<uint32_t, kMaxOrder + 1> next{};
  for (const Row& row : rows_) ++next[row.length + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  by_length_.resize(rows_.size());
  for (uint32_t row = 0; row < rows_.size(); ++row) by_length_[next[rows_[row].length]++] = row;
}

// Finds the arcs of states of one length. They have some only for tokens that have arcs in the next shorter context.
void LabelRows::match(size_t begin, size_t end) {
  for (size_t n = begin; n < end; ++n) {
    const uint32_t row = by_length_[n];
    Row& one = rows_[row];
    if (!one.length) {
      for (size_t s = 0; s < sets_.size(); ++s) own(row)[s] = sets_[s].all();
      continue;
    }
    one.list = lm_->list(one.length, one.index);
    for (size_t s = 0; s < sets_.size(); ++s)
      if (own(one.shorter)[s]) lm_->prefetch_list(one.length, one.list, sets_[s]);
  }
  for (size_t n = begin; n < end; ++n) {
    if (rows_[by_length_[n]].length) match(by_length_[n]);
    rows_[by_length_[n]].matches = matches_.size();
  }
}

void LabelRows::match(uint32_t row) {
  const Row& one = rows_[row];
  std::array<uint32_t, kMaxCandidates + kMatchStep> arc, at;
  for (size_t s = 0; s < sets_.size(); ++s) {
    const uint64_t wanted = own(one.shorter)[s];
    own(row)[s] = 0;
    if (!wanted) continue;
    const PackedMatches out{arc.data(), at.data(), one.list.begin, 0};
    const uint64_t found = own(row)[s] = lm_->match(one.length, one.list, sets_[s], wanted, out);
    for (int n = 0, count = count_ones(found); n < count; ++n) {
      lm_->prefetch_arc(one.length, arc[n]);
      matches_.emplace_back(1 + static_cast<uint32_t>(s) * kMaxCandidates + at[n], arc[n]);
    }
  }
}

void LabelRows::fill_root(uint32_t row) {
  for (uint32_t i = 1; i < width_; ++i) {
    const auto token = static_cast<uint32_t>(order_[i - 1]);
    weight_[row * width_ + i] = weighed(lm_->cost(0, token), greatest_arc_);
    next_[row * width_ + i] = lm_->longer(0, token, token);
  }
}

void LabelRows::fill(uint32_t row, const Match*& match) {
  Row& one = rows_[row];
  Fixed* weight = &weight_[row * width_];
  uint32_t* next = &next_[row * width_];
  weight[0] = 0;
  next[0] = state(row);
  one.settled = row;
  if (!one.length) return fill_root(row);
  const Row& shorter = rows_[one.shorter];
  const Fixed failure = std::min(shorter.paid + weighed(one.backoff, greatest_failure_), kImpossible);
  if (reads_all_ && match == matches_.data() + one.matches) {
    one.settled = shorter.settled;
    one.paid = failure;
    return;
  }
  for (uint32_t i = 1; i < width_; ++i) {
    weight[i] = std::min(weight_[shorter.settled * width_ + i] + failure, kImpossible);
    next[i] = next_[shorter.settled * width_ + i];
  }
  for (; match != matches_.data() + one.matches; ++match) {
    weight[match->place] = weighed(lm_->level(one.length).records.cost(match->arc), greatest_arc_);
    const uint32_t longer = lm_->longer(one.length, match->arc, static_cast<uint32_t>(order_[match->place - 1]));
    if (longer != kRoot) next[match->place] = longer;
  }
}

Fixed LabelRows::weighed(double cost, double& greatest) const {
  const Fixed weight = round_weight(alpha_ * cost);
  if (possible(weight)) greatest = std::max(greatest, std::fabs(static_cast<double>(weight)));
  return weight;
}

}  // namespace rescore
