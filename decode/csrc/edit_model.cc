#include "edit_model.h"

#include <algorithm>
#include <cmath>

namespace rescore {
namespace {

constexpr double kSurest = 30;            // of the logit of a share
constexpr double kFaint = 1e-6;           // places of less weight are dropped
constexpr double kBefore = 0.2;           // weight of a text that begins with something else
constexpr double kSure = 0.5;             // weight of a place whose next token is copied or replaced
constexpr double kTrust = 4, kDoubt = 8;  // copies as which a new token counts, and each replacement against it
constexpr size_t kMany = 64;              // places behind a pair of tokens, from which the pair says nothing

uint64_t pair_of(uint32_t before, uint32_t token) { return static_cast<uint64_t>(before) << 32 | token; }

}  // namespace

EditModel::EditModel(const int32_t* tokens, size_t length, const Arcs& arcs, const Share& share)
    : tokens_(tokens, tokens + length),
      arcs_(arcs),
      share_(share),
      copy_(1 - arcs.replaced - arcs.inserted - arcs.left) {
  double ways = 1, worth = 1;
  for (int removed = 1; removed <= kRemoved; ++removed) ways += worth *= arcs.removed;
  copy_ /= ways;
  for (size_t at = 2; at <= length; ++at)
    pairs_.push_back({pair_of(tokens_[at - 2], tokens_[at - 1]), static_cast<uint32_t>(at)});
  std::sort(pairs_.begin(), pairs_.end());
  for (const uint32_t token : tokens_) greatest_ = std::max(greatest_, token);
  state_.places[0] = {0, 1 - kBefore};
  state_.count = 1;
  state_.away = kBefore;
}

EditModel::State EditModel::step(const State& state, uint32_t token) const {
  std::vector<Place> reached;
  reached.reserve(kPlaces * 4 + kMany);
  const double any = arcs_.other;
  double away = state.away * any;
  for (int i = 0; i < state.count; ++i) {
    const auto& [at, weight] = state.places[i];
    double worth = weight * copy_;
    for (uint32_t from = at, removed = 0; from < tokens_.size() && removed <= kRemoved; ++from, ++removed) {
      if (tokens_[from] == token) reached.push_back({from + 1, worth});
      worth *= arcs_.removed;
    }
    if (at < tokens_.size()) reached.push_back({at + 1, weight * arcs_.replaced * any});
    reached.push_back({at, weight * arcs_.inserted * any});
    away += weight * arcs_.left * any;
  }
  if (state.last != kNone) {
    const uint64_t pair = pair_of(state.last, token);
    const auto first = std::lower_bound(pairs_.begin(), pairs_.end(), Pair{pair, 0});
    const auto last = std::lower_bound(first, pairs_.end(), Pair{pair + 1, 0});
    const size_t many = last - first;
    if (many <= kMany)
      for (auto one = first; one != last; ++one) reached.push_back({one->second, arcs_.jumped * any / many});
  }
  std::sort(reached.begin(), reached.end(), [](const Place& a, const Place& b) { return a.at < b.at; });
  size_t kept = 0;
  for (const Place& place : reached) {
    if (kept && reached[kept - 1].at == place.at)
      reached[kept - 1].weight += place.weight;
    else
      reached[kept++] = place;
  }
  reached.resize(kept);
  std::stable_sort(reached.begin(), reached.end(), [](const Place& a, const Place& b) { return a.weight > b.weight; });
  State next;
  next.last = token;
  double sum = away;
  for (const Place& place : reached) {
    if (next.count == kPlaces || place.weight < kFaint * reached.front().weight) break;
    next.places[next.count++] = place;
    sum += place.weight;
  }
  for (int i = 0; i < next.count; ++i) next.places[i].weight /= sum;
  next.away = away / sum;
  return next;
}

void EditModel::extend(uint32_t token) {
  const Place& best = state_.places[0];
  if (best.weight > kSure && best.at < tokens_.size()) {
    Fate& fate = fates_[tokens_[best.at]];
    ++(tokens_[best.at] == token ? fate.copied : fate.replaced);
  }
  state_ = step(state_, token);
}

double EditModel::trust(uint32_t token) const {
  const auto found = fates_.find(token);
  if (found == fates_.end()) return 1;
  const double copied = kTrust + found->second.copied;
  return copied / (copied + kDoubt * found->second.replaced);
}

double EditModel::share_of(const State& state) const {
  const double logit = share_.constant + share_.of_weight * std::log(state.places[0].weight);
  return 1 / (1 + std::exp(-std::clamp(logit, -kSurest, kSurest)));
}

}  // namespace rescore
