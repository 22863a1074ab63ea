"""The p best paths with OpenFst, in C++ and from Python, as a reference for the native core."""
