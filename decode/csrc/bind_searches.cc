// Python bindings of the searches: checks of dtypes and shapes, then free functions on flat arrays.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <shared_mutex>

#include "batch.h"
#include "batch_trees.h"
#include "best_paths.h"
#include "best_tree.h"
#include "bind_decode.h"
#include "context_model.h"
#include "model.h"
#include "parallel.h"

namespace rescore {

using namespace nb::literals;

namespace {

nb::tuple best_paths(const nb::list& lms, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost,
                     In<double, 2> alpha, int paths, const Acceptor* acceptor, int threads) {
  const Batch batch(ModelList(lms), histories, ids, cost, alpha, 1, acceptor);
  expect_range("paths p", paths, 1, kMaxPaths);
  expect_range("threads", threads, 1, 1024);
  const size_t p = paths;
  auto tokens = make<int32_t>({batch.rows, p, batch.slots});
  auto costs = make<float>({batch.rows, p});
  auto counts = make<int32_t>({batch.rows});
  {
    nb::gil_scoped_release release;
    parallel_for(batch.rows, threads, [&](int64_t b) {
      thread_local PathSearch search;
      counts.data[b] = search.run(batch.models, batch.sausage(b), batch.starts(b),
                                  {tokens.data + b * p * batch.slots, costs.data + b * p, paths});
    });
  }
  return nb::make_tuple(tokens.array, costs.array, counts.array);
}

// Trees that a thread searches in turns, so that one reads memory while another computes.
constexpr int kTurns = 4;

// The running texts of a call and the memories, locked against changes during the search.
class ReadTexts {
 public:
  ReadTexts(const std::vector<const ContextModel*>& texts, const std::vector<const ContextModel*>& memories,
            const std::vector<const EditModel*>& expected, uint32_t vocab_size)
      : texts_(texts), memories_(memories), expected_(expected) {
    held_.reserve(texts.size() + memories.size());
    for (const ContextModel* text : texts) hold(text->counts(), vocab_size);
    for (const ContextModel* memory : memories)
      if (memory) hold(memory->counts(), vocab_size);
    for (const EditModel* one : expected)
      if (one) check("expected", one->greatest_token(), vocab_size);
  }

  int of(int64_t b, const Batch& batch, TextSource* sources) const {
    int count = 0;
    if (!texts_.empty()) sources[count++] = {&texts_[b]->counts(), texts_[b]->state()};
    if (const ContextModel* memory = memories_.empty() ? nullptr : memories_[b])
      sources[count++] = {&memory->counts(),
                          memory->counts().state_after(batch.histories + b * batch.context, batch.context)};
    return count;
  }
  const EditModel* expected(int64_t b) const { return expected_.empty() ? nullptr : expected_[b]; }

 private:
  static void check(const std::string& name, uint32_t greatest, uint32_t vocab_size) {
    if (greatest >= vocab_size)
      throw std::invalid_argument(name + ": expected token ids below the model's vocabulary size " +
                                  std::to_string(vocab_size) + ", got " + std::to_string(greatest));
  }
  void hold(const ContextCounts& text, uint32_t vocab_size) {
    held_.emplace_back(text.mutex());
    check("texts", text.greatest_token(), vocab_size);
  }

  const std::vector<const ContextModel*>&texts_, &memories_;
  const std::vector<const EditModel*>& expected_;
  std::vector<std::shared_lock<ManyReaders>> held_;
};

// What structures allow after the prefixes that are opened. Python is asked, one prefix of each row at a time, but not
// along a run of tokens that must follow.
class Structures {
 public:
  Structures(const nb::object& allowed, size_t rows) : allowed_(allowed), prefixes_(rows), asked_(rows, 0) {}

  // What is allowed after the opening of a row; false if `ask` must tell.
  bool knows(int64_t row, const TreeSearch& search, Allowed& allowed) {
    const Opening& opening = search.opening();
    const Prefix parent = opening.number ? prefixes_[row][opening.parent] : Prefix{};
    const bool inside = parent.run + 1 < parent.end;
    if (inside) {
      prefixes_[row].push_back({parent.asked, parent.passed + 1, parent.run + 1, parent.end});
      allowed = {runs_[parent.run + 1]};
    } else {
      rows_.push_back(static_cast<int32_t>(row));
      before_.push_back(parent.asked);
      passed_.push_back(parent.passed);
      tokens_.push_back(opening.number ? static_cast<int32_t>(search.token()) : -1);
    }
    return inside;
  }
  const std::vector<int32_t>& rows() const { return rows_; }

  // Takes the GIL and asks; returns the answer for each of `rows`, valid until the next call: of a tuple of tokens that
  // must follow, of the bits of those that may, or of None.
  std::vector<Allowed> ask(uint32_t vocab_size) {
    const nb::gil_scoped_acquire acquire;
    const auto found = nb::cast<std::vector<nb::object>>(allowed_(rows_, before_, passed_, tokens_));
    expect_size("allowed, one answer per prefix", found.size(), rows_.size());
    std::vector<Allowed> answers(found.size());
    words_.clear();
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t begin = runs_.size();
      if (nb::isinstance<nb::tuple>(found[i])) {
        for (const uint32_t token : nb::cast<std::vector<uint32_t>>(found[i])) {
          expect_range("allowed, a token that must follow", token, 0, static_cast<int64_t>(vocab_size) - 1);
          runs_.push_back(token);
        }
        expect_range("allowed, tokens that must follow", runs_.size() - begin, 1, INT32_MAX);
        answers[i] = {runs_[begin]};
      } else if (!found[i].is_none()) {
        words_.push_back(nb::cast<In<uint32_t, 1>>(found[i], false));
        answers[i] = bits(words_.back(), vocab_size);
      }
      prefixes_[rows_[i]].push_back({asked_[rows_[i]]++, 0, begin, runs_.size()});
    }
    return answers;
  }
  void clear() {
    for (std::vector<int32_t>* of : {&rows_, &before_, &passed_, &tokens_}) of->clear();
  }

 private:
  struct Prefix {
    int32_t asked = 0, passed = 0;  // number of the last one asked for on the way here, and tokens of its run since
    size_t run = 0, end = 0;        // what must follow: runs_[run..end)
  };

  // Bits past the vocabulary do not count.
  static Allowed bits(const In<uint32_t, 1>& words, uint32_t vocab_size) {
    Allowed found{Allowed::kSeveral, words.data(), words.shape(0), 0};
    const size_t whole = std::min<size_t>(found.size, vocab_size / 32);
    for (size_t i = 0; i < whole; ++i) found.count += __builtin_popcount(found.words[i]);
    if (whole < found.size) found.count += __builtin_popcount(found.words[whole] & ((1u << vocab_size % 32) - 1));
    return found.count == vocab_size ? Allowed{} : found;
  }

  const nb::object& allowed_;
  std::vector<std::vector<Prefix>> prefixes_;  // of each row, by their numbers
  std::vector<int32_t> asked_;
  std::vector<uint32_t> runs_;
  std::vector<int32_t> rows_, before_, passed_, tokens_;  // to be asked
  std::vector<In<uint32_t, 1>> words_;
};

// models: one, or one per lattice, of one vocabulary size. weights [3, slots]: head, prior, floor; alpha [1, slots];
// lattices may have 0 slots. next: None, or where candidates lead, as in `Sausage`. texts: none, or one per lattice.
// memories: earlier texts, whose context is the end of the history; expected: of each none, or one or None per lattice.
// allowed: None, or `lattice.structure.Bounds`. late: as in `SlotWeights`.
nb::tuple best_tree(const std::vector<const Model*>& models, In<int32_t, 2> histories, In<int32_t, 3> ids,
                    In<float, 3> cost, In<double, 2> alpha, In<double, 2> weights, bool open,
                    const std::vector<const ContextModel*>& texts, const std::vector<const ContextModel*>& memories,
                    const std::vector<const EditModel*>& expected, double least, int depth, const nb::object& allowed,
                    int few, int nodes, int threads, std::optional<In<int32_t, 3>> next, std::optional<double> late) {
  expect_range("models", models.size(), 1, INT32_MAX);
  for (const Model* model : models)
    if (!model) throw nb::type_error("models: expected automata, got None");
  const uint32_t vocab_size = models[0]->lm().vocab_size;
  for (const Model* model : models) expect_size("models, of one vocabulary size", model->lm().vocab_size, vocab_size);
  const Batch batch(ModelList(*models[0]), histories, ids, cost, alpha, 0, nullptr, next);
  if (models.size() > 1) expect_size("models", models.size(), batch.rows);
  expect_size("weights: head, prior, floor", weights.shape(0), 3);
  expect_size("weights, one per slot", weights.shape(1), batch.slots);
  if (!texts.empty()) expect_size("texts", texts.size(), batch.rows);
  for (const ContextModel* text : texts)
    if (!text) throw nb::type_error("texts: expected context models, got None");
  if (!memories.empty()) expect_size("memories", memories.size(), batch.rows);
  if (!expected.empty()) expect_size("expected", expected.size(), batch.rows);
  const double* of = weights.data();
  const SlotWeights of_slots{of, alpha.data(), of + batch.slots, of + 2 * batch.slots, late.value_or(-1)};
  expect_range("threads", threads, 1, 1024);
  expect_range("depth", depth, 1, kMaxNodes);
  expect_range("few", few, 1, 1 << 20);
  if (late && !(*late >= 0 && *late <= 1)) throw std::invalid_argument("late: expected a part, 0 to 1");
  if (!(least >= 0 && least <= 1)) throw std::invalid_argument("least: expected a probability, 0 to 1");
  return trees(batch.rows, nodes, [&](const Trees& trees) {
    using Sources = std::array<TextSource, TextBlend::kMaxTexts>;
    const auto begin = [&](TreeSearch& search, int64_t b, Sources& sources, const ReadTexts& read) {
      const int count = read.of(b, batch, sources.data());
      const Automaton& lm = models[models.size() > 1 ? b : 0]->lm();
      search.begin(lm, lm.state(batch.suffixes(b, lm)), batch.sausage(b), of_slots, open, sources.data(), count,
                   read.expected(b), depth, least, trees.of(b), few);
    };
    if (allowed.is_none()) {
      const ReadTexts read(texts, memories, expected, vocab_size);
      const int64_t rows = batch.rows, each = std::clamp<int64_t>((rows + threads - 1) / threads, 1, kTurns);
      parallel_for((rows + each - 1) / each, threads, [&](int64_t group) {
        thread_local std::array<TreeSearch, kTurns> searches;
        std::array<Sources, kTurns> sources;
        const int64_t first = group * each, count = std::min(each, rows - first);
        for (int64_t i = 0; i < count; ++i) begin(searches[i], first + i, sources[i], read);
        for (uint32_t left = (1u << count) - 1, turn = left; left; turn = left)
          for (; turn; turn &= turn - 1) {
            const int i = __builtin_ctz(turn);
            if (searches[i].advance())
              searches[i].open(Allowed{});
            else
              left &= ~(1u << i);
          }
        for (int64_t i = 0; i < count; ++i) trees.counts[first + i] = searches[i].found();
      });
      return;
    }
    std::vector<std::unique_ptr<TreeSearch>> searches;
    std::vector<Sources> sources(batch.rows);
    std::vector<int32_t> rows;
    std::vector<Allowed> answers;
    Structures structures(allowed, batch.rows);
    for (size_t b = 0; b < batch.rows; ++b) {
      searches.push_back(std::make_unique<TreeSearch>());
      begin(*searches[b], b, sources[b], ReadTexts(texts, memories, expected, vocab_size));
      rows.push_back(static_cast<int32_t>(b));
    }
    while (!rows.empty()) {
      {
        const ReadTexts read(texts, memories, expected, vocab_size);  // not while Python runs
        for (size_t i = 0; i < answers.size(); ++i) searches[rows[i]]->open(answers[i]);
        structures.clear();
        for (const int32_t b : rows)
          for (Allowed known; searches[b]->advance() && structures.knows(b, *searches[b], known);)
            searches[b]->open(known);
      }
      rows = structures.rows();
      if (!rows.empty()) answers = structures.ask(vocab_size);
    }
    for (size_t b = 0; b < batch.rows; ++b) trees.counts[b] = searches[b]->found();
  });
}

}  // namespace

void bind_searches(nb::module_& m) {
  m.def("best_paths", &best_paths, "models"_a, "histories"_a.noconvert(), "ids"_a.noconvert(), "cost"_a.noconvert(),
        "alpha"_a.noconvert(), nb::kw_only(), "paths"_a, "acceptor"_a = nb::none(), "threads"_a = 1);
  m.def("best_tree", &best_tree, "models"_a, "histories"_a.noconvert(), "ids"_a.noconvert(), "cost"_a.noconvert(),
        "alpha"_a.noconvert(), "weights"_a.noconvert(), nb::kw_only(), "open"_a, "texts"_a, "memories"_a = nb::list(),
        "expected"_a = nb::list(), "least"_a = 0.0, "depth"_a, "allowed"_a = nb::none(), "few"_a = 256, "nodes"_a,
        "threads"_a = 1, "next"_a.noconvert() = nb::none(), "late"_a = nb::none());
}

}  // namespace rescore
