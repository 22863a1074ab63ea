#include "text_blend.h"

#include <cmath>

namespace rescore {

constexpr int kMostListed = TextBlend::kMaxTexts * (1 + 2 * ContextCounts::kMaxOrder * CountLists::kShort) +
                            EditModel::kPlaces * (1 + EditModel::kRemoved);

void TextBlend::begin(const TextSource* texts, int count, const EditModel* expected) {
  static_assert(2 * kMostListed <= kPlaces);
  texts_ = texts;
  count_ = count;
  expected_ = expected;
  forget();
}

void TextBlend::forget() {
  rest_ = 1;
  listed_.clear();
  long_.clear();
  if (++reading_) return;
  places_.assign(kPlaces, Place{0, 0, 0});
  reading_ = 1;
}

void TextBlend::add(uint32_t token, double share) {
  Place& found = place(token);
  if (found.reading != reading_) {
    found = {reading_, token, static_cast<uint32_t>(listed_.size())};
    listed_.push_back({token, 0});
  }
  listed_[found.at].share += share;
}

void TextBlend::read(const ContextCounts::State* states, const EditModel::State* expected) {
  forget();
  if (expected_)
    expected_->copies(*expected, [this](uint32_t token, double share) {
      add(token, share);
      rest_ -= share;
    });
  for (int i = 0; i < count_; ++i) {
    const ContextCounts& text = *texts_[i].text;
    const ContextCounts::Mixture mixture = text.mixture(states[i]);
    if (mixture.copied != ContextCounts::kNone) add(mixture.copied, rest_ * mixture.of_copied);
    for (int i = 0; i < mixture.size; ++i) {
      ContextCounts::Mixture::Part part = mixture.parts[i];
      part.worth *= rest_;
      if (part.list.size > CountLists::kShort) {
        long_.push_back({&text.lists(), part});
        continue;
      }
      const CountLists::Entry* entry = text.lists().entries(part.list);
      for (uint32_t at = 0; at < part.list.size; ++at) add(entry[at].token, part.worth * entry[at].count);
    }
    rest_ *= mixture.rest;
  }
  if (!long_.empty())
    for (Listed& one : listed_) one.share += of_long(one.token);
}

void TextBlend::take(double part, double units) {
  rest_ = 1 - part * (1 - rest_);
  for (Listed& one : listed_) one.share *= part * units;
  for (Long& one : long_) one.part.worth *= part * units;
}

double TextBlend::share(uint32_t token) const {
  const Listed* found = find(token);
  return found ? found->share : of_long(token);
}

double TextBlend::most(int list) const {
  const Long& one = long_[list];
  return one.part.worth * one.lists->entries(one.part.list)[0].count;
}

bool TextBlend::is_flat(int list, double least, int few) const {
  int seen = 0;
  frequent(list, [&] { return seen > few ? INFINITY : least; }, [&](uint32_t) { ++seen; });
  return seen > few;
}

double TextBlend::of_long(uint32_t token) const {
  double sum = 0;
  for (const auto& [lists, part] : long_) sum += part.worth * lists->count(part.owner, part.list, token);
  return sum;
}

TextBlend::Place& TextBlend::place(uint32_t token) const {
  for (size_t at = hash(token);; at = (at + 1) % kPlaces)
    if (Place& found = places_[at]; found.reading != reading_ || found.token == token) return found;
}

const TextBlend::Listed* TextBlend::find(uint32_t token) const {
  const Place& found = place(token);
  return found.reading == reading_ ? &listed_[found.at] : nullptr;
}

}  // namespace rescore
