#include "context_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace rescore {
namespace {

constexpr double kSurest = 30;  // of the logit of a share, so that other tokens keep some mass

}  // namespace

ContextCounts::ContextCounts(uint32_t order, const Share* followed, const Share* predicted) : order_(order) {
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

void ContextCounts::weigh(Counts& counts, const Share& share) {
  const double logit =
      share.constant + share.of_total * std::log(counts.total) + share.of_distinct * std::log(counts.list.size);
  const double rest = 1 / (1 + std::exp(std::clamp(logit, -kSurest, kSurest)));
  counts.rest = static_cast<float>(rest);
  counts.worth = static_cast<float>((1 - rest) / counts.total);
}

void ContextCounts::evidence(uint32_t state, uint32_t token, Evidence* out) const {
  const auto write = [&](uint32_t owner, const Counts& counts, Evidence& to) {
    to = {lists_.count(owner, counts.list, token), static_cast<float>(counts.total),
          static_cast<float>(counts.list.size)};
  };
  std::fill_n(out, 2 * order_, Evidence{0, 0, 0});
  for (;; state = contexts_[state].link) {
    const Context& context = contexts_[state];
    write(state, context.followed, out[2 * context.depth]);
    if (context.predicted != kNone)
      write(owner_of_predicted(context.predicted), predicted_[context.predicted], out[2 * context.depth + 1]);
    if (state == kEmpty) return;
  }
}

void ContextCounts::extend(Place& text, uint32_t token, float amount) {
  for (uint32_t length = 0; length <= text.longest; ++length) {
    Counts& counts = contexts_[text.path[length]].followed;
    add(text.path[length], counts, token, amount);
    weigh(counts, of_followed_[length]);
  }
  text = after(text, token);
  greatest_ = std::max(greatest_, token);
}

void ContextCounts::foresee(const Place& draft, const Prediction& predicted) {
  for (uint32_t o = 0; o <= draft.longest; ++o) {
    uint32_t& number = contexts_[draft.path[o]].predicted;
    if (number == kNone) {
      number = static_cast<uint32_t>(predicted_.size());
      predicted_.push_back({});
    }
    Counts& counts = predicted_[number];
    for (int i = 0; i < predicted.size; ++i)
      if (predicted.p[i] >= kLeast) add(owner_of_predicted(number), counts, predicted.ids[i], predicted.p[i]);
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

uint32_t ContextCounts::step(uint32_t state, uint32_t token) const {
  for (;; state = contexts_[state].link) {
    const uint32_t longer = contexts_[state].depth + 1 < order_ ? child(state, token) : kNone;
    if (longer != kNone) return longer;
    if (state == kEmpty) return kEmpty;
  }
}

uint32_t ContextCounts::state_after(const int32_t* tokens, size_t length) const {
  uint32_t state = kEmpty;
  for (size_t i = length - std::min<size_t>(length, order_ - 1); i < length; ++i)
    if (tokens[i] >= 0) state = step(state, static_cast<uint32_t>(tokens[i]));
  return state;
}

ContextCounts::Mixture ContextCounts::mixture(uint32_t state) const {
  Mixture found;
  for (;; state = contexts_[state].link) {
    const Context& context = contexts_[state];
    if (context.predicted != kNone) {
      const Counts& counts = predicted_[context.predicted];
      if (counts.total > 0) found.add(owner_of_predicted(context.predicted), counts.list, counts.worth, counts.rest);
    }
    if (const Counts& counts = context.followed; counts.total > 0)
      found.add(state, counts.list, counts.worth, counts.rest);
    if (state == kEmpty) return found;
  }
}

}  // namespace rescore
