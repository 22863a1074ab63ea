// The greatest order of n-grams.
#pragma once

namespace rescore {

constexpr int kMaxOrder = 7;

}  // namespace rescore
