#include "context_model.h"

#include <algorithm>
#include <stdexcept>

namespace rescore {

ContextModel::ContextModel(uint32_t order, const double* soft) : order_(order) {
  for (uint32_t o = 0; o < order; ++o) soft_[o] = static_cast<float>(soft[o]);
  contexts_.push_back({kNone, kNone, kNone, 0, {}, 0});
  grow();
}

uint32_t ContextModel::child(uint32_t parent, uint32_t token) const {
  const size_t mask = table_.size() - 1;
  for (size_t at = hash(parent, token) & mask;; at = (at + 1) & mask) {
    const uint32_t context = table_[at];
    if (context == kNone || (contexts_[context].parent == parent && contexts_[context].token == token)) return context;
  }
}

uint32_t ContextModel::child_or_new(uint32_t parent, uint32_t token, uint32_t link) {
  if (const uint32_t context = child(parent, token); context != kNone) return context;
  if (contexts_.size() >= kNone - 1) throw std::length_error("the context model is full");
  if (2 * contexts_.size() >= table_.size()) grow();
  const uint32_t made = static_cast<uint32_t>(contexts_.size());
  contexts_.push_back({parent, token, link, contexts_[parent].depth + 1, {}, 0});
  enter(made);
  return made;
}

void ContextModel::enter(uint32_t context) {
  const size_t mask = table_.size() - 1;
  size_t at = hash(contexts_[context].parent, contexts_[context].token) & mask;
  while (table_[at] != kNone) at = (at + 1) & mask;
  table_[at] = context;
}

void ContextModel::grow() {
  Growing<uint32_t> table;
  table.extend(table_.size() ? 2 * table_.size() : 256);
  for (size_t at = 0; at < table.size(); ++at) table[at] = kNone;
  table_ = std::move(table);
  for (uint32_t context = 1; context < contexts_.size(); ++context) enter(context);
}

void ContextModel::add(uint32_t context, uint32_t token, float amount) {
  Context& to = contexts_[context];
  to.total += amount;
  lists_.add(context, to.followers, token, amount);
}

void ContextModel::add(const Path& path, uint32_t longest, const Prediction& predicted) {
  for (uint32_t length = 0; length <= longest; ++length)
    for (int i = 0; i < predicted.size; ++i)
      if (const float share = soft_[length] * predicted.p[i]; share >= kLeast)
        add(path[length], predicted.ids[i], share);
}

void ContextModel::extend(uint32_t token, const Prediction& predicted) {
  add(active_, longest_, predicted);
  for (uint32_t length = 0; length <= longest_; ++length)
    if (const float share = 1 - soft_[length] * (predicted.size ? 1 : 1 - kUnknown); share > 0)
      add(active_[length], token, share);
  advance(active_, longest_, token);
  greatest_ = std::max(greatest_, token);
  for (int i = 0; i < predicted.size; ++i) greatest_ = std::max(greatest_, static_cast<uint32_t>(predicted.ids[i]));
  ++tokens_;
}

void ContextModel::foresee(const int32_t* draft, size_t length, const Prediction& predicted) {
  Path path = active_;
  uint32_t longest = longest_;
  for (size_t i = 0; i < length; ++i) advance(path, longest, draft[i]);
  add(path, longest, predicted);
  for (int i = 0; i < predicted.size; ++i) greatest_ = std::max(greatest_, static_cast<uint32_t>(predicted.ids[i]));
}

// Updates the contexts of the text, or of a draft after it, by one more token.
void ContextModel::advance(Path& path, uint32_t& longest, uint32_t token) {
  Path now{};
  uint32_t shorter = kEmpty;
  for (uint32_t length = 0; length <= longest && length + 1 < order_; ++length)
    shorter = now[length + 1] = child_or_new(path[length], token, shorter);
  path = now;
  longest = std::min(longest + 1, order_ - 1);
}

uint32_t ContextModel::step(uint32_t state, uint32_t token) const {
  for (;; state = contexts_[state].link) {
    const uint32_t longer = contexts_[state].depth + 1 < order_ ? child(state, token) : kNone;
    if (longer != kNone) return longer;
    if (state == kEmpty) return kEmpty;
  }
}

uint32_t ContextModel::state_after(const int32_t* tokens, size_t length) const {
  uint32_t state = kEmpty;
  for (size_t i = length - std::min<size_t>(length, order_ - 1); i < length; ++i)
    if (tokens[i] >= 0) state = step(state, static_cast<uint32_t>(tokens[i]));
  return state;
}

ContextModel::Mixture ContextModel::mixture(uint32_t state, const double* strength) const {
  Mixture found;
  for (;; state = contexts_[state].link) {
    const Context& context = contexts_[state];
    if (context.total > 0) {
      const double other = strength[context.depth] * context.followers.size;
      found.parts[found.size++] = {state, found.rest / (context.total + other)};
      found.rest *= other / (context.total + other);
    }
    if (state == kEmpty) return found;
  }
}

}  // namespace rescore
