// The instruction sets of the processor that this runs on.

#pragma once

#include <string>
#include <vector>

namespace rescore {

// Levels of x86-64 by their psABI names, highest first, and above them one with two more AVX-512 extensions. Empty on
// other processors, or if the compiler knows no levels.
inline std::vector<std::string> levels() {
  std::vector<std::string> found;
#ifdef RESCORE_HAS_LEVELS
  const bool v4 = __builtin_cpu_supports("x86-64-v4");
  if (v4 && __builtin_cpu_supports("avx512vp2intersect") && __builtin_cpu_supports("avx512vpopcntdq"))
    found.push_back("x86-64-v4-vp2intersect");
  if (v4) found.push_back("x86-64-v4");
  if (__builtin_cpu_supports("x86-64-v3")) found.push_back("x86-64-v3");
  if (__builtin_cpu_supports("x86-64-v2")) found.push_back("x86-64-v2");
#endif
  return found;
}

}  // namespace rescore
