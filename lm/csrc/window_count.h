// Sorts and counts the windows of text into a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "radix_sort.h"
#include "window_key.h"
#include "window_run.h"

namespace rescore {

// Appends the windows of an array of whole documents, each followed by an end of text; the last one may be missing.
template <int W, typename Token>
void windows_of(const Token* tokens, size_t length, const WindowLayout& layout, std::vector<WindowKey<W>>& out) {
  const int top = layout.order > 1 ? layout.shift(0) - layout.bits : 0;  // shift of the context's newest token
  WindowKey<W> context{};
  const auto enter = [&](uint32_t token) {
    if (layout.order == 1) return;
    if (token == layout.end_of_text) {
      context = {};
    } else {
      context.shift_right(layout.bits);
    }
    context.place(uint64_t{token} + 1, top);
  };
  const auto end_at = [&](uint32_t token) {
    WindowKey<W> key = context;
    key.shift_left(layout.bits);
    key.place(token, 0);
    out.push_back(key);
    enter(token);
  };
  const auto checked = [&](size_t i) {
    const auto token = tokens[i];
    if (token < 0 || static_cast<uint64_t>(token) >= layout.vocab_size)
      throw std::invalid_argument("token " + std::to_string(i) + ": expected an id in 0.." +
                                  std::to_string(layout.vocab_size - 1) + ", got " +
                                  std::to_string(static_cast<int64_t>(token)));
    return static_cast<uint32_t>(token);
  };
  enter(layout.end_of_text);
  for (size_t i = length > 0 && checked(0) == layout.end_of_text; i < length; ++i) end_at(checked(i));
  if (length > 0 && checked(length - 1) != layout.end_of_text) end_at(layout.end_of_text);
}

struct Run {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> slices;  // the begin of each in `bytes`, and the end
  uint64_t windows = 0;          // distinct
  uint64_t tokens = 0;           // counted
};

template <int W>
uint64_t times(const CountedKey<W>& item) {
  return item.count;
}
template <int W>
uint64_t times(const WindowKey<W>&) {
  return 1;
}

// Sorts windows and sums the counts of equal ones. starts: the smallest last-but-one token of each slice except the
// first, ascending.
template <int W, typename Item>
Run make_run(std::vector<Item>& items, const WindowLayout& layout, const std::vector<uint32_t>& starts) {
  {
    std::vector<Item> spare;
    radix_sort(items, spare, layout.order * layout.bits);
  }
  Run run;
  run.slices.push_back(0);
  RunWriter<W> writer;
  writer.bytes.reserve(items.size() * 4);
  auto start = starts.begin();
  const auto begin_slices = [&](uint64_t until) {  // those whose first token is below `until`
    for (; start != starts.end() && until > *start; ++start) {
      run.slices.push_back(writer.bytes.size());
      writer.begin_slice();
    }
  };
  for (size_t i = 0; i < items.size();) {
    const WindowKey<W> key = key_of(items[i]);
    uint64_t count = 0;
    for (; i < items.size() && key_of(items[i]) == key; ++i) count += times(items[i]);
    if (layout.order > 1) begin_slices(layout.field(key, 0));
    writer.add(key, count);
    ++run.windows;
    run.tokens += count;
  }
  begin_slices(UINT64_MAX);
  run.slices.push_back(writer.bytes.size());
  run.bytes = std::move(writer.bytes);
  return run;
}

}  // namespace rescore
