#include "open_tree.h"

#include <algorithm>
#include <cmath>

#include "log_sum.h"

namespace rescore {
namespace {

constexpr uint64_t kBlock = 64;  // costs of a list compared at once
constexpr double kSlack = 1e-5;  // nats, for rounding where a bound only saves work

// The cost of a token outside a slot's candidates if all such shared the mass that they leave.
double rest_cost(const Sausage& sausage, int t, uint32_t vocab_size) {
  const int count = sausage.candidates(t);
  double mass = 1;
  for (int rank = 0; rank < count; ++rank) mass -= std::exp(-static_cast<double>(sausage.slot_cost(t)[rank]));
  return std::log(std::max<double>(vocab_size - count, 1) / std::max(mass, kLeastMass));
}

}  // namespace

int OpenTreeSearch::run(const Automaton& lm, uint32_t start, const Sausage& sausage, const OpenWeights& weights,
                        bool open, const ContextModel* text, const double* strength, TreeOutput out) {
  const int length = open ? sausage.slots : sausage.length();
  lm_ = &lm;
  sausage_ = &sausage;
  weights_ = weights;
  open_ = open;
  text_ = text;
  strength_ = strength;
  nodes_ = out.nodes;
  for (int t = 0; t < length; ++t) {
    slots_[t].read(sausage, t);
    others_[t] = -weights.head[t] * rest_cost(sausage, t, lm.vocab_size) - weights.floor[t];
  }
  cache_.clear();
  children_.clear();
  arcs_.clear();
  least_.clear();
  opened_.clear();
  best_.begin(length, out, 1);
  const auto next = [this](uint32_t number, Offer& offer) { return children_.next(number, offer); };
  const auto token = [](int, const Offer& offer) { return static_cast<int32_t>(offer.rank); };
  while (best_.advance(next, token)) {
    const auto& [number, parent, offer, depth] = best_.openings().front();
    opened_.push_back({});
    opened_[number].state = number ? lm.next(opened_[parent].state, arcs_[offer.place], offer.rank) : start;
    if (text) opened_[number].context = number ? text->step(opened_[parent].context, offer.rank) : text->state();
    this->open(best_.openings().front());
  }
  return best_.found();
}

// The children of a prefix that may belong to the tree, sorted. What costs more than the n least costs of all children
// seen so far cannot: long lists are so read in one pass that keeps few of their entries.
void OpenTreeSearch::open(const Opening& opening) {
  cost_ = opening.offer.cost;
  state_ = opened_[opening.number].state;
  slot_ = opening.depth;
  proposals_.clear();
  read_text(opened_[opening.number].context);
  weigh_candidates();
  if (open_) {
    propose_followers();
    propose_arcs();
    propose_frequent();
  }
  keep_best();
}

void OpenTreeSearch::read_text(uint32_t context) {
  followers_.clear();
  rest_ = 1;
  common_ = 0;
  if (!text_) return;
  const ContextModel::Mixture mixture = text_->mixture(context, strength_);
  rest_ = mixture.rest;
  for (int i = 0; i < mixture.size; ++i) {
    const ContextModel::Mixture::Part part = mixture.parts[i];
    if (part.state == ContextModel::kEmpty)
      common_ = part.worth;
    else
      text_->followers(part.state,
                       [&](uint32_t token, uint32_t count) { followers_.push_back({token, part.worth * count}); });
  }
  // One entry for each token, its occurrences in the whole text included.
  std::sort(followers_.begin(), followers_.end());
  size_t kept = 0;
  for (size_t i = 0; i < followers_.size(); ++i) {
    if (kept && followers_[kept - 1].first == followers_[i].first)
      followers_[kept - 1].second += followers_[i].second;
    else
      followers_[kept++] = {followers_[i].first,
                            followers_[i].second + common_ * text_->count(ContextModel::kEmpty, followers_[i].first)};
  }
  followers_.resize(kept);
}

// What the text says of a token: its share of p.
double OpenTreeSearch::seen(uint32_t token) const {
  if (!text_) return 0;
  const auto found = std::lower_bound(followers_.begin(), followers_.end(), std::pair<uint32_t, double>{token, 0});
  if (found != followers_.end() && found->first == token) return found->second;
  return common_ > 0 ? common_ * text_->count(ContextModel::kEmpty, token) : 0;
}

double OpenTreeSearch::log_p(double seen, double lm_cost) const {
  return seen > 0 ? std::log(seen + rest_ * std::exp(-lm_cost)) : std::log(rest_) - lm_cost;
}

void OpenTreeSearch::weigh_candidates() {
  const Slot& slot = slots_[slot_];
  std::array<uint64_t, kMaxCandidates> arc;
  std::array<double, kMaxCandidates> lm_cost;
  CostRow cost;
  cost.fill(INFINITY);
  cache_.match(*lm_, state_, slot, slot_, arc.data(), lm_cost.data());
  double listed = 0;
  for (int i = 0; i < slot.count; ++i) {
    const double logp = log_p(seen(slot.tokens[i]), lm_cost[i]);
    listed += std::exp(logp);
    cost[i] = weights_.head[slot_] * sausage_->slot_cost(slot_)[slot.rank[i]] -
              weights_.prior[slot_] * std::min<double>(lm_->cost(slot.tokens[i]), kRarest) - weights_.lm[slot_] * logp;
  }
  cost[slot.count] = -others_[slot_] - std::log(std::max(1 - listed, kLeastMass));
  const double total = log_sum(cost.data(), slot.count + 1);
  scale_ = others_[slot_] + total;
  for (int i = 0; i < slot.count; ++i) propose(slot.tokens[i], arc[i], total - cost[i]);
}

void OpenTreeSearch::propose_followers() {
  for (const auto& [token, worth] : followers_) {
    if (is_candidate(token)) continue;
    const Taken taken = lm_->take(state_, token);
    propose(token, taken.arc, scale_ + log_p(worth, taken.cost));
  }
}

// Tokens of which the n-gram model's share of p suffices, all but half of what is needed: of other tokens the text's
// share must be more than that half, which is left to `propose_frequent`.
void OpenTreeSearch::propose_arcs() {
  contexts_.clear();
  proposed_.clear();
  const double most_seen = common_ > 0 ? common_ * text_->count(ContextModel::kEmpty, text_->by_count().front()) : 0;
  double limit = 0;  // of the n-gram model's cost, backing off included
  const auto update = [&] {
    const double p = needed(), of_model = most_seen < p / 2 ? p - most_seen : p / 2;
    limit = of_model > 0 ? std::log(rest_ / of_model) + kSlack : INFINITY;
  };
  double paid = 0;
  const auto offer = [&](uint64_t arc, uint32_t token, float arc_cost) {
    if (is_candidate(token) || is_follower(token)) return;
    for (const Automaton::Arcs longer : contexts_)  // one of which hides this one
      if (lm_->has_arc(longer, token)) return;
    const double of_text = seen(token);
    if (of_text > 0) proposed_.push_back(token);
    propose(token, arc, scale_ + log_p(of_text, paid + arc_cost));
    update();
  };
  update();
  uint32_t state = state_;
  for (; state != kRoot; state = lm_->backoff(state)) {
    const Automaton::Arcs arcs = lm_->arcs(state);
    const StateLevel& level = lm_->level(lm_->length(state));
    for (uint64_t begin = arcs.begin; begin < arcs.end; begin += kBlock) {
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
    if (!(paid + lm_->cost(token) <= limit)) break;
    offer(token, token, lm_->cost(token));
  }
}

// Tokens of which the text's share of p is at least half of what is needed.
void OpenTreeSearch::propose_frequent() {
  if (!(common_ > 0)) return;
  std::sort(proposed_.begin(), proposed_.end());
  for (const uint32_t token : text_->by_count()) {
    const double of_text = common_ * text_->count(ContextModel::kEmpty, token);
    if (of_text < needed() / 2) return;
    if (is_candidate(token) || is_follower(token) || std::binary_search(proposed_.begin(), proposed_.end(), token))
      continue;
    const Taken taken = lm_->take(state_, token);
    propose(token, taken.arc, scale_ + log_p(of_text, taken.cost));
  }
}

// The least p with which a token outside the candidates may be among the n best.
double OpenTreeSearch::needed() const {
  if (least_.size() < nodes_) return 0;
  return std::exp(-static_cast<double>(least_.front() - cost_) / kFixedOne - scale_ - kSlack);
}

void OpenTreeSearch::propose(uint32_t token, uint64_t arc, double logq) {
  const Fixed step = to_fixed(std::max(-logq, 0.0));
  if (step >= kImpossible) return;
  const Fixed total = cost_ + step;
  if (least_.size() == nodes_) {
    if (total > least_.front()) return;
    std::pop_heap(least_.begin(), least_.end());
    least_.pop_back();
  }
  proposals_.push_back({total, token, arc});
  least_.push_back(total);
  std::push_heap(least_.begin(), least_.end());
}

void OpenTreeSearch::keep_best() {
  std::sort(proposals_.begin(), proposals_.end(), [](const Proposal& a, const Proposal& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.token < b.token;
  });
  for (const Proposal& best : proposals_) {
    if (best.cost > least_.front() && least_.size() == nodes_) break;
    children_.offers.push_back({best.cost, best.token, static_cast<uint32_t>(arcs_.size())});
    arcs_.push_back(best.arc);
  }
  children_.end_prefix();
}

bool OpenTreeSearch::is_candidate(uint32_t token) const {
  const Slot& slot = slots_[slot_];
  return slot.tokens.find(token) != TokenSet::kMissing;
}

bool OpenTreeSearch::is_follower(uint32_t token) const {
  const auto found = std::lower_bound(followers_.begin(), followers_.end(), std::pair<uint32_t, double>{token, 0});
  return found != followers_.end() && found->first == token;
}

}  // namespace rescore
