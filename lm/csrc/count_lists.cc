#include "count_lists.h"

#include <stdexcept>
#include <utility>

namespace rescore {
namespace {

// Blocks have 1, 2, 3, 4, 6, 8, 12, 16, .. entries, of which at most a third are empty.
uint32_t capacity(int size_class) {
  if (size_class == 0) return 1;
  const int half = (size_class - 1) / 2;
  return size_class % 2 ? 2u << half : 3u << half;
}

int class_of(uint32_t size) {
  int found = 0;
  while (capacity(found) < size) ++found;
  return found;
}

}  // namespace

uint32_t CountLists::find(uint32_t owner, const CountList& list, uint32_t token) const {
  if (list.size <= kShort) {
    const Entry* entry = list.size ? entries(list) : nullptr;
    for (uint32_t at = 0; at < list.size; ++at)
      if (entry[at].token == token) return at;
    return kNone;
  }
  return table_[place(owner, token)].at;
}

void CountLists::add(uint32_t owner, CountList& list, uint32_t token, float amount) {
  uint32_t at = find(owner, list, token);
  if (at == kNone) at = append(owner, list, token);
  entries_[list.first + at].count += amount;
  rise(owner, list, at);
}

void CountLists::fill(CountList& list, const std::vector<Entry>& entries) {
  list = {block(class_of(static_cast<uint32_t>(entries.size()))), static_cast<uint32_t>(entries.size())};
  for (uint32_t i = 0; i < list.size; ++i) entries_[list.first + i] = entries[i];
}

uint32_t CountLists::block(int size_class) {
  const uint32_t room = free_[size_class];
  if (room != kNone) {
    free_[size_class] = entries_[room].token;
    return room;
  }
  if (entries_.size() + capacity(size_class) >= kNone) throw std::length_error("the context model is full");
  return static_cast<uint32_t>(entries_.extend(capacity(size_class)));
}

uint32_t CountLists::append(uint32_t owner, CountList& list, uint32_t token) {
  const int size_class = class_of(list.size);
  if (!list.size || list.size == capacity(size_class)) {
    const uint32_t room = block(list.size ? size_class + 1 : 0);
    for (uint32_t i = 0; i < list.size; ++i) entries_[room + i] = entries_[list.first + i];
    if (list.size) {
      entries_[list.first].token = free_[size_class];
      free_[size_class] = list.first;
    }
    list.first = room;
  }
  const uint32_t at = list.size++;
  entries_[list.first + at] = {token, 0};
  if (list.size == kShort + 1)
    for (uint32_t i = 0; i < list.size; ++i) index(owner, entries_[list.first + i].token, i);
  else if (list.size > kShort)
    index(owner, token, at);
  return at;
}

void CountLists::rise(uint32_t owner, const CountList& list, uint32_t at) {
  Entry* heap = &entries_[list.first];
  const Entry risen = heap[at];
  const bool indexed = list.size > kShort;
  for (; at && heap[(at - 1) / 2].count < risen.count; at = (at - 1) / 2) {
    heap[at] = heap[(at - 1) / 2];
    if (indexed) table_[place(owner, heap[at].token)].at = at;
  }
  heap[at] = risen;
  if (indexed) table_[place(owner, risen.token)].at = at;
}

size_t CountLists::place(uint32_t owner, uint32_t token) const {
  const size_t mask = table_.size() - 1;
  for (size_t at = hash_of(owner, token) & mask;; at = (at + 1) & mask) {
    const Place& found = table_[at];
    if (found.at == kNone || (found.owner == owner && found.token == token)) return at;
  }
}

void CountLists::index(uint32_t owner, uint32_t token, uint32_t at) {
  if (2 * (indexed_ + 1) > table_.size()) grow();
  table_[place(owner, token)] = {owner, token, at};
  ++indexed_;
}

void CountLists::grow() {
  Growing<Place> old;
  std::swap(old, table_);
  const size_t size = old.size() ? 2 * old.size() : 256;
  table_.extend(size);
  for (size_t at = 0; at < size; ++at) table_[at].at = kNone;
  for (size_t at = 0; at < old.size(); ++at)
    if (old[at].at != kNone) table_[place(old[at].owner, old[at].token)] = old[at];
}

}  // namespace rescore
