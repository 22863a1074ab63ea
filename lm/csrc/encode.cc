#include "encode.h"

#include <algorithm>

#include "gallop.h"

namespace rescore {
namespace {

[[noreturn]] void fail(const char* array, uint64_t index, const std::string& what) {
  throw std::invalid_argument(std::string(array) + "[" + std::to_string(index) + "]: expected " + what);
}

struct PlainTokens {
  const Plain& plain;
  uint32_t operator[](uint64_t arc) const { return plain.token(arc); }
};

class Encoder {
 public:
  Encoder(const Plain& plain, uint32_t next_bits, const ChooseBook& choose_book)
      : plain_(plain), next_bits_(next_bits), choose_book_(choose_book) {}

  Encoded run() {
    find_lengths();
    copy_tokens();
    count_endings();
    check_root();
    out_.sizes = {plain_.vocab_size, 4, 0, 1, 4, 0};
    for (uint32_t l = 1; l < plain_.order; ++l) write_length(l);
    out_.arcs.resize(out_.arcs.size() + ArcRecords::kSpare);
    return std::move(out_);
  }

 private:
  // Finds the states of each length; it is one more than the length of the backoff state.
  void find_lengths() {
    const uint64_t states = plain_.states();
    if (states == 0 || states > UINT32_MAX)
      throw std::invalid_argument("states: expected 1 to 2^32 - 1, got " + std::to_string(states));
    if (plain_.arc_begin.data[0] != 0 || plain_.arc_begin.data[1] != plain_.vocab_size ||
        plain_.arc_begin.data[states] != plain_.arcs)
      throw std::invalid_argument("arc_begin: expected the root's arcs to be one for each of the " +
                                  std::to_string(plain_.vocab_size) + " tokens, and the last entry " +
                                  std::to_string(plain_.arcs) + ", the number of arcs");
    first_state_ = {0, 1};
    for (uint64_t state = 0; state < states; ++state) {
      if (plain_.arc_begin.data[state] > plain_.arc_begin.data[state + 1])
        fail("arc_begin", state + 1,
             "offsets that ascend to " + std::to_string(plain_.arcs) + ", got " +
                 std::to_string(plain_.arc_begin.data[state + 1]));
      const uint32_t shorter = plain_.backoff_state[state];
      if (state == 0) {
        if (shorter != kRoot)
          fail("backoff_state", 0, "the root to back off to itself, got " + std::to_string(shorter));
        continue;
      }
      if (shorter >= state || shorter < plain_.backoff_state[state - 1])
        fail("backoff_state", state,
             "states that ascend below " + std::to_string(state) + ", got " + std::to_string(shorter));
      const size_t length = first_state_.size() - 1;  // of the states so far
      if (shorter >= first_state_[length]) first_state_.push_back(state);
      // Backoff states ascend, so lengths never fall.
    }
    first_state_.push_back(states);
    const size_t lengths = states == 1 ? 1 : first_state_.size() - 1;
    if (lengths > plain_.order)
      throw std::invalid_argument("backoff_state: expected contexts of at most " + std::to_string(plain_.order - 1) +
                                  " tokens");
    first_state_.resize(plain_.order + 1, states);
    for (uint32_t l = 1; l < plain_.order; ++l)
      if (arcs(l) >= UINT32_MAX)
        throw std::invalid_argument("order " + std::to_string(l + 1) + ": expected fewer than 2^32 - 1 n-grams, got " +
                                    std::to_string(arcs(l)) + "; prune the model");
  }

  // The arcs of the states of length l, which are those of order l + 1.
  uint64_t first_arc(uint32_t l) const { return plain_.arc_begin.data[first_state_[l]]; }
  uint64_t arcs(uint32_t l) const { return first_arc(l + 1) - first_arc(l); }
  uint64_t states(uint32_t l) const { return first_state_[l + 1] - first_state_[l]; }

  void copy_tokens() {
    const uint64_t inner = plain_.arcs - plain_.vocab_size;
    const uint32_t bytes = plain_.vocab_size <= 1 << 16 ? 2 : 3;
    out_.arc_token.resize(bytes * inner);
    for (uint64_t arc = 0; arc < plain_.arcs; ++arc) {
      const uint32_t token = plain_.token(arc);
      if (token >= plain_.vocab_size || (arc < plain_.vocab_size && token != arc))
        fail("arc_token", arc,
             "a token below " + std::to_string(plain_.vocab_size) + ", at the root equal to the arc's number, got " +
                 std::to_string(token));
      if (arc >= plain_.vocab_size) std::memcpy(&out_.arc_token[bytes * (arc - plain_.vocab_size)], &token, bytes);
    }
  }

  // Counts the states by their last token: one arc of order n leads to each state of length n, with that token.
  void count_endings() {
    const uint64_t width = uint64_t{plain_.vocab_size} + 1;
    out_.first_state.assign(width * (plain_.order - 1), 0);
    for (uint32_t l = 1; l < plain_.order; ++l) {
      uint32_t* first = &out_.first_state[width * (l - 1)];
      for (uint64_t arc = first_arc(l - 1); arc < first_arc(l); ++arc)
        if (plain_.next[arc] >= first_state_[l]) ++first[plain_.token(arc) + 1];
      for (uint32_t token = 0; token < plain_.vocab_size; ++token) first[token + 1] += first[token];
      if (first[plain_.vocab_size] != states(l))
        throw std::invalid_argument("arc_next: expected one arc to each of the " + std::to_string(states(l)) +
                                    " states of length " + std::to_string(l) +
                                    " from states that are one token shorter, got " +
                                    std::to_string(first[plain_.vocab_size]));
    }
  }

  void check_root() const {
    for (uint64_t token = 0; token < plain_.vocab_size; ++token) {
      const uint32_t state = plain_.next[token];
      const bool is_state = plain_.order > 1 && out_.first_state[token] < out_.first_state[token + 1];
      if (state != (is_state ? first_state_[1] + out_.first_state[token] : kRoot))
        fail("arc_next", token, "the state of this token, in the order of tokens, got " + std::to_string(state));
    }
  }

  // Writes the contexts of a length and their arcs.
  void write_length(uint32_t l) {
    const std::vector<float> arc_book = book(plain_.cost + first_arc(l), arcs(l)),
                             backoff_book = book(plain_.backoff_cost + first_state_[l], states(l));
    const CostWriter arc_costs(arc_book), backoff_costs(backoff_book);
    write_arcs(l, arc_costs);
    write_contexts(l, backoff_costs);
    out_.sizes.insert(out_.sizes.end(), {arcs(l), arc_costs.bytes(), arc_book.size(), states(l), backoff_costs.bytes(),
                                         backoff_book.size()});
    out_.arc_book.insert(out_.arc_book.end(), arc_book.begin(), arc_book.end());
    out_.backoff_book.insert(out_.backoff_book.end(), backoff_book.begin(), backoff_book.end());
  }

  std::vector<float> book(const float* cost, uint64_t size) const {
    return size ? choose_book_(cost, size) : std::vector<float>();
  }

  void write_arcs(uint32_t l, const CostWriter& costs) {
    const bool leads_on = l + 1 < plain_.order;
    const uint32_t bytes = costs.bytes(), stride = bytes + (leads_on ? ArcRecords::code_bytes(next_bits_) : 0);
    uint64_t at = out_.arcs.size();
    out_.arcs.resize(at + stride * arcs(l));
    reached_.assign(plain_.vocab_size, 0);
    jumps_ = out_.jumps.size();
    if (leads_on)
      out_.jumps.resize(jumps_ + ((states(l + 1) + (uint64_t{1} << next_bits_) - 1) >> next_bits_), UINT32_MAX);
    for (uint64_t state = first_state_[l], arc = first_arc(l); state < first_state_[l + 1]; ++state) {
      const uint32_t shorter = plain_.backoff_state[state];
      const uint64_t end = plain_.arc_begin.data[shorter + 1];
      for (uint64_t without = plain_.arc_begin.data[shorter]; arc < plain_.arc_begin.data[state + 1];
           ++arc, at += stride) {
        const uint32_t token = plain_.token(arc);
        without = shorter == kRoot ? token : gallop(PlainTokens{plain_}, without, end, token);
        if (without == end || plain_.token(without) != token)
          fail("arc_token", arc, "a token with an arc in the next shorter context too, got " + std::to_string(token));
        costs.write(plain_.cost[arc], &out_.arcs[at]);
        const uint32_t code = target(l, arc, token, plain_.next[without]);
        std::memcpy(&out_.arcs[at + bytes], &code, stride - bytes);
      }
    }
  }

  // The code of the target of an arc of a state of length l; also sets the jumps. See `Automaton::extension`.
  // without: the target of the arc of the next shorter context.
  uint32_t target(uint32_t l, uint64_t arc, uint32_t token, uint32_t without) {
    const uint32_t state = plain_.next[arc];
    if (l + 1 == plain_.order || state < first_state_[l + 1]) {
      if (state != without)
        fail("arc_next", arc,
             "state " + std::to_string(without) + ", the target of the arc in the next shorter context, got " +
                 std::to_string(state));
      return 0;
    }
    if (state >= first_state_[l + 2])
      fail("arc_next", arc, "a state of at most " + std::to_string(l + 1) + " tokens, got " + std::to_string(state));
    const uint32_t x = state - first_state_[l + 1];
    const uint32_t* first = &out_.first_state[(uint64_t{plain_.vocab_size} + 1) * l + token];
    uint32_t& before = reached_[token];
    if (x < first[0] || x >= first[1] || x < before)
      fail("arc_next", arc,
           "ascending states that end in token " + std::to_string(token) + ", got " + std::to_string(state));
    before = x;
    uint32_t* jumps = &out_.jumps[jumps_];
    for (uint64_t k = x >> next_bits_; (k << next_bits_) >= first[0] && jumps[k] == UINT32_MAX; --k) {
      jumps[k] = arc - first_arc(l);
      if (k == 0) break;
    }
    return uint32_t{1} << next_bits_ | (x & ((uint32_t{1} << next_bits_) - 1));
  }

  void write_contexts(uint32_t l, const CostWriter& costs) {
    const uint64_t* begin = plain_.arc_begin.data + first_state_[l];
    ContextBlocks::encode(
        states(l), [&](uint64_t i) { return static_cast<uint32_t>(begin[i] - begin[0]); },
        plain_.backoff_cost + first_state_[l], costs, out_.contexts, out_.wide);
    const uint32_t* shorter = plain_.backoff_state + first_state_[l];
    if (l > 1 && states(l))
      EliasFano::encode(
          states(l), states(l - 1) - 1, [&](uint64_t i) { return shorter[i] - first_state_[l - 1]; },
          out_.backoff_state);
  }

  const Plain& plain_;
  const uint32_t next_bits_;
  const ChooseBook& choose_book_;
  Encoded out_;
  std::vector<uint64_t> first_state_;  // of each length, and the end
  uint64_t jumps_ = 0;                 // where the jumps of this order begin
  std::vector<uint32_t> reached_;      // the last target of this order for each token
};

}  // namespace

Encoded encode(const Plain& plain, uint32_t next_bits, const ChooseBook& choose_book) {
  if (next_bits < 1 || next_bits > 15)
    throw std::invalid_argument("next_bits: expected 1 to 15, got " + std::to_string(next_bits));
  return Encoder(plain, next_bits, choose_book).run();
}

void decode(const Automaton& lm, Decoded out) {
  uint64_t arc = 0;
  for (uint64_t state = 0; state < lm.num_states; ++state) {
    const Automaton::Arcs list = lm.arcs(state);
    // `arcs` catches descending begins; gaps would leave arcs unwritten.
    if (list.begin != arc) corrupt("contexts", state);
    const uint32_t shorter = lm.backoff(state), length = lm.length(state);
    out.arc_begin[state] = list.begin;
    out.backoff_state[state] = shorter;
    out.backoff_cost[state] = lm.backoff_cost(state);
    for (Automaton::Arcs rest = lm.arcs(shorter); arc < list.end; ++arc) {
      const uint32_t token = lm.checked_token(arc);
      if (out.token16) {
        out.token16[arc] = token;
      } else {
        out.token32[arc] = token;
      }
      out.arc_cost[arc] = lm.cost(arc);
      out.arc_next[arc] = lm.longer(length, arc - lm.level(length).first_arc, token);
      if (out.arc_next[arc] != kRoot || state == kRoot) continue;
      // The target of the arc of the next shorter context, which is already written.
      const uint64_t without = shorter == kRoot ? token : lm.find(rest, token);
      if (without == rest.end) corrupt("arc_token", arc);
      out.arc_next[arc] = out.arc_next[without];
      if (shorter != kRoot) rest.begin = without;
    }
  }
  if (arc != lm.num_arcs) corrupt("contexts", lm.num_states);
  out.arc_begin[lm.num_states] = arc;
}

}  // namespace rescore
