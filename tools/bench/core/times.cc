// Times the core's searches without Python: with warm caches, and after a sweep of the caches, as by a forward pass.
//
// usage: times MODEL LATTICES SWEEP_MB ROUNDS. times.py writes both files and compiles this with the core's sources.
// Prints a row per search and state of the caches: name, then the fastest microseconds of each lattice.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "best_paths.h"
#include "best_tree.h"

using namespace rescore;

namespace {

// A mapped file of arrays. Each is its size in bytes, padded to 64 bytes, then its bytes, padded to 64.
class File {
 public:
  explicit File(const char* name) {
    const int file = open(name, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) exit((perror(name), 1));
    at_ = static_cast<const uint8_t*>(mmap(nullptr, status.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0));
    if (at_ == MAP_FAILED) exit((perror(name), 1));
  }
  template <typename T>
  Span<T> next() {
    const uint64_t bytes = *reinterpret_cast<const uint64_t*>(at_);
    const Span<T> found{reinterpret_cast<const T*>(at_ + 64), bytes / sizeof(T)};
    at_ += 64 + (bytes + 63) / 64 * 64;
    return found;
  }

 private:
  const uint8_t* at_;
};

// order, vocabulary size, next bits; then the sections in the order of Sections.
Automaton read_model(File file) {
  const auto sizes = file.next<uint32_t>();
  Sections in;
  in.sizes = file.next<Sizes>();
  in.root_cost = file.next<float>();
  in.arc_token = file.next<uint8_t>();
  in.arcs = file.next<uint8_t>();
  in.arc_book = file.next<float>();
  in.contexts = file.next<uint8_t>();
  in.backoff_book = file.next<float>();
  in.wide = file.next<uint32_t>();
  in.first_state = file.next<uint32_t>();
  in.jumps = file.next<uint32_t>();
  in.backoff_state = file.next<uint64_t>();
  return Automaton(in, sizes.data[0], sizes.data[1], sizes.data[2]);
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return fprintf(stderr, "usage: times MODEL LATTICES SWEEP_MB ROUNDS\n"), 2;
  const Automaton lm = read_model(File(argv[1]));
  File file(argv[2]);
  const auto shape = file.next<int32_t>();  // lattices, slots, width, context
  const int count = shape.data[0], slots = shape.data[1], width = shape.data[2], context = shape.data[3];
  const auto histories = file.next<int32_t>(), ids = file.next<int32_t>();
  const auto cost = file.next<float>();
  const auto alpha = file.next<double>();
  std::vector<char> swept(static_cast<size_t>(atoi(argv[3])) << 20);
  const int rounds = atoi(argv[4]);
  Models models;
  models.count = 1;
  models.lm[0] = &lm;
  models.slots = slots;
  models.alpha = alpha.data;

  LatticeTreeSearch trees;
  PathSearch paths;
  std::vector<int32_t> tokens(1024 * kMaxSlots), parents(1024), depths(1024);
  std::vector<float> values(1024);
  const auto sausage = [&](int b) {
    const size_t at = size_t(b) * slots * width;
    return Sausage{ids.data + at, cost.data + at, slots, width};
  };
  const auto start = [&](int b) { return Starts{lm.suffixes(histories.data + size_t(b) * context, context)}; };
  const auto tree = [&](int nodes) {
    return [&, nodes](int b) {
      trees.begin(models, sausage(b), start(b), {tokens.data(), parents.data(), depths.data(), values.data(), nodes});
      grow_trees(&trees, 1);
    };
  };
  const std::vector<std::pair<std::string, std::function<void(int)>>> searches = {
      {"tree of 16", tree(16)},
      {"tree of 64", tree(64)},
      {"16 paths",
       [&](int b) {
         paths.run(models, sausage(b), start(b), Semantics::kFailure, {tokens.data(), values.data(), 16});
       }},
  };
  const auto sweep = [&] {
    for (size_t line = 0; line < swept.size(); line += 64) ++swept[line];
  };
  for (const auto& [name, search] : searches)
    for (const int state : {0, 1, 2}) {
      std::vector<double> least(count, 1e30);
      for (int round = 0; round <= rounds; ++round)
        for (int b = 0; b < count; ++b) {
          if (state) sweep();
          if (state == 2) search((b + count / 2) % count);
          const double began = now();
          search(b);
          const double took = now() - began;
          if (round && took < least[b]) least[b] = took;
        }
      printf("%s, %s", name.c_str(), state == 0 ? "warm" : state == 1 ? "cold" : "cold, another before");
      for (const double one : least) printf("\t%.3f", one);
      printf("\n");
    }
}
