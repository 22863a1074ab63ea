// The weights come from memory once, which takes longer than all arithmetic with a few rows. So some of their rows are
// multiplied with all rows of x at once, as many sums as there are registers for, while the next ones are on their way.
// With more rows of x, weights are laid out in the first cache, as floats, where files may have left them across its
// lines, and multiplied with three rows at a time.

#include "narrow_linear.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace rescore {

namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
#ifdef __AVX512F__
constexpr int kWide = 16;
constexpr int64_t kMostRows = 36, kMostElsewhere = kAny;
#elif defined(__AVX2__)
constexpr int kWide = 8;
constexpr int64_t kMostRows = 20, kMostElsewhere = 128;
#else
constexpr int kWide = 4;
#endif
constexpr int64_t kBlock = 128;         // rows of x, of which a second cache keeps a part
constexpr int64_t kPart = 512;          // inputs at a time: of 11 rows, numbers that a first cache of 32 KB keeps
constexpr int64_t kKept = 7168;         // numbers of x that it keeps while weights pass
constexpr int kAtOnce = kWide * 3 / 4;  // rows of x, with two of weights
constexpr int64_t kShare = 32;          // outputs that a thread takes at once
constexpr int64_t kAlone = 1 << 16;     // weights that are worth no second thread, with few rows of x
using Floats = float __attribute__((vector_size(4 * kWide)));
using Lanes = std::make_integer_sequence<int, kWide>;

Floats load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

Floats load(const Bfloat16* from) {
  using Halves = uint16_t __attribute__((vector_size(2 * kWide)));
  using Words = uint32_t __attribute__((vector_size(4 * kWide)));
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}

// To the nearest, of two as near to the even one.
Bfloat16 rounded(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  if (number != number) return {0x7FC0};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
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

// The sum of each group of `width` lanes, in the first lanes.
template <int width>
[[gnu::always_inline]] inline Floats totals(const Floats& lanes) {
  if constexpr (width == 1)
    return lanes;
  else
    return totals<width / 2>(folded<width>(lanes, lanes, Lanes{}));
}

// Some rows of weights, of some of the inputs, multiplied with at most `of_x` rows of x at once.
template <typename Number, int of_x>
struct Tile {
  static constexpr int kTogether = std::max(kWide * 3 / 2 / of_x, 1);           // a sum for each pair, in registers
  alignas(64) std::array<std::array<float, kPart + kWide>, kTogether> weights;  // rows in different sets of the cache
  const Number *from, *next;                                                    // [.., stride]; the ones after these
  int64_t stride, inputs;

  // Adds the products with n rows of x to y, or begins with them. This is a step of several with other rows: the first
  // lays out the weights, and in each, its share of the next ones is fetched, in the order of their addresses, which
  // the processor then runs ahead of.
  template <int n, bool is_first>
  void run(const float* x, float* y, int64_t apart, bool begins, int step, int steps) {
    const int lines = (step + 1) * kTogether / steps - step * kTogether / steps;
    Floats sums[n][kTogether] = {};
    for (int64_t i = 0; i < inputs; i += kWide) {
      for (int line = 0; line < lines; ++line) {
        __builtin_prefetch(next, 0, 2);
        next += kWide;
      }
      const auto weights_of = [&](int row) {
        Floats lanes = is_first ? load(from + row * stride + i) : load(&weights[row][i]);
        keep(lanes);
        if (is_first && steps > 1) std::memcpy(&weights[row][i], &lanes, sizeof lanes);
        return lanes;
      };
      if constexpr (n < kTogether) {
        Floats xs[n];
        for (int j = 0; j < n; ++j) xs[j] = load(x + j * stride + i);
        for (int row = 0; row < kTogether; ++row) {
          const Floats lanes = weights_of(row);
          for (int j = 0; j < n; ++j) sums[j][row] += lanes * xs[j];
        }
      } else {
        Floats rows[kTogether];
        for (int row = 0; row < kTogether; ++row) rows[row] = weights_of(row);
        for (int j = 0; j < n; ++j) {
          Floats lanes = load(x + j * stride + i);
          keep(lanes);
          for (int row = 0; row < kTogether; ++row) sums[j][row] += rows[row] * lanes;
        }
      }
    }
    for (int j = 0; j < n; ++j) {
      const Floats found = totals<kWide / kTogether>(groups<kTogether>(sums[j]));
      std::array<float, kTogether> before = {};
      float* const to = y + j * apart;
      if (!begins) std::memcpy(before.data(), to, sizeof before);
      for (int row = 0; row < kTogether; ++row) before[row] += found[row];
      std::memcpy(to, before.data(), sizeof before);
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

// A layer whose outputs threads take one after another. x: as floats.
template <typename Number>
struct Shared {
  static constexpr bool kExact = std::is_same_v<Number, float>;  // y holds the sums
  const NarrowLinear<Number>& layer;
  const float* x;
  std::atomic<int64_t> next{0};

  template <int of_x>
  static void work(void* of) {
    Shared& shared = *static_cast<Shared*>(of);
    const NarrowLinear<Number>& layer = shared.layer;
    Tile<Number, of_x> tile;
    tile.stride = layer.inputs;
    std::vector<float> sums(kExact ? 0 : layer.rows * kShare);
    for (int64_t from = shared.next.fetch_add(kShare), after; from < layer.outputs; from = after) {
      const int64_t to = std::min(from + kShare, layer.outputs);
      after = shared.next.fetch_add(kShare);  // known now, so that its first rows are fetched with the last of these
      float* y = sums.data();
      if constexpr (kExact) y = layer.y + from;
      for (int64_t row = from; row < to; row += tile.kTogether) {
        const int64_t next = row + tile.kTogether < to ? row + tile.kTogether : std::min(after, layer.outputs - 1);
        tile.next = layer.weights + next * layer.inputs;
        shared.rows_from(row, y + row - from, kExact ? layer.outputs : kShare, tile);
      }
      if constexpr (!kExact)
        for (int64_t row = 0; row < layer.rows; ++row, y += kShare)
          std::transform(y, y + to - from, layer.y + row * layer.outputs + from, rounded);
    }
  }

  // Those of weights, for y [.., apart].
  template <int of_x>
  void rows_from(int64_t row, float* y, int64_t apart, Tile<Number, of_x>& tile) const {
    const int steps = static_cast<int>((layer.rows + of_x - 1) / of_x);
    const int64_t parts = layer.rows > 6 && steps == 1 ? 1 : (layer.inputs + kPart - 1) / kPart;
    const int64_t part = (layer.inputs / kWide + parts - 1) / parts * kWide;
    for (int64_t first = 0; first < layer.inputs; first += part) {
      tile.from = layer.weights + row * layer.inputs + first;
      tile.inputs = std::min(part, layer.inputs - first);
      step_of<true>(tile, y, apart, first, 0, steps);
      for (int step = 1; step < steps; ++step) step_of<false>(tile, y, apart, first, step, steps);
    }
  }

  template <bool is_first, int of_x, int n = of_x>
  void step_of(Tile<Number, of_x>& tile, float* y, int64_t apart, int64_t first, int step, int steps) const {
    const int64_t at = step * of_x;
    if constexpr (n > 1)
      if (layer.rows - at < n) return step_of<is_first, of_x, n - 1>(tile, y, apart, first, step, steps);
    tile.template run<n, is_first>(x + at * layer.inputs + first, y + at * apart, apart, !first, step, steps);
  }
};

template <typename Number>
void run_block(const NarrowLinear<Number>& block, int threads) {
  using Own = Shared<Number>;
  const auto [weights, x, y, rows, inputs, outputs] = block;
  std::vector<float> floats(Own::kExact ? 0 : rows * inputs);
  for (size_t i = 0; i < floats.size(); i += kWide) {
    const Floats lanes = load(x + i);
    std::memcpy(&floats[i], &lanes, sizeof lanes);
  }
  Own shared{block, floats.data()};
  if constexpr (Own::kExact) shared.x = x;
  const bool three = rows <= 3 || rows > kAtOnce || (rows > 6 && rows * inputs > kKept);
  const auto work = three ? Own::template work<3> : rows <= 6 ? Own::template work<6> : Own::template work<kAtOnce>;
  const int64_t worth = std::min<int64_t>(threads, inputs * outputs * (1 + rows / 8) / kAlone);
  if (worth > 1 && parallel())
    parallel()(work, &shared, static_cast<unsigned>(worth), 0);
  else
    work(&shared);
}

}  // namespace

template <typename Number>
void NarrowLinear<Number>::run(int threads) const {
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = rows * block / blocks, after = rows * (block + 1) / blocks;
    run_block<Number>({weights, x + first * inputs, y + first * outputs, after - first, inputs, outputs}, threads);
  }
}

// MKL's floats are at their best on Intel's processors alone; oneDNN's short floats, where instructions multiply them.
std::pair<int64_t, int64_t> narrow_rows(bool bfloat16) {
#ifdef __AVX2__
  if (!parallel()) return {1, 0};
  if (!bfloat16) return {1, __builtin_cpu_is("intel") ? kMostRows : kMostElsewhere};
#ifdef __AVX512F__
  return {1, __builtin_cpu_supports("amx-bf16") ? 6 : __builtin_cpu_supports("avx512bf16") ? 17 : kAny};
#else
  return {2, kAny};
#endif
#else
  (void)bfloat16;
  return {1, 0};
#endif
}

template struct NarrowLinear<float>;
template struct NarrowLinear<Bfloat16>;

}  // namespace rescore
