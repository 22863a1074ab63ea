#include "best_tree.h"

#include <algorithm>
#include <cmath>

namespace rescore {
namespace {

constexpr uint64_t kBlock = 64;     // costs of a list compared at once
constexpr int kFew = 64;            // tokens of a long list
constexpr double kFlat = 1.0 / 16;  // the model's part if a long list is flat
constexpr uint32_t kNoState = UINT32_MAX;
constexpr double kSlack = 1e-5;  // nats of rounding, where a bound only saves work

// The cost of a token outside a slot's candidates, with the mass that they leave spread evenly.
double rest_cost(const Sausage& sausage, int t, uint32_t vocab_size) {
  const int count = sausage.candidates(t);
  double mass = 1;
  for (int rank = 0; rank < count; ++rank) mass -= std::exp(-static_cast<double>(sausage.slot_cost(t)[rank]));
  return std::log(std::max<double>(vocab_size - count, 1) / std::max(mass, kLeastMass));
}

}  // namespace

void TreeSearch::begin(const Automaton& lm, uint32_t start, const Sausage& sausage, const SlotWeights& weights,
                       bool open, const TextSource* texts, int text_count, const EditModel* expected, int depth,
                       double least, TreeOutput out, size_t few) {
  lm_ = &lm;
  sausage_ = sausage;
  weights_ = weights;
  open_ = open;
  start_ = start;
  few_ = few;
  texts_ = texts;
  text_count_ = text_count;
  expected_ = expected;
  blend_.begin(texts, text_count, expected);
  nodes_ = out.nodes;
  length_ = sausage.length();
  if (slots_.size() < static_cast<size_t>(length_) + 1) {
    slots_.resize(length_ + 1);
    others_.resize(length_ + 1);
    fixed_.resize(length_ + 1);
  }
  for (int t = 0; t < length_; ++t) {
    const Slot& slot = slots_[t];
    slots_[t].read(sausage, t);
    for (int i = 0; i < slot.count; ++i) {
      fixed_[t][i] = weights.head[t] * sausage.slot_cost(t)[slot.rank[i]];
      if (weights.prior[t]) fixed_[t][i] -= weights.prior[t] * std::min<double>(lm.cost(0, slot.tokens[i]), kRarest);
    }
    others_[t] = weights.floor[t] < kNothing
                     ? -weights.head[t] * rest_cost(sausage, t, lm.vocab_size) - weights.floor[t]
                     : -INFINITY;
  }
  slots_[length_] = {};
  cache_.clear(sausage.width);
  children_.clear();
  least_.clear();
  if (least > 0) least_.assign(nodes_, to_fixed(std::max(-std::log(least), 0.0)));
  opened_.clear();
  edits_.clear();
  best_.begin(open || sausage.next ? depth : std::min(depth, length_), out);
}

bool TreeSearch::advance() {
  return best_.advance([this](int, const Offer& offer) { return static_cast<int32_t>(children_[offer.place].token); });
}

// Computes the sorted children of a prefix that may belong to the tree. Children that cost more than the n least costs
// of all children so far cannot, so one pass over a long list keeps few of its entries.
void TreeSearch::open(const Allowed& allowed) {
  const auto& [number, parent, offer, depth] = opening();
  const auto [arc, token, state] = number ? children_[offer.place] : Child{0, 0, start_};
  opened_.push_back({});
  opened_[number].state = state != kNoState ? state : lm_->next(opened_[parent].state, arc, token);
  for (int i = 0; i < text_count_; ++i)
    opened_[number].texts[i] = number ? texts_[i].text->step(opened_[parent].texts[i], token) : texts_[i].state;
  if (expected_) edits_.push_back(number ? expected_->step(edits_[parent], token) : expected_->state());
  opened_[number].slot = number ? slot_behind(opened_[parent].slot, token) : 0;
  allowed_ = allowed;
  cost_ = offer.cost;
  state_ = opened_[number].state;
  slot_ = opened_[number].slot;
  proposals_.clear();
  if (allowed_.only != Allowed::kSeveral) {
    propose_only();
    return keep_best();
  }
  if (reads_texts()) blend_.read(opened_[number].texts.data(), expected_ ? &edits_[number] : nullptr);
  weigh_candidates();
  if (allowed_.words && allowed_.count <= few_) {
    propose_few();
  } else {
    const double of_allowed = allowed_.words ? log_allowed() : 0;
    scale_ -= of_allowed;
    propose_candidates(of_allowed);
    if (open_ && scale_ > -INFINITY) {
      propose_listed();
      find_sources();
      propose_arcs();
      propose_frequent();
    }
  }
  keep_best();
}

int TreeSearch::slot_behind(int slot, uint32_t token) const {
  if (slot == length_ || !sausage_.next) return std::min(slot + 1, length_);
  const int place = slots_[slot].tokens.find(token);
  if (place == TokenSet::kMissing) return length_;
  const int32_t next = sausage_.next[static_cast<int64_t>(slot) * sausage_.width + slots_[slot].rank[place]];
  return next < 0 ? length_ : next;
}

void TreeSearch::propose_candidates(double of_allowed) {
  const Slot& slot = slots_[slot_];
  const double least = least_.size() < nodes_ ? -INFINITY : -(least_.front() - cost_) / kFixedOne - kSlack;
  for (int i = 0; i < slot.count; ++i)
    if (const double logq = logq_[i] - of_allowed; logq >= least) propose(slot.tokens[i], arc_[i], logq);
}

// Proposes the only token that is allowed.
void TreeSearch::propose_only() {
  if (open_ || is_candidate(allowed_.only)) propose(allowed_.only, lm_->take(state_, allowed_.only).arc, 0);
}

// Proposes all tokens that are allowed, under q summed over them.
void TreeSearch::propose_few() {
  struct Candidate {
    uint32_t token;
    uint64_t arc;
    double logq;
  };
  std::vector<Candidate> found;
  double most = -INFINITY, sum = 0;
  for (size_t word = 0; word < allowed_.size; ++word) {
    for (uint32_t bits = allowed_.words[word]; bits; bits &= bits - 1) {
      const uint32_t token = static_cast<uint32_t>(32 * word + __builtin_ctz(bits));
      if (token >= lm_->vocab_size) break;
      if (const int place = slots_[slot_].tokens.find(token); place != TokenSet::kMissing) {
        found.push_back({token, arc_[place], logq_[place]});
      } else {
        const Taken taken = lm_->take(state_, token);
        found.push_back({token, taken.arc, scale_ + log_p(reads_texts() ? blend_.share(token) : 0, taken.cost)});
      }
      most = std::max(most, found.back().logq);
    }
  }
  for (const Candidate& one : found) sum += std::exp(one.logq - most);
  for (const auto& [token, arc, logq] : found)
    if (open_ || is_candidate(token)) propose(token, arc, found.size() == 1 ? 0 : logq - most - std::log(sum));
}

// ln q(A): what the candidates in A have if others have nothing, else all but what the candidates and the listed tokens
// outside A have.
double TreeSearch::log_allowed() const {
  const Slot& slot = slots_[slot_];
  if (scale_ == -INFINITY) {
    CostRow cost;
    cost.fill(INFINITY);
    for (int i = 0; i < slot.count; ++i)
      if (allowed_.has(slot.tokens[i])) cost[i] = -logq_[i];
    return -log_sum(cost.data(), slot.count);
  }
  double mass = 1;
  for (int i = 0; i < slot.count; ++i)
    if (!allowed_.has(slot.tokens[i])) mass -= std::exp(logq_[i]);
  for (const auto& [token, share] : blend_.listed())
    if (!allowed_.has(token) && !is_candidate(token))
      mass -= std::exp(scale_ + log_p(share, lm_->take(state_, token).cost));
  return std::log(std::max(mass, kLeastMass));
}

double TreeSearch::log_p(double seen, double lm_cost) const {
  return seen > 0 ? std::log(seen + blend_.rest() * std::exp(-lm_cost)) : std::log(blend_.rest()) - lm_cost;
}

void TreeSearch::weigh_candidates() {
  const Slot& slot = slots_[slot_];
  scale_ = 0;
  if (!slot.count) return;
  std::array<double, kMaxCandidates> lm_cost;
  CostRow cost;
  std::fill_n(cost.begin() + slot.count, kRowStep, INFINITY);
  cache_.match(*lm_, state_, slot, slot_, arc_.data(), lm_cost.data());
  if (reads_texts() && weights_.late < 0)
    for (int i = 0; i < slot.count; ++i) lm_cost[i] = -log_p(blend_.share(slot.tokens[i]), lm_cost[i]);
  for (int i = 0; i < slot.count; ++i) cost[i] = fixed_[slot_][i] + weights_.lm[slot_] * lm_cost[i];
  if (others_[slot_] > -INFINITY) {
    double listed = 0;
    for (int i = 0; i < slot.count; ++i) listed += std::exp(-lm_cost[i]);
    cost[slot.count] = -others_[slot_] - std::log(std::max(1 - listed, kLeastMass));
  }
  const double total = log_sum(cost.data(), slot.count + (others_[slot_] > -INFINITY));
  scale_ = others_[slot_] + total;
  for (int i = 0; i < slot.count; ++i) logq_[i] = total - cost[i];
  if (!reads_texts() || weights_.late < 0) return;
  blend_.take(weights_.late, 1);
  for (int i = 0; i < slot.count; ++i) logq_[i] = log_p(blend_.share(slot.tokens[i]), -logq_[i]);
  scale_ = std::max(scale_, kLeastScale);
  blend_.take(1, std::exp(-scale_));
}

void TreeSearch::propose_listed() {
  double paid = 0, least = 0;  // backing off may pay in a model that is not normalised
  for (uint32_t state = state_; state != kRoot; state = lm_->backoff(state))
    least = std::min<double>(least, paid += lm_->backoff_cost(state));
  const double most = blend_.rest() * std::exp(-least);  // upper bound of the n-gram model's contribution
  for (const auto& [token, share] : blend_.listed()) {
    if (share + most < needed() || is_candidate(token)) continue;
    const Taken taken = lm_->take(state_, token);
    propose(token, taken.arc, scale_ + log_p(share, taken.cost));
  }
}

// Tokens outside the short lists get their probability from the n-gram model and the long lists. If a needed
// probability is divided among these sources, at least one of them must give its part, however it is divided. An
// unread token gets no more than its source's current maximum; if that is less than an even part, the other sources
// share the rest. Where a list is flat, reading it would yield hundreds of tokens to which the model gives next to
// nothing, so the model's part is small.
TreeSearch::Parts TreeSearch::parts() {
  const double p = needed(), even = p / (1 + most_.size());
  double left = p;
  int others = 1 + static_cast<int>(most_.size());
  const auto settle = [&](double part) {
    left -= part;
    --others;
  };
  for (const double most : most_)
    if (most < even) settle(most);
  const bool poor = model_most_ < even;
  if (poor || flat_) settle(poor ? model_most_ : p * kFlat);
  const double part = others ? left / others : even;
  return {poor ? INFINITY : flat_ ? p * kFlat : part, part};
}

void TreeSearch::find_sources() {
  most_.clear();
  for (int list = 0; list < blend_.long_lists(); ++list) most_.push_back(blend_.most(list));
  // Otherwise arcs are not sorted by cost, or a model that is not normalised may give any probability.
  model_most_ = INFINITY;
  if (state_ == kRoot) model_most_ = blend_.rest() * std::exp(-lm_->cost(0, lm_->by_unigram_cost().front()));
  proposed_.clear();
  sorted_ = 0;
  if (least_.size() < nodes_) propose_first();
  flat_ = false;
  const double even = needed() / (1 + most_.size());
  for (int list = 0; list < blend_.long_lists() && !flat_; ++list) flat_ = blend_.is_flat(list, even, kFew);
  if (flat_ && proposed_.empty()) propose_first();
  sort_proposed();
}

// Proposes tokens to which the model gives its part.
void TreeSearch::propose_arcs() {
  contexts_.clear();
  double limit = 0;  // on the n-gram model's cost, backing off included
  const auto update = [&] {
    const double part = parts().model;
    limit = part > 0 ? std::log(blend_.rest() / part) + kSlack : INFINITY;
  };
  double paid = 0;
  const auto offer = [&](uint64_t arc, uint32_t token, float arc_cost) {
    if (is_candidate(token) || blend_.is_listed(token) || is_proposed(token)) return;
    for (const Automaton::Arcs longer : contexts_)  // a longer context's arc hides this one
      if (lm_->has_arc(longer, token)) return;
    const double of_text = blend_.long_lists() ? blend_.share(token) : 0;
    if (of_text > 0) proposed_.push_back(token);
    propose(token, arc, scale_ + log_p(of_text, paid + arc_cost));
    update();
  };
  update();
  uint32_t state = state_;
  for (; state != kRoot; state = lm_->backoff(state)) {
    const Automaton::Arcs arcs = lm_->arcs(state);
    const StateLevel& level = lm_->level(lm_->length(state));
    // Of most states nothing need be read, since no cost is less than 0.
    for (uint64_t begin = limit < paid - kSlack ? arcs.end : arcs.begin; begin < arcs.end; begin += kBlock) {
      const float now = static_cast<float>(limit - paid + kSlack);
      for (uint64_t cheap = level.records.within(begin - level.first_arc, std::min(kBlock, arcs.end - begin), now);
           cheap; cheap &= cheap - 1) {
        const uint64_t arc = begin + __builtin_ctzll(cheap);
        const float cost = level.records.cost(arc - level.first_arc);
        if (paid + cost <= limit) offer(arc, lm_->checked_token(arc), cost);
      }
    }
    contexts_.push_back(arcs);
    paid += lm_->backoff_cost(state);
  }
  for (const uint32_t token : lm_->by_unigram_cost()) {
    if (!(paid + lm_->cost(0, token) <= limit)) break;
    offer(token, token, lm_->cost(0, token));
  }
}

// Proposes the first tokens of each long list: they tighten the bound on others, and on what the list can still give.
void TreeSearch::propose_first() {
  for (int list = 0; list < blend_.long_lists(); ++list) {
    sort_proposed();
    most_[list] = blend_.first(list, nodes_, [&](uint32_t token) { propose_frequent(token); });
  }
}

// Proposes tokens to which a long list gives its part.
void TreeSearch::propose_frequent() {
  for (int list = 0; list < blend_.long_lists(); ++list) {
    sort_proposed();
    blend_.frequent(list, [&] { return parts().list; }, [&](uint32_t token) { propose_frequent(token); });
  }
}

void TreeSearch::propose_frequent(uint32_t token) {
  if (is_candidate(token) || blend_.is_listed(token) || is_proposed(token)) return;
  proposed_.push_back(token);
  const Taken taken = lm_->take(state_, token);
  propose(token, taken.arc, scale_ + log_p(blend_.share(token), taken.cost));
}

void TreeSearch::sort_proposed() {
  std::sort(proposed_.begin(), proposed_.end());
  sorted_ = proposed_.size();
}

bool TreeSearch::is_proposed(uint32_t token) const {
  return std::binary_search(proposed_.begin(), proposed_.begin() + sorted_, token);
}

// The least p with which a token outside the candidates may be among the n best.
double TreeSearch::needed() {
  if (least_.size() < nodes_) return 0;
  const double logp = static_cast<double>(cost_ - least_.front()) / kFixedOne - scale_ - kSlack;
  if (logp != needed_.logp) needed_ = {logp, std::exp(logp)};  // asked for far more often than it changes
  return needed_.p;
}

void TreeSearch::propose(uint32_t token, uint64_t arc, double logq) {
  if (!allowed_.has(token)) return;
  const Fixed step = to_fixed(std::max(-logq, 0.0));
  if (step >= kImpossible) return;
  const Fixed total = cost_ + step;
  if (least_.size() == nodes_) {
    if (total > least_.front()) return;
    std::pop_heap(least_.begin(), least_.end());
    least_.pop_back();
  }
  proposals_.emplace_back(total, token, arc);
  least_.push_back(total);
  std::push_heap(least_.begin(), least_.end());
}

void TreeSearch::keep_best() {
  const size_t first = children_.size();
  std::sort(proposals_.begin(), proposals_.end(), [this](const Proposal& a, const Proposal& b) {
    return a.cost != b.cost ? a.cost < b.cost : order(a.token) < order(b.token);
  });
  for (const Proposal& best : proposals_) {
    if (best.cost > least_.front() && least_.size() == nodes_) break;
    best_.offer(best.cost, order(best.token), static_cast<uint32_t>(children_.size()));
    children_.emplace_back(best.arc, best.token, kNoState);
  }
  if (children_.size() > first) {  // the best child is likely to be opened soon
    Child& best = children_[first];
    best.state = lm_->next(state_, best.arc, best.token);
    lm_->prefetch_context(best.state);
  }
  best_.end_prefix();
}

uint32_t TreeSearch::order(uint32_t token) const {
  if (open_) return token;
  const Slot& slot = slots_[slot_];
  return slot.rank[slot.tokens.find(token)];
}

bool TreeSearch::is_candidate(uint32_t token) const {
  const Slot& slot = slots_[slot_];
  return slot.tokens.find(token) != TokenSet::kMissing;
}

}  // namespace rescore
