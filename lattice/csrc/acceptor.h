// A deterministic finite acceptor over token ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace rescore {

class Acceptor {
 public:
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // Arcs sorted by state, then by token; `first` [states + 1] is where those of each state begin, and their number.
  Acceptor(std::vector<uint64_t> first, std::vector<int32_t> tokens, std::vector<uint32_t> targets, uint32_t start)
      : start(start), first_(std::move(first)), tokens_(std::move(tokens)), targets_(std::move(targets)) {
    const uint64_t arcs = tokens_.size();
    if (first_.empty() || first_.front() != 0 || first_.back() != arcs || targets_.size() != arcs ||
        !std::is_sorted(first_.begin(), first_.end()))
      throw std::invalid_argument("acceptor: expected arcs by state");
    expect_state(start);
    for (const uint32_t target : targets_) expect_state(target);
    for (size_t state = 0; state + 1 < first_.size(); ++state)
      for (uint64_t arc = first_[state]; arc < first_[state + 1]; ++arc)
        if (tokens_[arc] < 0 || (arc > first_[state] && tokens_[arc] <= tokens_[arc - 1]))
          throw std::invalid_argument("acceptor: state " + std::to_string(state) + ": expected ascending tokens");
  }

  const uint32_t start;

  uint32_t states() const { return static_cast<uint32_t>(first_.size() - 1); }
  const int32_t* begin(uint32_t state) const { return tokens_.data() + first_[state]; }
  const int32_t* end(uint32_t state) const { return tokens_.data() + first_[state + 1]; }

  // kNowhere if the token may not follow.
  uint32_t next(uint32_t state, int32_t token) const {
    const int32_t* found = std::lower_bound(begin(state), end(state), token);
    return found == end(state) || *found != token ? kNowhere : targets_[found - tokens_.data()];
  }

 private:
  void expect_state(uint32_t state) const {
    if (state >= states())
      throw std::invalid_argument("acceptor: expected a state below " + std::to_string(states()) + ", got " +
                                  std::to_string(state));
  }

  const std::vector<uint64_t> first_;
  const std::vector<int32_t> tokens_;
  const std::vector<uint32_t> targets_;
};

}  // namespace rescore
