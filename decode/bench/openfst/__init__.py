"""The search for the p best drafts by OpenFst, in C++ and from Python: what the native core is compared with."""
