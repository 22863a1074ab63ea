// Locates all arrays in the sections of a model, from `sizes` only: constant work.
#include <algorithm>

#include "automaton.h"

namespace rescore {
namespace {

// Cuts a section into parts, from its beginning.
template <typename T>
class Cut {
 public:
  Cut(const char* name, Span<T> whole) : name_(name), whole_(whole) {}
  const T* take(uint64_t size) {
    if (size > whole_.size - at_) fail(at_ + size);
    at_ += size;
    return whole_.data + at_ - size;
  }
  void end() const {
    if (at_ != whole_.size) fail(at_);
  }

 private:
  [[noreturn]] void fail(uint64_t expected) const {
    throw std::invalid_argument(std::string(name_) + ": expected " + std::to_string(expected) +
                                " entries from `sizes`, got " + std::to_string(whole_.size));
  }
  const char* name_;
  Span<T> whole_;
  uint64_t at_ = 0;
};

void expect(bool right, const std::string& what) {
  if (!right) throw std::invalid_argument(what);
}

std::string row(uint32_t n) { return "sizes, order " + std::to_string(n) + ": expected "; }

void check_sizes(const Sections& sections, uint32_t order, uint32_t vocab_size) {
  // More than any machine holds, and small enough that no sum or product below overflows.
  constexpr uint64_t kMost = uint64_t{1} << 40;
  expect(sections.sizes.size == order, "sizes: expected a row for each of the " + std::to_string(order) +
                                           " orders, got " + std::to_string(sections.sizes.size));
  for (uint32_t n = 1; n <= order; ++n) {
    const Sizes& own = sections.sizes.data[n - 1];
    if (n == 1) {
      expect(own.arcs == vocab_size && own.states == 1,
             row(n) + "an arc for each of the " + std::to_string(vocab_size) + " tokens and one state");
      continue;
    }
    expect(own.arcs < UINT32_MAX, row(n) + "fewer than 2^32 - 1 arcs, got " + std::to_string(own.arcs));
    expect(own.states < kMost && own.states <= sections.sizes.data[n - 2].arcs,
           row(n) + "no more states than arcs of the order below, got " + std::to_string(own.states));
    expect(own.states > 0 || own.arcs == 0, row(n) + "no arcs without states");
    expect(own.states == 0 || sections.sizes.data[n - 2].states > 0, row(n) + "no states without shorter ones");
    expect(CostForm::valid(own.arc_bytes, own.arc_entries),
           row(n) + "costs of 4 bytes, or of 1 or 2 bytes and a codebook");
    expect(CostForm::valid(own.backoff_bytes, own.backoff_entries),
           row(n) + "backoff costs of 4 bytes, or of 1 or 2 bytes and a codebook");
  }
}

}  // namespace

Automaton::Automaton(const Sections& sections, uint32_t model_order, uint32_t tokens, uint32_t next_bits)
    : vocab_size(tokens), order(model_order), next_bits_(next_bits) {
  expect(vocab_size >= 1 && vocab_size <= uint32_t{1} << 24,
         "vocab_size: expected 1 to 2^24, got " + std::to_string(vocab_size));
  expect(order >= 1 && order <= kMaxOrder, "order: expected 1 to 7, got " + std::to_string(order));
  check_sizes(sections, order, vocab_size);
  for (uint32_t l = 0; l < order; ++l) {
    levels_[l].first_state = num_states;
    levels_[l].states = sections.sizes.data[l].states;
    levels_[l].first_arc = num_arcs;
    levels_[l].arcs = sections.sizes.data[l].arcs;
    num_states += levels_[l].states;
    num_arcs += levels_[l].arcs;
  }
  expect(num_states <= UINT32_MAX, "states: expected at most 2^32 - 1, got " + std::to_string(num_states));
  expect(next_bits_ >= 1 && next_bits_ <= 15, "next_bits: expected 1 to 15, got " + std::to_string(next_bits_));
  lay_out(sections);
  lay_out_arcs(sections);
  lay_out_contexts(sections);
  for (uint32_t l = 1; l < order; ++l) dense_[l] = std::make_unique<DenseLists>(levels_[l].arcs, vocab_size);
}

void Automaton::lay_out(const Sections& sections) {
  Cut root_cost("root_cost", sections.root_cost);
  root_cost_ = root_cost.take(vocab_size);
  root_cost.end();
  levels_[0].records = ArcRecords(reinterpret_cast<const uint8_t*>(root_cost_), CostForm{"root_cost"}, 0);
  const uint64_t token_bytes = vocab_size <= 1 << 16 ? 2 : 3, inner = num_arcs - vocab_size;
  Cut arc_token("arc_token", sections.arc_token);
  token24_ = arc_token.take(token_bytes * inner);
  arc_token.end();
  if (token_bytes == 2) token16_ = reinterpret_cast<const uint16_t*>(token24_);
  Cut first("first_state", sections.first_state);
  Cut jumps("jumps", sections.jumps);
  for (uint32_t l = 1; l < order; ++l) {
    levels_[l].first = first.take(uint64_t{vocab_size} + 1);
    if (l + 1 < order)
      levels_[l].jumps = jumps.take((levels_[l + 1].states + (uint64_t{1} << next_bits_) - 1) >> next_bits_);
  }
  first.end();
  jumps.end();
}

// Arcs of the highest order have no code, since they never lead to a longer state.
void Automaton::lay_out_arcs(const Sections& sections) {
  Cut arcs("arcs", sections.arcs);
  Cut book("arc_book", sections.arc_book);
  for (uint32_t l = 1; l < order; ++l) {
    const Sizes& sizes = sections.sizes.data[l];
    const uint32_t bytes = sizes.arc_bytes, code_bytes = l + 1 < order ? ArcRecords::code_bytes(next_bits_) : 0;
    const CostForm form{"arcs", bytes == 4 ? nullptr : book.take(sizes.arc_entries), sizes.arc_entries, bytes};
    levels_[l].records = ArcRecords(arcs.take((bytes + code_bytes) * levels_[l].arcs), form, code_bytes);
  }
  arcs.take(ArcRecords::kSpare);
  arcs.end();
  book.end();
}

void Automaton::lay_out_contexts(const Sections& sections) {
  Cut contexts("contexts", sections.contexts);
  Cut book("backoff_book", sections.backoff_book);
  Cut shorter("backoff_state", sections.backoff_state);
  for (uint32_t l = 1; l < order; ++l) {
    StateLevel& own = levels_[l];
    const Sizes& sizes = sections.sizes.data[l];
    const uint32_t bytes = sizes.backoff_bytes;
    const CostForm form{"contexts", bytes == 4 ? nullptr : book.take(sizes.backoff_entries), sizes.backoff_entries,
                        bytes};
    own.contexts = ContextBlocks(contexts.take(ContextBlocks::kBytes * ContextBlocks::blocks(own.states, bytes)),
                                 own.arcs, form, sections.wide.data, sections.wide.size);
    if (l == 1 || !own.states) continue;
    const uint64_t greatest = levels_[l - 1].states - 1;
    own.shorter =
        EliasFano("backoff_state", shorter.take(EliasFano::words(own.states, greatest)), own.states, greatest);
  }
  contexts.end();
  book.end();
  shorter.end();
}

}  // namespace rescore
