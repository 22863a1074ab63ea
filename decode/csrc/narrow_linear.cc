// The weights come from memory once, which takes longer than all arithmetic with a few rows. So some of their rows are
// laid out in the first cache, where files may have left them across its lines, and multiplied with three rows of x at
// a time, as many sums as there are registers for, while the next ones are on their way.

#include "narrow_linear.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

namespace rescore {

namespace {

#ifdef __AVX512F__
constexpr int kWide = 16, kMostRows = 36;
#elif defined(__AVX2__)
constexpr int kWide = 8, kMostRows = 20;
#else
constexpr int kWide = 4, kMostRows = 0;
#endif
constexpr int kTogether = kWide / 2;  // rows of weights; times kOfX sums, in registers
constexpr int kOfX = 3;
constexpr int64_t kPart = 1024;      // inputs at a time, at most
constexpr int64_t kShare = 32;       // outputs that a thread takes at once
constexpr int64_t kAlone = 1 << 16;  // weights that are worth no second thread
using Floats = float __attribute__((vector_size(4 * kWide)));
using Totals = float __attribute__((vector_size(4 * kTogether)));
using Lanes = std::make_integer_sequence<int, kWide>;

Floats load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// Keeps a vector in a register: the compiler would load it again for each of its products.
[[gnu::always_inline]] inline void keep(Floats& lanes) {
#ifdef __AVX2__
  asm("" : "+v"(lanes));
#else
  (void)lanes;
#endif
}

// Adds the halves of each group of `width` lanes; those of a come before those of b.
template <int width, int... lane>
[[gnu::always_inline]] inline Floats folded(const Floats& a, const Floats& b, std::integer_sequence<int, lane...>) {
  constexpr int half = width / 2;
  return __builtin_shufflevector(a, b, (lane / half * width + lane % half)...) +
         __builtin_shufflevector(a, b, (lane / half * width + lane % half + half)...);
}

// The sums of n vectors: a group of kWide / n lanes each.
template <int n>
[[gnu::always_inline]] inline Floats groups(const Floats* sums) {
  if constexpr (n == 1)
    return sums[0];
  else
    return folded<2 * kWide / n>(groups<n / 2>(sums), groups<n / 2>(sums + n / 2), Lanes{});
}

// Some rows of weights, of some of the inputs, multiplied with rows of x.
struct Tile {
  alignas(64) std::array<std::array<float, kPart + kWide>, kTogether> weights;  // rows in different sets of the cache
  const float* from;                                                            // [.., stride]; those after them follow
  int64_t stride, inputs;

  // Adds the products with n rows of x to y, or begins with them. This is a step of several with other rows: the first
  // lays out the weights, and in each, its share of the next ones is fetched, in the order of their addresses, which
  // the processor then runs ahead of.
  template <int n, bool is_first>
  void run(const float* x, float* y, int64_t outputs, bool begins, int step, int steps) {
    const int first = step * kTogether / steps, lines = (step + 1) * kTogether / steps - first;
    const float *fetched = from + (kTogether + first) * stride, *stop = fetched + inputs;
    Floats sums[n][kTogether] = {};
    for (int64_t i = 0; i < inputs; i += kWide) {
      for (int line = 0; line < lines; ++line) {
        __builtin_prefetch(fetched, 0, 2);
        fetched += kWide;
        if (fetched == stop) {
          fetched += stride - inputs;
          stop += stride;
        }
      }
      Floats of_x[n];
      for (int j = 0; j < n; ++j) of_x[j] = load(x + j * stride + i);
      for (int row = 0; row < kTogether; ++row) {
        float* const laid = weights[row].data() + i;
        Floats of_row = load(is_first ? from + row * stride + i : laid);
        keep(of_row);
        if (is_first && steps > 1) std::memcpy(laid, &of_row, sizeof of_row);
        for (int j = 0; j < n; ++j) sums[j][row] += of_row * of_x[j];
      }
    }
    for (int j = 0; j < n; ++j) {
      const Floats pairs = groups<kTogether>(sums[j]), twice = folded<2>(pairs, pairs, Lanes{});
      float* const to = y + j * outputs;
      Totals totals, before{};
      if (!begins) std::memcpy(&before, to, sizeof before);
      std::memcpy(&totals, &twice, sizeof totals);
      totals += before;
      std::memcpy(to, &totals, sizeof totals);
    }
  }
};

// OpenMP's own call, of the library that torch's layers run on: other threads would wait for the processors that its
// threads keep busy between layers.
using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
Parallel parallel() {
  static const auto found = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

// A layer whose outputs threads take one after another.
struct Shared {
  const NarrowLinear& layer;
  std::atomic<int64_t> next{0};

  void work() {
    Tile tile;
    tile.stride = layer.inputs;
    for (int64_t from = next.fetch_add(kShare); from < layer.outputs; from = next.fetch_add(kShare))
      for (int64_t row = from; row < std::min(from + kShare, layer.outputs); row += kTogether) rows_from(row, tile);
  }

  void rows_from(int64_t row, Tile& tile) const {
    for (int64_t first = 0; first < layer.inputs; first += kPart) {
      tile.from = layer.weights + row * layer.inputs + first;
      tile.inputs = std::min(kPart, layer.inputs - first);
      const int steps = static_cast<int>((layer.rows + kOfX - 1) / kOfX);
      step_of<true>(tile, row, first, 0, steps);
      for (int step = 1; step < steps; ++step) step_of<false>(tile, row, first, step, steps);
    }
  }

  template <bool is_first>
  void step_of(Tile& tile, int64_t row, int64_t first, int step, int steps) const {
    const int64_t at = step * kOfX;
    const float* const x = layer.x + at * layer.inputs + first;
    float* const y = layer.y + at * layer.outputs + row;
    switch (std::min<int64_t>(kOfX, layer.rows - at)) {
      case 1:
        return tile.run<1, is_first>(x, y, layer.outputs, !first, step, steps);
      case 2:
        return tile.run<2, is_first>(x, y, layer.outputs, !first, step, steps);
      default:
        return tile.run<kOfX, is_first>(x, y, layer.outputs, !first, step, steps);
    }
  }
};

}  // namespace

void NarrowLinear::run(int threads) const {
  Shared shared{*this};
  const auto work = [](void* of) { static_cast<Shared*>(of)->work(); };
  const int64_t worth = std::min<int64_t>(threads, inputs * outputs / kAlone);
  if (worth > 1 && parallel())
    parallel()(work, &shared, static_cast<unsigned>(worth), 0);
  else
    shared.work();
}

int64_t most_narrow_rows() { return parallel() ? kMostRows : 0; }

}  // namespace rescore
