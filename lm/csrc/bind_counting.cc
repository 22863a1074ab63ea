// Python bindings of counting: text to runs of windows, runs to the n-grams of every order.

#include "bind_lm.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "arrays.h"
#include "level_builder.h"
#include "window_count.h"
#include "window_merge.h"

namespace rescore {
namespace {

using namespace nb::literals;

using Tokens = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>;
using RunTuple = std::tuple<nb::bytes, std::vector<uint64_t>, uint64_t, uint64_t>;
using Source = std::variant<nb::bytes, std::tuple<std::string, uint64_t, uint64_t>>;

// Calls body with a compile-time number of words for a key.
template <typename Body>
auto with_words(const WindowLayout& layout, Body body) {
  switch (layout.words()) {
    case 1:
      return body(std::integral_constant<int, 1>());
    case 2:
      return body(std::integral_constant<int, 2>());
    default:
      return body(std::integral_constant<int, 3>());
  }
}

void expect_starts(const std::vector<uint32_t>& starts) {
  if (std::adjacent_find(starts.begin(), starts.end(), std::greater_equal<uint32_t>()) != starts.end())
    throw std::invalid_argument("starts: expected ascending tokens");
}

RunTuple as_tuple(const Run& run) {
  return {nb::bytes(run.bytes.data(), run.bytes.size()), run.slices, run.windows, run.tokens};
}

RunTuple count_windows(const std::vector<Tokens>& parts, int order, uint32_t vocab_size, uint32_t end_of_text,
                       const std::vector<uint32_t>& starts) {
  const WindowLayout layout(order, vocab_size, end_of_text);
  expect_starts(starts);
  size_t total = 0;
  for (const Tokens& array : parts) {
    if (array.dtype() != nb::dtype<uint16_t>() && array.dtype() != nb::dtype<uint32_t>() &&
        array.dtype() != nb::dtype<int32_t>())
      throw nb::type_error("parts: expected arrays of uint16, uint32 or int32");
    total += array.shape(0) + 1;
  }
  Run run;
  {
    nb::gil_scoped_release release;
    run = with_words(layout, [&](auto words) {
      constexpr int W = words();
      std::vector<WindowKey<W>> keys;
      keys.reserve(total);
      for (const Tokens& array : parts) {
        const auto append = [&](auto zero) {
          windows_of(static_cast<const decltype(zero)*>(array.data()), array.shape(0), layout, keys);
        };
        const auto dtype = array.dtype();
        if (dtype == nb::dtype<uint16_t>())
          append(uint16_t{});
        else if (dtype == nb::dtype<uint32_t>())
          append(uint32_t{});
        else
          append(int32_t{});
      }
      return make_run<W>(keys, layout, starts);
    });
  }
  return as_tuple(run);
}

RunTuple run_of_windows(In<int64_t, 1> offsets, In<int32_t, 1> tokens, In<int64_t, 1> counts, int order,
                        uint32_t vocab_size, uint32_t end_of_text, const std::vector<uint32_t>& starts) {
  const WindowLayout layout(order, vocab_size, end_of_text);
  expect_starts(starts);
  expect_size("offsets", offsets.shape(0), counts.shape(0) + 1);
  Run run;
  {
    nb::gil_scoped_release release;
    run = with_words(layout, [&](auto words) {
      constexpr int W = words();
      std::vector<CountedKey<W>> items(counts.shape(0));
      uint64_t total = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        const int64_t begin = offsets.data()[i], end = offsets.data()[i + 1];
        if (begin < 0 || end <= begin || end - begin > order || end > static_cast<int64_t>(tokens.shape(0)) ||
            counts.data()[i] < 1)
          throw std::invalid_argument("window " + std::to_string(i) + ": expected 1 to " + std::to_string(order) +
                                      " tokens and a count of at least 1");
        if (end - begin < order && tokens.data()[begin] != static_cast<int32_t>(end_of_text))
          throw std::invalid_argument("window " + std::to_string(i) + ": expected " + std::to_string(order) +
                                      " tokens, or fewer after an end of text");
        if (order > 1 && end - begin < 2)
          throw std::invalid_argument("window " + std::to_string(i) +
                                      ": expected a token and what comes before it, got one token");
        total += static_cast<uint64_t>(counts.data()[i]);
        if (total > kMostTokens) throw std::invalid_argument("counts: expected a sum of at most 2^53");
        WindowKey<W> key{};
        for (int64_t at = begin; at < end; ++at) {
          const int32_t token = tokens.data()[at];
          if (token < 0 || static_cast<uint32_t>(token) >= vocab_size)
            throw std::invalid_argument("window " + std::to_string(i) + ": expected ids in 0.." +
                                        std::to_string(vocab_size - 1) + ", got " + std::to_string(token));
          const bool last = at == end - 1;
          if (token == static_cast<int32_t>(end_of_text) && at != begin && !last)
            throw std::invalid_argument("window " + std::to_string(i) +
                                        ": expected the end of text first or last, got it inside");
          key.place(uint64_t(token) + !last, layout.shift(last ? order - 1 : static_cast<int>(end - 2 - at)));
        }
        items[i] = {key, static_cast<uint64_t>(counts.data()[i])};
      }
      return make_run<W>(items, layout, starts);
    });
  }
  return as_tuple(run);
}

template <int W>
struct Merge {
  RunMerge<W> merged;
  RunWriter<W> writer;
};

// A merged slice of several runs, which can be built into levels, written as a run, or spelled out.
class RunSlices {
 public:
  RunSlices(const std::vector<Source>& sources, int order, uint32_t vocab_size, uint32_t end_of_text)
      : layout_(order, vocab_size, end_of_text), merge_(with_words(layout_, [&](auto words) {
          return AnyMerge(Merge<words()>{RunMerge<words()>(opened(sources)), {}});
        })) {}
  RunSlices(const RunSlices&) = delete;

  const WindowLayout& layout() const { return layout_; }
  // Calls body(key, count, writer) for up to `windows` of the slice; returns whether more may follow.
  template <typename Body>
  bool each(size_t windows, Body body) {
    return std::visit([&](auto& merge) { return each(merge, windows, body); }, merge_);
  }
  // The bytes that each() has written, and none any more.
  std::vector<uint8_t> taken() {
    return std::visit([](auto& merge) { return std::exchange(merge.writer.bytes, {}); }, merge_);
  }

 private:
  using AnyMerge = std::variant<Merge<1>, Merge<2>, Merge<3>>;

  std::vector<RunBytes> opened(const std::vector<Source>& sources) {
    std::vector<RunBytes> runs;
    for (const Source& source : sources) {
      if (const auto* bytes = std::get_if<nb::bytes>(&source)) {
        held_.push_back(*bytes);
        runs.emplace_back(reinterpret_cast<const uint8_t*>(bytes->c_str()), bytes->size());
      } else {
        const auto& [path, begin, end] = std::get<1>(source);
        runs.emplace_back(path, begin, end);
      }
    }
    return runs;
  }
  template <int W, typename Body>
  bool each(Merge<W>& merge, size_t windows, Body body) {
    WindowKey<W> key;
    uint64_t count;
    for (; windows > 0; --windows) {
      if (!merge.merged.next(key, count)) return false;
      if (!layout_.valid(key))
        throw std::invalid_argument("a run of counts: expected tokens below the vocabulary size; the file is damaged");
      body(key, count, merge.writer);
    }
    return true;
  }

  WindowLayout layout_;
  std::vector<nb::bytes> held_;
  AnyMerge merge_;
};

void expect_windows(size_t windows) {
  if (windows == 0) throw std::invalid_argument("windows: expected at least 1, got 0");
}

void make_builder(LevelBuilder* self, int order, uint32_t vocab_size, uint32_t end_of_text,
                  const std::vector<uint64_t>& least, uint64_t most, bool adjusted) {
  const WindowLayout layout(order, vocab_size, end_of_text);
  expect_size("min_counts", least.size(), order);
  for (size_t i = 0; i < least.size(); ++i)
    if (least[i] < 1 || (i > 0 && least[i] < least[i - 1]))
      throw std::invalid_argument("min_counts: expected counts of at least 1 that never fall");
  if (most < 1 || most > 1 << 20) throw std::invalid_argument("most: expected 1 to 2^20");
  new (self) LevelBuilder(layout, least, most, adjusted);
}

bool add(LevelBuilder& levels, RunSlices& slices, size_t windows) {
  if (!(slices.layout() == levels.layout()))
    throw std::invalid_argument("slices: expected slices of the same order, vocabulary and end of text");
  expect_windows(windows);
  nb::gil_scoped_release release;
  return slices.each(windows, [&](const auto& key, uint64_t count, auto&) { levels.add(key, count); });
}

nb::list take_parts(LevelBuilder& levels) {
  nb::list out;
  for (size_t order = 2; order < levels.parts.size(); ++order) {
    LevelPart part = std::exchange(levels.parts[order], {});
    out.append(nb::make_tuple(keep(std::move(part.context_token)), keep(std::move(part.context_parent)),
                              keep(std::move(part.context_total)), keep(std::move(part.context_end)),
                              keep(std::move(part.token)), keep(std::move(part.count)),
                              keep(std::move(part.context_adjusted)), keep(std::move(part.adjusted))));
  }
  return out;
}

nb::tuple spell(RunSlices& slices, size_t windows) {
  expect_windows(windows);
  std::vector<int64_t> offsets, counts;
  std::vector<int32_t> tokens;
  bool more;
  {
    nb::gil_scoped_release release;
    const WindowLayout& layout = slices.layout();
    offsets.push_back(0);
    more = slices.each(windows, [&](const auto& key, uint64_t count, auto&) {
      for (int field = layout.order - 2; field >= 0; --field)
        if (const uint32_t code = layout.field(key, field)) tokens.push_back(static_cast<int32_t>(code) - 1);
      tokens.push_back(static_cast<int32_t>(layout.field(key, layout.order - 1)));
      offsets.push_back(static_cast<int64_t>(tokens.size()));
      counts.push_back(static_cast<int64_t>(count));
    });
  }
  return nb::make_tuple(keep(std::move(offsets)), keep(std::move(tokens)), keep(std::move(counts)), more);
}

nb::tuple write(RunSlices& slices, size_t windows) {
  expect_windows(windows);
  size_t written = 0;
  bool more;
  {
    nb::gil_scoped_release release;
    more = slices.each(windows, [&](const auto& key, uint64_t count, auto& writer) {
      writer.add(key, count);
      ++written;
    });
  }
  const std::vector<uint8_t> bytes = slices.taken();
  return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), written, more);
}

}  // namespace

void bind_counting(nb::module_& m) {
  m.def("count_windows", &count_windows, "parts"_a, nb::kw_only(), "order"_a, "vocab_size"_a, "end_of_text"_a,
        "starts"_a);
  m.def("run_of_windows", &run_of_windows, nb::arg("offsets").noconvert(), nb::arg("tokens").noconvert(),
        nb::arg("counts").noconvert(), nb::kw_only(), "order"_a, "vocab_size"_a, "end_of_text"_a, "starts"_a);
  nb::class_<RunSlices>(m, "RunSlices")
      .def(nb::init<const std::vector<Source>&, int, uint32_t, uint32_t>(), "sources"_a, nb::kw_only(), "order"_a,
           "vocab_size"_a, "end_of_text"_a)
      .def("spell", &spell, "windows"_a)
      .def("write", &write, "windows"_a);
  nb::class_<LevelBuilder>(m, "LevelBuilder")
      .def("__init__", &make_builder, nb::kw_only(), "order"_a, "vocab_size"_a, "end_of_text"_a, "min_counts"_a,
           "most"_a, "adjusted"_a = false)
      .def("add", &add, "slices"_a, "windows"_a)
      .def("finish", &LevelBuilder::finish, nb::call_guard<nb::gil_scoped_release>())
      .def("take", &take_parts)
      .def("unigrams", [](const LevelBuilder& levels) { return keep(std::vector<uint64_t>(levels.unigrams)); })
      .def("adjusted_unigrams",
           [](const LevelBuilder& levels) { return keep(std::vector<uint64_t>(levels.adjusted_unigrams)); })
      .def_ro("of_counts", &LevelBuilder::of_counts)
      .def_ro("of_adjusted", &LevelBuilder::of_adjusted);
}

}  // namespace rescore
