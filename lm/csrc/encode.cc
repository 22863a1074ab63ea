#include "encode.h"

#include <algorithm>

namespace rescore {
namespace {

[[noreturn]] void fail(const char* array, uint64_t index, const std::string& what) {
  throw std::invalid_argument(std::string(array) + "[" + std::to_string(index) + "]: expected " + what);
}

class Encoder {
 public:
  Encoder(const Plain& plain, uint32_t code_bytes, uint32_t next_bits) : plain_(plain), code_bytes_(code_bytes), next_bits_(next_bits) {}

  Structure run() {
    find_lengths();
    copy_tokens();
    count_endings();
    write_sequences();
    write_targets();
    return std::move(out_);
  }

 private:
  // A state's length is one more than that of the state it backs off to.
  void find_lengths() {
    const uint64_t states = plain_.states();
    if (states == 0 || states > UINT32_MAX) throw std::invalid_argument("states: expected 1 to 2^32 - 1, got " + std::to_string(states));
    if (plain_.arc_begin.data[0] != 0 || plain_.arc_begin.data[1] != plain_.vocab_size || plain_.arc_begin.data[states] != plain_.arcs)
      throw std::invalid_argument("arc_begin: expected the root's arcs to be one for each of the " + std::to_string(plain_.vocab_size) +
                                  " tokens, and the last entry " + std::to_string(plain_.arcs) + ", the number of arcs");
    first_state_ = {0, 1};
    for (uint64_t state = 0; state < states; ++state) {
      if (plain_.arc_begin.data[state] > plain_.arc_begin.data[state + 1])
        fail("arc_begin", state + 1, "offsets that ascend to " + std::to_string(plain_.arcs) + ", got " + std::to_string(plain_.arc_begin.data[state + 1]));
      const uint32_t shorter = plain_.backoff_state[state];
      if (state == 0) {
        if (shorter != kRoot) fail("backoff_state", 0, "the root to back off to itself, got " + std::to_string(shorter));
        continue;
      }
      if (shorter >= state || shorter < plain_.backoff_state[state - 1])
        fail("backoff_state", state, "states that ascend below " + std::to_string(state) + ", got " + std::to_string(shorter));
      const size_t length = first_state_.size() - 1;  // of the states so far
      if (shorter >= first_state_[length]) first_state_.push_back(state);
      // The backed off to ascend, so none of them is of a length before that of the last.
    }
    first_state_.push_back(states);
    const size_t lengths = states == 1 ? 1 : first_state_.size() - 1;
    if (lengths > plain_.order) throw std::invalid_argument("backoff_state: expected contexts of at most " + std::to_string(plain_.order - 1) + " tokens");
    first_state_.resize(plain_.order + 1, states);
    for (uint32_t l = 0; l < plain_.order; ++l) {
      out_.states.push_back(first_state_[l + 1] - first_state_[l]);
      out_.arcs.push_back(first_arc(l + 1) - first_arc(l));
      if (l && out_.arcs[l] >= UINT32_MAX)
        throw std::invalid_argument("order " + std::to_string(l + 1) + ": expected fewer than 2^32 - 1 n-grams, got " + std::to_string(out_.arcs[l]) + "; prune the model");
    }
  }

  // Of the states of length l, which are the arcs of order l + 1.
  uint64_t first_arc(uint32_t l) const { return plain_.arc_begin.data[first_state_[l]]; }

  void copy_tokens() {
    const uint64_t inner = plain_.arcs - plain_.vocab_size;
    const uint32_t bytes = plain_.vocab_size <= 1 << 16 ? 2 : 3;
    out_.arc_token.resize(bytes * inner);
    for (uint64_t arc = 0; arc < plain_.arcs; ++arc) {
      const uint32_t token = plain_.token(arc);
      if (token >= plain_.vocab_size || (arc < plain_.vocab_size && token != arc))
        fail("arc_token", arc, "a token below " + std::to_string(plain_.vocab_size) + ", for the root its number, got " + std::to_string(token));
      if (arc >= plain_.vocab_size) std::memcpy(&out_.arc_token[bytes * (arc - plain_.vocab_size)], &token, bytes);
    }
  }

  uint32_t length(uint32_t state) const {
    uint32_t found = 0;
    for (uint32_t l = 1; l < plain_.order; ++l) found += state >= first_state_[l];
    return found;
  }

  // Every state of length n is entered by one arc of order n, whose token its context ends in.
  void count_endings() {
    const uint64_t width = uint64_t{plain_.vocab_size} + 1;
    out_.first_state.assign(width * (plain_.order - 1), 0);
    for (uint32_t l = 1; l < plain_.order; ++l) {
      uint32_t* first = &out_.first_state[width * (l - 1)];
      for (uint64_t arc = first_arc(l - 1); arc < first_arc(l); ++arc)
        if (plain_.next[arc] >= first_state_[l]) ++first[plain_.token(arc) + 1];
      for (uint32_t token = 0; token < plain_.vocab_size; ++token) first[token + 1] += first[token];
      if (first[plain_.vocab_size] != out_.states[l])
        throw std::invalid_argument("arc_next: expected one arc to each of the " + std::to_string(out_.states[l]) + " states of length " +
                                    std::to_string(l) + " from those a token shorter, got " + std::to_string(first[plain_.vocab_size]));
    }
  }

  void write_sequences() {
    for (uint32_t l = 1; l < plain_.order; ++l) {
      if (!out_.states[l]) continue;
      const uint64_t* begin = plain_.arc_begin.data + first_state_[l];
      const uint32_t* shorter = plain_.backoff_state + first_state_[l];
      EliasFano::encode(out_.states[l] + 1, out_.arcs[l], [&](uint64_t i) { return begin[i] - begin[0]; }, out_.arc_begin);
      if (l > 1)
        EliasFano::encode(out_.states[l], out_.states[l - 1] - 1, [&](uint64_t i) { return shorter[i] - first_state_[l - 1]; }, out_.backoff_state);
    }
  }

  // The codes and jumps that `Automaton::next` explains.
  void write_targets() {
    out_.arc_next.resize(code_bytes_ * (plain_.arcs - plain_.vocab_size));
    for (uint64_t token = 0; token < plain_.vocab_size; ++token) {
      const uint32_t state = plain_.next[token];
      const bool is_state = plain_.order > 1 && out_.first_state[token] < out_.first_state[token + 1];
      if (state != (is_state ? first_state_[1] + out_.first_state[token] : kRoot))
        fail("arc_next", token, "the state of the token alone, in the order of tokens, got " + std::to_string(state));
    }
    for (uint32_t l = 1; l < plain_.order; ++l) {
      begin_order(l);
      for (uint64_t arc = first_arc(l); arc < first_arc(l + 1); ++arc) write_target(arc, l);
    }
  }

  void begin_order(uint32_t l) {
    reached_.assign(uint64_t{plain_.vocab_size} * plain_.order, 0);
    for (uint32_t to = 1; to <= std::min(l + 1, plain_.order - 1); ++to) {
      jumps_[to] = out_.jumps.size();
      out_.jumps.resize(out_.jumps.size() + ((out_.states[to] + (uint64_t{1} << next_bits_) - 1) >> next_bits_), UINT32_MAX);
    }
  }

  void write_target(uint64_t arc, uint32_t l) {
    const uint32_t state = plain_.next[arc], token = plain_.token(arc);
    const uint32_t to = state < plain_.states() ? length(state) : plain_.order;
    if (to > l + 1 || to >= plain_.order) fail("arc_next", arc, "a state of at most " + std::to_string(std::min(l + 1, plain_.order - 1)) + " tokens, got " + std::to_string(state));
    if (to == 0) return;
    const uint32_t x = state - first_state_[to];
    const uint32_t* first = &out_.first_state[(uint64_t{plain_.vocab_size} + 1) * (to - 1) + token];
    uint32_t& before = reached_[uint64_t{plain_.vocab_size} * to + token];
    if (x < first[0] || x >= first[1] || x < before)
      fail("arc_next", arc, "states that end in token " + std::to_string(token) + " and do not descend, got " + std::to_string(state));
    before = x;
    const uint32_t code = to << next_bits_ | (x & ((uint32_t{1} << next_bits_) - 1));
    std::memcpy(&out_.arc_next[code_bytes_ * (arc - plain_.vocab_size)], &code, code_bytes_);
    uint32_t* jumps = &out_.jumps[jumps_[to]];
    for (uint64_t k = x >> next_bits_; (k << next_bits_) >= first[0] && jumps[k] == UINT32_MAX; --k) {
      jumps[k] = arc - first_arc(l);
      if (k == 0) break;
    }
  }

  const Plain& plain_;
  const uint32_t code_bytes_, next_bits_;
  Structure out_;
  std::vector<uint64_t> first_state_;  // of each length, and one more
  std::array<uint64_t, kMaxOrder> jumps_{};  // of this order, by length of the next state
  std::vector<uint32_t> reached_;  // the last state of each length and token that this order led to
};

}  // namespace

Structure encode(const Plain& plain, uint32_t code_bytes, uint32_t next_bits) {
  if (next_bits < 1 || next_bits + bit_length(plain.order - 1) > 8 * code_bytes)
    throw std::invalid_argument("next_bits: expected 1 to " + std::to_string(8 * code_bytes - bit_length(plain.order - 1)) + ", got " + std::to_string(next_bits));
  return Encoder(plain, code_bytes, next_bits).run();
}

void decode(const Automaton& lm, Decoded out) {
  uint64_t arc = 0;
  for (uint64_t state = 0; state < lm.num_states; ++state) {
    const Automaton::Arcs list = lm.arcs(state);
    // Begins that descend would be caught by `arcs`; those that leave a gap would leave arcs unwritten.
    if (list.begin != arc) corrupt("arc_begin", state);
    out.arc_begin[state] = list.begin;
    out.backoff_state[state] = lm.backoff(state);
    out.backoff_cost[state] = lm.backoff_cost(state);
    for (; arc < list.end; ++arc) {
      const uint32_t token = lm.checked_token(arc);
      if (out.token16) {
        out.token16[arc] = token;
      } else {
        out.token32[arc] = token;
      }
      out.arc_cost[arc] = lm.cost(arc);
      out.arc_next[arc] = lm.next(arc, token);
    }
  }
  if (arc != lm.num_arcs) corrupt("arc_begin", lm.num_states);
  out.arc_begin[lm.num_states] = arc;
}

}  // namespace rescore
