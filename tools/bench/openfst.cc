// The p best strings of lattices composed with an n-gram model, with OpenFst 1.7.9 (Debian: libfst-dev): backoff arcs
// are failure arcs (PhiMatcher). The reference for the native core's answers (tests/tools/test_openfst.py) and times
// (search.py).
//
//   openfst_search MODEL.fst PATHS ROUNDS SWEEP < lattices > answers
//
// MODEL.fst   an acceptor, labels token id + 1, backoff arcs under label 0, costs already scaled
// ROUNDS      searches per lattice; the minimum time is printed
// SWEEP       megabytes written before each search, to evict the caches
//
// A lattice is a line "STATE STATES ARCS", STATE being the model state of its history, followed by one line per arc,
// "SOURCE TARGET LABEL COST"; strings lead from its state 0 to the last one, or end with the cost of a label 0. An
// answer is a line "COUNT MICROSECONDS", followed by one line per path, "COST LABEL LABEL ...". Times are CPU times of
// the thread, for composition and search only; building the lattice's FST and reading the strings of the result are
// excluded.
//
// Under failure semantics a state reads a token in one way: by its own arc, or else by its failure arc. The lattice
// is deterministic, so the composition is too; each string has one path, and the p best paths are the p best distinct
// strings. Asking for unique ones, which determinizes, would only cost time.
#include <fst/arcsort.h>
#include <fst/compose.h>
#include <fst/const-fst.h>
#include <fst/shortest-path.h>
#include <fst/vector-fst.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace {

using fst::StdArc;
using Label = StdArc::Label;
using StateId = StdArc::StateId;
using Weight = StdArc::Weight;
using Model = fst::ConstFst<StdArc>;
using Lattice = fst::ConstFst<StdArc>;
using Result = fst::VectorFst<StdArc>;

// A model with a settable start state, that of a lattice's history. It shares the arrays of the FST, so moving the
// start is free.
class Anchored : public Model {
 public:
  explicit Anchored(const Model& model) : Model(model), start_(model.Start()) {}
  void SetStart(StateId start) { start_ = start; }
  StateId Start() const override { return start_; }
  Anchored* Copy(bool safe = false) const override { return new Anchored(*this); }

 private:
  StateId start_;
};

struct Problem {
  StateId start;
  Lattice lattice;
  bool layered;  // all paths to a state have the same length
};

[[noreturn]] void Fail(const std::string& message) {
  std::cerr << "openfst_search: " << message << "\n";
  std::exit(1);
}

std::vector<Problem> ReadProblems(std::istream& in, StateId states) {
  std::vector<Problem> problems;
  StateId start;
  for (int states_of, arcs; in >> start >> states_of >> arcs;) {
    if (start < 0 || start >= states)
      Fail("expected a state below " + std::to_string(states) + ", got " + std::to_string(start));
    fst::VectorFst<StdArc> lattice;
    for (int s = 0; s < states_of; ++s) lattice.AddState();
    lattice.SetStart(0);
    lattice.SetFinal(states_of - 1, Weight::One());
    bool layered = true;
    std::vector<int> depth(states_of, 0);
    for (int i = 0; i < arcs; ++i) {
      StateId source = 0, target = 0;
      Label label = 0;
      float cost = 0;
      in >> source >> target >> label >> cost;
      if (!in || label < 0 || source < 0 || target <= source || target >= states_of)
        Fail("lattice " + std::to_string(problems.size()) + ": expected arcs to later states, labels from 0 up");
      layered = layered && (!depth[target] || depth[target] == depth[source] + 1);
      depth[target] = depth[source] + 1;
      if (label)
        lattice.AddArc(source, StdArc(label, label, cost, target));
      else
        lattice.SetFinal(source, cost);
    }
    fst::ArcSort(&lattice, fst::ILabelCompare<StdArc>());  // neighbouring look-ups share cache lines
    problems.push_back({start, Lattice(lattice), layered});
  }
  return problems;
}

// Returns the model with sorted arcs; unchanged if the file says that they are sorted.
Model Sorted(const fst::Fst<StdArc>& source) {
  const auto* ready = dynamic_cast<const Model*>(&source);
  if (ready && ready->Properties(fst::kILabelSorted, false)) return *ready;
  fst::VectorFst<StdArc> model(source);
  fst::ArcSort(&model, fst::ILabelCompare<StdArc>());
  return Model(model);
}

// The lazy composition of the lattice with the model, and the search in it. Only the model has epsilons, so no filter
// is needed to avoid redundant paths. Where all paths to a state have the same length, as in sausages, a FIFO queue
// relaxes each state once and avoids the depth-first search with which the default queue determines an order.
void Search(const Lattice& lattice, const Model& model, int paths, bool layered, Result* result) {
  using LatticeMatcher = fst::SortedMatcher<Lattice>;
  using ModelMatcher = fst::PhiMatcher<fst::SortedMatcher<Model>>;
  fst::ComposeFstImplOptions<LatticeMatcher, ModelMatcher, fst::TrivialComposeFilter<LatticeMatcher, ModelMatcher>>
      options;
  options.gc = false;
  options.matcher1 = new LatticeMatcher(&lattice, fst::MATCH_NONE);
  options.matcher2 = new ModelMatcher(&model, fst::MATCH_INPUT, 0, false, fst::MATCHER_REWRITE_NEVER);
  const fst::ComposeFst<StdArc> composed(lattice, model, options);  // owns the matchers
  using AnyArc = fst::AnyArcFilter<StdArc>;
  std::vector<Weight> distance;
  const auto search = [&](auto queue) {
    fst::ShortestPath(composed, result, &distance,
                      fst::ShortestPathOptions<StdArc, decltype(queue), AnyArc>(&queue, AnyArc(), paths));
  };
  if (layered)
    search(fst::FifoQueue<StateId>());
  else
    search(fst::AutoQueue<StateId>(composed, &distance, AnyArc()));
}

struct Path {
  float cost;
  std::vector<Label> labels;
};

// Reads the paths of a result, each a linear chain from its start state.
std::vector<Path> Read(const Result& result) {
  std::vector<Path> paths;
  if (result.Start() == fst::kNoStateId) return paths;
  for (fst::ArcIterator<Result> first(result, result.Start()); !first.Done(); first.Next()) {
    Path path{0, {}};
    StateId state = result.Start();
    for (const StdArc* arc = &first.Value(); arc;) {
      path.cost += arc->weight.Value();
      if (arc->ilabel) path.labels.push_back(arc->ilabel);
      state = arc->nextstate;
      arc = result.NumArcs(state) ? &fst::ArcIterator<Result>(result, state).Value() : nullptr;
    }
    path.cost += result.Final(state).Value();
    paths.push_back(path);
  }
  std::stable_sort(paths.begin(), paths.end(), [](const Path& a, const Path& b) { return a.cost < b.cost; });
  return paths;
}

// CPU time of this thread, so that other programs do not count.
double ThreadMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);  // keep freed memory between lattices
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  if (argc != 5) Fail("usage: openfst_search MODEL.fst PATHS ROUNDS SWEEP < lattices");
  const int count = std::atoi(argv[2]), rounds = std::atoi(argv[3]);
  std::vector<char> swept(static_cast<size_t>(std::max(std::atoi(argv[4]), 0)) << 20);
  if (count < 1 || rounds < 1) Fail("expected paths and rounds of at least 1");
  const std::unique_ptr<fst::Fst<StdArc>> source(fst::Fst<StdArc>::Read(argv[1]));
  if (!source) Fail(std::string(argv[1]) + ": not an OpenFst file of standard arcs");
  Anchored model(Sorted(*source));
  const std::vector<Problem> problems = ReadProblems(std::cin, fst::CountStates(model));

  std::vector<double> least(problems.size(), std::numeric_limits<double>::infinity());
  std::vector<std::vector<Path>> answers(problems.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < problems.size(); ++i) {
      model.SetStart(problems[i].start);
      Result result;
      for (size_t line = 0; line < swept.size(); line += 64) ++swept[line];
      const double began = ThreadMicroseconds();
      Search(problems[i].lattice, model, count, problems[i].layered, &result);
      least[i] = std::min(least[i], ThreadMicroseconds() - began);
      if (round == 0) answers[i] = Read(result);
    }
  }
  std::cout.precision(std::numeric_limits<float>::max_digits10);
  for (size_t i = 0; i < problems.size(); ++i) {
    std::cout << answers[i].size() << " " << least[i] << "\n";
    for (const Path& path : answers[i]) {
      std::cout << path.cost;
      for (const Label label : path.labels) std::cout << " " << label;
      std::cout << "\n";
    }
  }
}
