// Token trees of lattices, closed or open: in open ones the automaton may propose tokens that the heads do not list.
//
// In slot t, after a prefix, with p the n-gram model's distribution interpolated with the running text's:
//
//     q(w) ~ exp(-head_t cost_t(w) + prior_t u(w)) p(w)^lm_t   for the slot's candidates,
//     q(w) ~ exp(-head_t rest_t - floor_t) p(w)                for all other tokens, the rho arc
//
// or, with late texts, p is the n-gram model's alone, and a part of what the running text says is interpolated with
// this q instead.
//
// u(w) is -ln of w's unigram probability, at most 32. rest_t is the cost of a token outside the candidates, with the
// mass that they leave spread evenly. p sums to 1, so p of the candidates gives the mass of all other tokens, and q is
// normalised over the whole vocabulary without visiting it. Without the rho arc (`open` false), the same q is searched
// among the candidates alone; a floor of kNothing leaves other tokens nothing, so that q is the candidates' softmax.
// Past the lattice's last slot that has candidates, every slot is open and q is p. In a lattice that is no sausage, a
// prefix that follows its arcs is in the slot to which the last one leads, any other past the last. Ties are broken by
// the candidates' ranks in closed lattices, by tokens in open ones, where most have no rank.
//
// A structure bounds q: after each prefix it allows the tokens A, and q(w) is divided by q(A) for w in A, 0 elsewhere.
// q(A) is summed where A has few tokens; q of a single one is 1. Where A has more, q(A) is 1 without what the slot's
// candidates and the texts' short lists outside A have, so that what is left may sum to less than 1.
#pragma once

#include "best_prefixes.h"
#include "log_sum.h"
#include "match_cache.h"
#include "room.h"
#include "slot.h"
#include "text_blend.h"

namespace rescore {

constexpr double kLeastMass = 1e-6;   // left to others by a head: float16 candidates may sum to 1 or more
constexpr double kRarest = 32;        // nats: the 227 or 1000 of unseen tokens do not measure their rarity
constexpr double kNothing = 1e4;      // a floor from which on tokens outside the candidates have no probability
constexpr double kLeastScale = -600;  // nats: late texts give tokens something whose slot gives them nothing

// Weights per slot of the lattice.
struct SlotWeights {
  const double *head, *lm, *prior, *floor;  // [slots]
  double late = -1;                         // part of late texts' shares, 0 to 1; less than 0: texts are not late
};

// What a structure allows after a prefix: one token, or `count` of them, the bits of `size` words.
struct Allowed {
  static constexpr uint32_t kSeveral = UINT32_MAX;
  uint32_t only = kSeveral;
  const uint32_t* words = nullptr;  // null: everything
  size_t size = 0, count = 0;

  bool has(uint32_t token) const { return !words || (token / 32 < size && (words[token / 32] >> (token % 32) & 1)); }
};

class TreeSearch {
 public:
  // Begin, then open the prefix `opening` while advance returns true. texts: at most TextBlend::kMaxTexts, which must
  // stay as they are; expected: null if no text is. The sausage may have no slots. Prefixes of more than `depth`
  // tokens, and those whose q is below `least`, are left out. few: the most allowed tokens whose q is summed.
  void begin(const Automaton& lm, uint32_t start, const Sausage& sausage, const SlotWeights& weights, bool open,
             const TextSource* texts, int text_count, const EditModel* expected, int depth, double least,
             TreeOutput out, size_t few);
  bool advance();
  const Opening& opening() const { return best_.opening(); }
  // The last token of `opening`, which is not the empty prefix.
  uint32_t token() const { return children_[opening().offer.place].token; }
  void open(const Allowed& allowed);
  int found() const { return best_.found(); }

 private:
  struct Opened {
    uint32_t state;
    int slot;  // length_ for all slots without candidates
    std::array<ContextCounts::State, TextBlend::kMaxTexts> texts;
  };
  struct Child {
    uint64_t arc;
    uint32_t token;
    uint32_t state;  // that it leads to; kNoState until it is needed
  };
  struct Proposal {
    Fixed cost;  // of the prefix with this token
    uint32_t token;
    uint64_t arc;
  };
  int slot_behind(int slot, uint32_t token) const;
  void weigh_candidates();
  void propose_candidates(double of_allowed);
  void propose_only();
  void propose_few();
  double log_allowed() const;
  void propose_listed();
  void propose_arcs();
  void propose_first();
  void propose_frequent();
  void propose_frequent(uint32_t token);
  void sort_proposed();
  bool is_proposed(uint32_t token) const;
  void propose(uint32_t token, uint64_t arc, double logq);
  void keep_best();
  double log_p(double seen, double lm_cost) const;
  double needed();
  struct Parts {  // shares of a needed probability that a source must give before its tokens are read
    double model, list;
  };
  Parts parts();
  void find_sources();
  bool is_candidate(uint32_t token) const;
  uint32_t order(uint32_t token) const;  // among equally probable children
  bool reads_texts() const { return text_count_ || expected_; }

  const Automaton* lm_;
  Sausage sausage_{};
  SlotWeights weights_;
  bool open_;
  uint32_t start_;
  size_t few_;
  const TextSource* texts_;
  const EditModel* expected_;
  int text_count_, length_;  // length_: slots with candidates
  size_t nodes_;

  // The prefix that is being opened.
  Allowed allowed_;
  std::array<uint64_t, kMaxCandidates> arc_;  // of its slot's candidates, by their places
  std::array<double, kMaxCandidates> logq_;
  Fixed cost_;
  uint32_t state_;
  int slot_;
  double scale_;  // ln q(w) = scale_ + ln p(w) for tokens outside the candidates
  TextBlend blend_;
  std::vector<double> most_;  // upper bound of each long list's contribution to a token not yet proposed
  double model_most_;         // and of the n-gram model's
  struct {
    double logp, p;
  } needed_{NAN, 0};  // the latest one
  bool flat_;         // whether a long list has many tokens of similar frequency
  Room<Proposal> proposals_;
  std::vector<Automaton::Arcs> contexts_;  // of the states backed off from
  std::vector<uint32_t> proposed_;         // tokens of long lists among the proposals, the first `sorted_` ascending
  size_t sorted_;

  BestPrefixes best_;
  std::vector<Opened> opened_;
  std::vector<EditModel::State> edits_;  // by prefix opened, where a text is expected
  Room<Child> children_;                 // in the order in which they were offered
  std::vector<Slot> slots_;              // the one after the last has no candidates
  std::vector<double> others_;           // ln of the weight of p of all other tokens; -inf if they have none
  std::vector<CostRow> fixed_;           // cost of each candidate, by its place, without p
  MatchCache cache_;
  std::vector<Fixed> least_;  // heap of the n least costs of all children so far, or the bound; greatest first
};

}  // namespace rescore
