#include "context_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace rescore {
namespace {

constexpr double kSurest = 30;   // of the logit of a share, so that other tokens keep some mass
constexpr int kMostPlaces = 32;  // whose matches are compared

// Whether they are as `CountLists::fill` takes them.
bool can_fill(const std::vector<CountLists::Entry>& entries) {
  if (entries.empty() || entries.size() > CountLists::kShort) return false;
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].count > entries[i - 1].count) return false;
    for (size_t j = 0; j < i; ++j)
      if (entries[j].token == entries[i].token) return false;
  }
  return true;
}

}  // namespace

ContextCounts::ContextCounts(uint32_t order, const Share* followed, const Share* predicted, const Share* copied)
    : order_(order), of_copied_(copied ? *copied : Share{}), copies_(copied && order > 1) {
  std::copy_n(followed, order, of_followed_.begin());
  std::copy_n(predicted, order, of_predicted_.begin());
  contexts_.push_back({kNone, kNone, kNone, 0, {}});
  grow();
}

uint32_t ContextCounts::child(uint32_t parent, uint32_t token) const {
  const size_t mask = table_.size() - 1;
  for (size_t at = hash_of(parent, token) & mask;; at = (at + 1) & mask) {
    const uint32_t context = table_[at];
    if (context == kNone || (contexts_[context].parent == parent && contexts_[context].token == token)) return context;
  }
}

uint32_t ContextCounts::child_or_new(uint32_t parent, uint32_t token, uint32_t link) {
  if (const uint32_t context = child(parent, token); context != kNone) return context;
  if (contexts_.size() >= kPredicted) throw std::length_error("the context model is full");
  if (2 * contexts_.size() >= table_.size()) grow();
  const uint32_t made = static_cast<uint32_t>(contexts_.size());
  contexts_.push_back({parent, token, link, contexts_[parent].depth + 1, {}});
  enter(made);
  return made;
}

void ContextCounts::enter(uint32_t context) {
  const size_t mask = table_.size() - 1;
  size_t at = hash_of(contexts_[context].parent, contexts_[context].token) & mask;
  while (table_[at] != kNone) at = (at + 1) & mask;
  table_[at] = context;
}

void ContextCounts::grow() {
  Growing<uint32_t> table;
  table.extend(table_.size() ? 2 * table_.size() : 256);
  for (size_t at = 0; at < table.size(); ++at) table[at] = kNone;
  table_ = std::move(table);
  for (uint32_t context = 1; context < contexts_.size(); ++context) enter(context);
}

void ContextCounts::add(uint32_t owner, Counts& to, uint32_t token, float amount) {
  to.total += amount;
  lists_.add(owner, to.list, token, amount);
}

double ContextCounts::share_of(const Share& share, double log_total, double log_distinct) {
  const double logit = share.constant + share.of_total * log_total + share.of_distinct * log_distinct;
  return 1 / (1 + std::exp(-std::clamp(logit, -kSurest, kSurest)));
}

void ContextCounts::weigh(Counts& counts, const Share& share) {
  const double of_counts = share_of(share, log_total_(counts.total), log_distinct_(counts.list.size));
  counts.rest = static_cast<float>(1 - of_counts);
  counts.worth = static_cast<float>(of_counts / counts.total);
}

void ContextCounts::evidence(const State& state, uint32_t token, Evidence* out) const {
  const auto write = [&](uint32_t owner, const Counts& counts, Evidence& to) {
    to = {lists_.count(owner, counts.list, token), static_cast<float>(counts.total),
          static_cast<float>(counts.list.size)};
  };
  std::fill_n(out, 2 * order_ + 2, Evidence{0, 0, 0});
  if (const auto& [next, length] = state.match; next != kNone) {
    const float matching = static_cast<float>(std::min(length, kLongest));
    out[2 * order_] = {read_[next].token == token ? matching : 0, matching, static_cast<float>(per_miss())};
  }
  for (uint32_t at = state.context;; at = contexts_[at].link) {
    const Context& context = contexts_[at];
    write(at, context.followed, out[2 * context.depth]);
    if (context.predicted != kNone)
      write(owner_of_predicted(context.predicted), predicted_[context.predicted], out[2 * context.depth + 1]);
    if (at == kEmpty) return;
  }
}

void ContextCounts::extend(Place& text, uint32_t token, float amount, bool written) {
  for (uint32_t length = 0; length <= text.longest; ++length) {
    Counts& counts = contexts_[text.path[length]].followed;
    add(text.path[length], counts, token, amount);
    weigh(counts, of_followed_[length]);
  }
  const uint32_t last = text.last;
  const Match match = this->match(text.match, token);
  if (text.match.next != kNone && written) ++(match.length ? copied_ : missed_);
  text = after(text, token);
  text.last = last;
  text.match = match;
  if (copies_) append(text, token);
  greatest_ = std::max(greatest_, token);
}

void ContextCounts::append(Place& text, uint32_t token) {
  if (read_.size() >= kNone) throw std::length_error("the context model is full");
  const uint32_t now = static_cast<uint32_t>(read_.size());
  read_.push_back({token, text.last, kNone, kNone});
  if (text.last != kNone) read_[text.last].next = now;
  text.last = now;
  if (text.longest + 1 < order_) return;
  Context& context = contexts_[text.path[text.longest]];
  read_[now].earlier = context.last;
  context.last = now;
  if (text.match.next == kNone) text.match = longest_match(now);
}

ContextCounts::Match ContextCounts::match(const Match& before, uint32_t token) const {
  if (before.next == kNone || read_[before.next].token != token) return {};
  return {read_[before.next].next, before.length + 1};
}

// Of the last place of a longest context behind which anything stands.
ContextCounts::Match ContextCounts::last_match(uint32_t place) const {
  for (int places = 0; place != kNone && places < kMostPlaces; place = read_[place].earlier, ++places)
    if (read_[place].next != kNone) return {read_[place].next, order_ - 1};
  return {};
}

// Of the last places where the longest context was read before; of equally long matches, the last.
ContextCounts::Match ContextCounts::longest_match(uint32_t last) const {
  Match best;
  int places = 0;
  for (uint32_t place = read_[last].earlier; place != kNone && places < kMostPlaces;
       place = read_[place].earlier, ++places) {
    if (read_[place].next == kNone) continue;  // another text ends there
    uint32_t length = order_ - 1, here = place, own = last;
    for (uint32_t i = 1; i < length; ++i) here = read_[here].before, own = read_[own].before;
    for (; length < kLongest; ++length) {
      here = read_[here].before, own = read_[own].before;
      if (here == kNone || own == kNone || read_[here].token != read_[own].token) break;
    }
    if (length > best.length) best = {read_[place].next, length};
    if (length == kLongest) break;
  }
  return best;
}

void ContextCounts::foresee(const Place& draft, const Prediction& predicted) {
  foreseen_.clear();
  for (int i = 0; i < predicted.size; ++i)
    if (predicted.p[i] >= kLeast) foreseen_.push_back({static_cast<uint32_t>(predicted.ids[i]), predicted.p[i]});
  const bool fills = can_fill(foreseen_);
  for (uint32_t o = 0; o <= draft.longest; ++o) {
    uint32_t& number = contexts_[draft.path[o]].predicted;
    if (number == kNone) {
      number = static_cast<uint32_t>(predicted_.size());
      predicted_.push_back({});
    }
    Counts& counts = predicted_[number];
    if (fills && !counts.list.size) {
      lists_.fill(counts.list, foreseen_);
      for (const auto& [token, p] : foreseen_) counts.total += p;
    } else {
      for (const auto& [token, p] : foreseen_) add(owner_of_predicted(number), counts, token, p);
    }
    if (counts.total > 0) weigh(counts, of_predicted_[o]);
  }
  for (int i = 0; i < predicted.size; ++i) greatest_ = std::max(greatest_, static_cast<uint32_t>(predicted.ids[i]));
}

ContextCounts::Place ContextCounts::after(const Place& place, uint32_t token) {
  Place now;
  now.longest = std::min(place.longest + 1, order_ - 1);
  for (uint32_t length = 1; length <= now.longest; ++length)
    now.path[length] = child_or_new(place.path[length - 1], token, now.path[length - 1]);
  return now;
}

ContextCounts::State ContextCounts::step(const State& state, uint32_t token) const {
  State now{kEmpty, match(state.match, token)};
  for (uint32_t at = state.context;; at = contexts_[at].link) {
    const uint32_t longer = contexts_[at].depth + 1 < order_ ? child(at, token) : kNone;
    if (longer != kNone) {
      now.context = longer;
      break;
    }
    if (at == kEmpty) break;
  }
  if (now.match.next == kNone) now.match = last_match(contexts_[now.context].last);
  return now;
}

ContextCounts::State ContextCounts::state_after(const int32_t* tokens, size_t length) const {
  State state;
  for (size_t i = length - std::min<size_t>(length, order_ - 1); i < length; ++i)
    if (tokens[i] >= 0) state = step(state, static_cast<uint32_t>(tokens[i]));
  return state;
}

ContextCounts::Mixture ContextCounts::mixture(const State& state) const {
  Mixture found;
  if (const auto& [next, length] = state.match; next != kNone) {
    found.copied = read_[next].token;
    found.of_copied = share_of(of_copied_, std::log(std::min(length, kLongest)), std::log(per_miss()));
    found.rest = 1 - found.of_copied;
  }
  for (uint32_t at = state.context;; at = contexts_[at].link) {
    const Context& context = contexts_[at];
    if (context.predicted != kNone) {
      const Counts& counts = predicted_[context.predicted];
      if (counts.total > 0) found.add(owner_of_predicted(context.predicted), counts.list, counts.worth, counts.rest);
    }
    if (const Counts& counts = context.followed; counts.total > 0)
      found.add(at, counts.list, counts.worth, counts.rest);
    if (at == kEmpty) return found;
  }
}

}  // namespace rescore
