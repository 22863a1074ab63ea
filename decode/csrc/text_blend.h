// The running texts' distribution of the next token after a prefix: p(w) = share(w) + rest * p_other(w).
//
// Texts are blended in order, an expected one first; each one's other distribution is the blend of those after it and
// the n-gram model.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "context_model.h"
#include "edit_model.h"

namespace rescore {

struct TextSource {
  const ContextCounts* text;
  ContextCounts::State state;  // of the text so far
};

class TextBlend {
 public:
  static constexpr int kMaxTexts = 2;

  // expected: null if no text is.
  void begin(const TextSource* texts, int count, const EditModel* expected);
  // states [count]: of each text. expected: of the expected one.
  void read(const ContextCounts::State* states, const EditModel::State* expected);

  // Leaves the texts a part of their shares, the rest to others, and counts these in other units.
  void take(double part, double units);

  double rest() const { return rest_; }
  double share(uint32_t token) const;

  struct Listed {
    uint32_t token;
    double share;
  };
  // All tokens of short lists of followers, with their whole share.
  const std::vector<Listed>& listed() const { return listed_; }
  bool is_listed(uint32_t token) const { return find(token) != nullptr; }

  // Long lists are not read: a token not in `listed` gets its share from these alone.
  int long_lists() const { return static_cast<int>(long_.size()); }
  double most(int list) const;  // the most that the list gives to a token
  // Whether more than `few` tokens get at least `least` from the list.
  bool is_flat(int list, double least, int few) const;
  // Calls see(token) for the `count` tokens to which the list gives most, in order; returns the most for any other.
  template <typename See>
  double first(int list, size_t count, See see) const {
    const Long& one = long_[list];
    return one.part.worth * one.lists->first(one.part.list, count, see);
  }
  // Calls see(token) once for each token to which the list gives at least least(), which may rise meanwhile.
  template <typename Least, typename See>
  void frequent(int list, Least least, See see) const {
    const Long& one = long_[list];
    one.lists->greatest(
        one.part.list, [&] { return least() / one.part.worth; }, [&](uint32_t token, float) { see(token); });
  }

 private:
  struct Long {
    const CountLists* lists;
    ContextCounts::Mixture::Part part;
  };
  struct Place {
    uint32_t reading, token, at;
  };
  static constexpr size_t kPlaces = 8192;  // more than twice what is listed
  static size_t hash(uint32_t token) { return (token * 0x9E3779B1u) >> 19; }

  void forget();
  void add(uint32_t token, double share);
  Place& place(uint32_t token) const;
  const Listed* find(uint32_t token) const;
  double of_long(uint32_t token) const;

  const TextSource* texts_ = nullptr;
  int count_ = 0;
  const EditModel* expected_ = nullptr;
  double rest_ = 1;
  std::vector<Listed> listed_;
  std::vector<Long> long_;
  uint32_t reading_ = 0;  // places of earlier readings count as empty
  mutable std::vector<Place> places_ = std::vector<Place>(kPlaces, Place{0, 0, 0});
};

}  // namespace rescore
